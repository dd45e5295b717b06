"""A million requests through our transport: does anything leak, or any stream stay?

    python bench/transport_soak.py [--requests 1000000] [--seconds S] [--through envoy|frames] [--answer router]

Through Envoy, as Headrace configures it, to engines in C, with load in C: bodies of 2 KB, now and then of 500 KB, some
answers streamed. Or by frames, as `transport.py` writes them, which costs a tenth of the time. It ends after so many
requests, or with the step in which so many seconds are over, whichever is first. Before the first step and after each
the filter worker says what it holds once nothing is under way: memory, objects that Python's collector tracks, streams,
calls, exchanges and tasks, and open files. The first tenth, or the first step if that is more, counts as warm-up. Ends
with status 1 if a request failed, a stream stayed, or anything kept growing. It measures no time, so that it can run
with low priority (nice).
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import envoy_alone
from bodies import LARGE, SMALL, write_bodies
from envoy_alone import held_by
from filter_alone import ANSWERS
from loading import generate
from transport import connected, filter_process

from support.envoy import RunningEnvoy
from support.waiting import until
from xds_server.clusters import EXT_PROC

STEP_SECONDS = 20.0
STEP_EXCHANGES = 20_000
LARGE_PER_SECOND = 1.0
STREAMS_PER_SECOND = 5.0
# What a stable process still moves by: a few objects in caches, and the allocator's own measure of pages to keep.
MOST_MORE_OBJECTS = 1_000
MOST_MORE_BYTES = 8 << 20
Held = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Way:
    """`step` sends some requests, and gives how many were answered and how many were not; `held` is what the worker
    holds now."""

    step: Callable[[], Awaitable[tuple[int, int]]]
    held: Callable[[], Awaitable[Held]]


@asynccontextmanager
async def through_envoy(folder: Path, answer: str, connections: int) -> AsyncIterator[Way]:
    bodies = write_bodies(folder / "bodies")
    running = envoy_alone.running(folder, workers=1, transport="h2", answer=answer, tokens=20, gap_ms=10)
    async with running as gateway:
        load = partial(generate, gateway.port, seconds=STEP_SECONDS)

        async def step() -> tuple[int, int]:
            said = await asyncio.gather(
                load(bodies[SMALL, False], connections=connections, rate=None, seed=1),
                load(bodies[LARGE, False], connections=4, rate=LARGE_PER_SECOND, seed=2),
                load(bodies[SMALL, True], connections=16, rate=STREAMS_PER_SECOND, seed=3),
            )
            await until(partial(_is_idle, gateway.envoy))
            answered = sum(each["statuses"].get("200", 0) for each in said)
            return answered, sum(each["sent"] for each in said) - answered

        yield Way(step, partial(gateway.held, 0))


async def _is_idle(envoy: RunningEnvoy) -> bool:
    return await envoy.stat(f"cluster.{EXT_PROC}.upstream_rq_active") == 0


@asynccontextmanager
async def by_frames(folder: Path, answer: str, connections: int) -> AsyncIterator[Way]:
    """A new connection for each step, with so many streams at a time."""
    log = folder / "filter.log"
    with filter_process("h2", answer, log) as (pid, address):

        async def step() -> tuple[int, int]:
            client = await connected(address, 2_000, connections)
            await client.do(STEP_EXCHANGES)
            client.close()
            return STEP_EXCHANGES, 0

        yield Way(step, partial(held_by, pid, log))


WAYS = {"envoy": through_envoy, "frames": by_frames}


async def soak(way: Way, requests: int, seconds: float) -> list[str]:
    """What was wrong; empty if nothing was."""
    faults: list[str] = []
    answered, warm = 0, None
    began = time.monotonic()

    def done() -> float:
        """What share of the whole."""
        return max(answered / requests, (time.monotonic() - began) / seconds)

    _show(0, await way.held())
    while done() < 1:
        well, badly = await way.step()
        answered += well
        held = await way.held()
        _show(answered, held)
        if badly:
            faults.append(f"{badly} requests failed before {answered:,}")
        if any(held["of_exchanges"][kind] for kind in ("Stream", "Call", "Exchange")):
            faults.append(f"after {answered:,} requests {held['of_exchanges']} stayed")
        if warm is None and done() >= 0.1:
            warm = held
    if warm is None or warm is held:
        faults.append("too short to say whether anything grows: nothing came after the warm-up")
    return [*faults, *(_growth(warm, held) if warm else ())]


def _growth(warm: Held, last: Held) -> list[str]:
    bounds = {"resident": MOST_MORE_BYTES, "objects": MOST_MORE_OBJECTS, "descriptors": 0}
    return [
        f"{name} grew from {warm[name]:,} after the warm-up to {last[name]:,}"
        for name, most in bounds.items()
        if last[name] - warm[name] > most
    ]


def _show(answered: int, held: Held) -> None:
    kinds = ", ".join(f"{count} {kind}" for kind, count in held["of_exchanges"].items())
    print(
        f"{answered:>10,} requests {held['resident'] / 1e6:>8.1f} MB {held['objects']:>9,} objects "
        f"{held['descriptors']:>4} files; {kinds}",
        flush=True,
    )


async def go(given: argparse.Namespace) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="headrace-soak-") as folder:
        async with WAYS[given.through](Path(folder), given.answer, given.connections) as way:
            return await soak(way, given.requests, given.seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--through", default="envoy", choices=WAYS)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=math.inf, help="by default as long as it takes")
    parser.add_argument("--answer", default="router", choices=ANSWERS)
    parser.add_argument("--connections", type=int, default=64)
    # Not by uvloop, which forks to start programs: with gRPC's threads in this process, now and then one crashes.
    faults = asyncio.run(go(parser.parse_args()))
    print("\n".join(faults) or "nothing leaked, no stream stayed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
