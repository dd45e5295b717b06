"""A million requests through Envoy and our transport: does anything leak, or any stream stay?

    python bench/transport_soak.py [--requests 1000000] [--answer router] [--connections 64] [--seconds 20]

Real Envoy as Headrace configures it, one filter worker, engines and load in C, bodies of 2 KB and now and then of 500,
some answers streamed. It runs in periods of so many seconds until so many requests were answered. Between periods the
worker says what it holds once nothing is under way: memory, objects that Python's collector tracks, calls, exchanges
and tasks, and open files. A tenth of the requests counts as warm-up. Ends with status 1 if a request failed, a stream
stayed, or anything kept growing. It measures no time, so that it can run with low priority (nice).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import envoy_alone
from bodies import LARGE, SMALL, write_bodies
from filter_alone import ANSWERS
from loading import generate

from support.envoy import RunningEnvoy
from support.waiting import until
from xds_server.clusters import EXT_PROC

LARGE_PER_SECOND = 1.0
STREAMS_PER_SECOND = 5.0
# What a stable process still moves by: a few objects in caches, and the allocator's own measure of pages to keep.
MOST_MORE_OBJECTS = 1_000
MOST_MORE_BYTES = 8 << 20


async def soak(requests: int, answer: str, connections: int, seconds: float) -> list[str]:
    """What was wrong; empty if nothing was."""
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="headrace-soak-") as name:
        folder = Path(name)
        bodies = write_bodies(folder / "bodies")
        running = envoy_alone.running(folder, workers=1, transport="h2", answer=answer, tokens=20, gap_ms=10)
        async with running as gateway:
            load = partial(generate, gateway.port, seconds=seconds)
            answered, warm = 0, None
            while answered < requests:
                said = await asyncio.gather(
                    load(bodies[SMALL, False], connections=connections, rate=None, seed=answered),
                    load(bodies[LARGE, False], connections=4, rate=LARGE_PER_SECOND, seed=answered + 1),
                    load(bodies[SMALL, True], connections=16, rate=STREAMS_PER_SECOND, seed=answered + 2),
                )
                for each in said:
                    answered += each["statuses"].get("200", 0)
                    if bad := each["sent"] - each["statuses"].get("200", 0):
                        faults.append(f"{bad} of {each['sent']} requests failed: {each['statuses']}")
                await until(partial(_is_idle, gateway.envoy))
                held = await gateway.held(0)
                _show(answered, held)
                if any(held["of_exchanges"][kind] for kind in ("Call", "Exchange")):
                    faults.append(f"after {answered:,} requests {held['of_exchanges']} stayed")
                if warm is None and answered >= requests / 10:
                    warm = held
            if warm is not None:
                faults += _growth(warm, held)
    return faults


async def _is_idle(envoy: RunningEnvoy) -> bool:
    return await envoy.stat(f"cluster.{EXT_PROC}.upstream_rq_active") == 0


def _growth(warm: dict[str, Any], last: dict[str, Any]) -> list[str]:
    bounds = {"resident": MOST_MORE_BYTES, "objects": MOST_MORE_OBJECTS, "descriptors": 0}
    return [
        f"{name} grew from {warm[name]:,} after the warm-up to {last[name]:,}"
        for name, most in bounds.items()
        if last[name] - warm[name] > most
    ]


def _show(answered: int, held: dict[str, Any]) -> None:
    kinds = ", ".join(f"{count} {kind}" for kind, count in held["of_exchanges"].items())
    print(
        f"{answered:>10,} requests {held['resident'] / 1e6:>8.1f} MB {held['objects']:>9,} objects "
        f"{held['descriptors']:>4} files; {kinds}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--answer", default="router", choices=ANSWERS)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    faults = asyncio.run(soak(given.requests, given.answer, given.connections, given.seconds))
    print("\n".join(faults) or "nothing leaked, no stream stayed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
