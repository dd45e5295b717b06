"""Engines that batch as vLLM does, each a process with an agent of its own, for benchmarks of the whole system."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from controlplane import child
from support.batching import Physics
from support.system import RunningSystem
from support.waiting import until

PROGRAM = Path(__file__).resolve().parents[1] / "tests" / "support" / "batching_engine.py"
MODEL = "llama-3-70b"


@dataclass(frozen=True, slots=True)
class Setup:
    """One kind of engine: what it holds, and how many there are."""

    max_model_len: int
    physics: Physics
    engines: int


@asynccontextmanager
async def fleet(system: RunningSystem, setups: Iterable[Setup]) -> AsyncIterator[list[str]]:
    """The engines' URLs, once all are ready."""
    urls: list[str] = []
    async with AsyncExitStack() as stack:
        for setup in setups:
            for _ in range(setup.engines):
                shape = {
                    "model": MODEL,
                    "root": f"org/{MODEL}",
                    "max_model_len": setup.max_model_len,
                    "max_num_seqs": setup.physics.max_sequences,
                    "physics": asdict(setup.physics),
                }
                process = await child.start(
                    [sys.executable, str(PROGRAM), json.dumps(shape)], stdout=asyncio.subprocess.PIPE
                )
                stack.push_async_callback(child.stop, process, 5.0)
                assert process.stdout is not None
                urls.append((await process.stdout.readline()).decode().strip())
                flags = ["--max-sequences", str(setup.physics.max_sequences), "--format", "bf16"]
                await stack.enter_async_context(system.node(urls[-1], f"engine-{len(urls)}", *flags))

        async def all_ready() -> bool:
            return sum(node.ready for node in await system.nodes()) == len(urls)

        await until(all_ready, 60)
        yield urls


async def preemptions(urls: Iterable[str]) -> int:
    total = 0.0
    async with httpx.AsyncClient(trust_env=False) as client:
        for url in urls:
            lines = (await client.get(f"{url}/metrics")).text.splitlines()
            total += sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:num_preemptions_total"))
    return int(total)
