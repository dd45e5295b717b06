"""The fake engine with continuous batching in it, as a process of its own, so that it is late for nobody's sake.

    python tests/support/batching_engine.py '{"model": "m", "max_model_len": 8192, "max_num_seqs": 128, ...}'

Prints its URL, and serves until it is stopped. Of an answer that is streamed the first token comes when it is ready,
all others with the last: what is measured is the time to the first and to the last.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.batching import Batch, Physics, Sequence
from support.engine import EngineShape, FakeEngine, Job, chunk_of, event_of, head_of, serving, usage_of


@dataclass(eq=False)
class _Run:
    """A sequence and those who wait for it."""

    sequence: Sequence
    first: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)


class BatchingEngine(FakeEngine):
    """`physics` as the shape has room for."""

    def __init__(self, shape: EngineShape, physics: Physics) -> None:
        super().__init__(shape)
        self.batch = Batch(physics)
        self._runs: dict[int, _Run] = {}
        self._some = asyncio.Event()

    async def work(self) -> None:
        """Iteration after iteration, each as long as it takes; what it was late by it makes up for."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            iteration = self.batch.step()
            self._count()
            if iteration is None:
                self._some.clear()
                await self._some.wait()
                due = loop.time()
                continue
            due += iteration.seconds * self.shape.time_scale
            await asyncio.sleep(max(0.0, due - loop.time()))
            for sequence in iteration.first_tokens:
                self._run_of(sequence).first.set()
            for sequence in iteration.finished:
                self._run_of(sequence).done.set()
                self.counters.finished += 1

    def _run_of(self, sequence: Sequence) -> _Run:
        return self._runs.get(id(sequence)) or _Run(sequence)

    def _count(self) -> None:
        self.counters.running = len(self.batch.running)
        self.counters.waiting = len(self.batch.waiting)
        self.counters.kv_tokens = self.batch.used_blocks * self.batch.physics.block_size

    async def _generate(self, job: Job) -> AsyncGenerator[str, None]:
        loop = asyncio.get_running_loop()
        started = loop.time()
        run = _Run(Sequence(job.prompt_tokens, job.output_tokens, job.priority))
        self._runs[id(run.sequence)] = run
        self.batch.add(run.sequence)
        self._count()
        self._some.set()
        try:
            await run.first.wait()
            self.counters.prompt_tokens += job.prompt_tokens
            self.counters.ttft_sum += loop.time() - started
            self.counters.ttft_count += 1
            yield "word "
            await run.done.wait()
            self.counters.generation_tokens += job.output_tokens
            if job.output_tokens > 1:
                yield "word " * (job.output_tokens - 1)
        finally:
            del self._runs[id(run.sequence)]
            self.batch.remove(run.sequence)
            self._count()

    async def _events(self, job: Job) -> AsyncIterator[bytes]:
        left = min(2, job.output_tokens)
        async with aclosing(self._generate(job)) as pieces:
            async for piece in pieces:
                left -= 1
                yield event_of(chunk_of(job, piece, finished=left == 0))
        if job.include_usage:
            yield event_of({**head_of(job), "choices": [], "usage": usage_of(job)})
        yield b"data: [DONE]\n\n"

    def _metrics(self) -> str:
        labels = f'engine="0",model_name="{self.shape.model}"'
        name = "vllm:num_preemptions"
        return f"{super()._metrics()}# TYPE {name} counter\n{name}_total{{{labels}}} {self.batch.preemptions}\n"


@asynccontextmanager
async def running_batching_engine(shape: EngineShape, physics: Physics) -> AsyncIterator[BatchingEngine]:
    engine = BatchingEngine(shape, physics)
    async with serving(engine):
        working = asyncio.create_task(engine.work())
        try:
            yield engine
        finally:
            working.cancel()


async def main(given: dict[str, Any]) -> None:
    physics = Physics(**given.pop("physics", {}))
    shape = EngineShape(time_scale=1.0, block_size=physics.block_size, num_gpu_blocks=physics.blocks, **given)
    async with running_batching_engine(shape, physics) as engine:
        sys.stdout.write(f"{engine.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
