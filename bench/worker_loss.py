"""What is lost when a filter worker dies or hangs while requests come and long answers are streamed.

    python bench/worker_loss.py [--rates 250 500 1000] [--workers 2] [--seconds 8] [--transport h2] [--faults ...]

`headrace up` with several workers. A quarter into the time one worker is killed with SIGKILL, and `headrace up` starts
it again; in the run after that one is stopped with SIGSTOP, and goes on after three quarters of the time. Told are the
requests that failed, the streams that were cut, the longest times that requests took, and how many workers Envoy took
for healthy at the least: where it is none, the machine was too slow for the health checks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import httpx
from bodies import MODEL, SMALL, write_bodies
from building import built
from loading import PATH
from peers.contestant import Engines, answering, free_port, program
from peers.headrace import CONFIG, FORMATS, SHAPE

from support.system import RunningSystem, running_system
from xds_server.clusters import EXT_PROC

# A streamed answer outlasts a run's second half.
TOKENS, GAP_MS = 60, 100.0
STREAMS_PER_SECOND = 10
FAULTS: dict[str, tuple[signal.Signals, ...]] = {
    "nothing": (),
    "SIGKILL": (signal.SIGKILL,),
    "SIGSTOP": (signal.SIGSTOP, signal.SIGCONT),
}
NO_SESSIONS = "policy: {sessions: {headers: [], body_fields: []}}\n"  # several workers share a store, or look for none


async def run(
    system: RunningSystem, signals: Sequence[signal.Signals], rate: float, seconds: float, bodies: Any
) -> str:
    port = int(system.addresses["gateway"].rpartition(":")[2])
    loads = asyncio.gather(
        _load(port, rate, seconds, bodies[SMALL, False], 1),
        _load(port, STREAMS_PER_SECOND, seconds, bodies[SMALL, True], 2),
    )
    healthy = asyncio.create_task(_fewest_healthy(system.addresses["envoy_admin"], loads))
    victim = system.pid_of("ext-proc")
    await asyncio.sleep(seconds / 4)
    for number in signals:
        os.kill(victim, number)
        await asyncio.sleep(seconds / 2)
    answers, streams = await loads
    whole = sorted(answers["whole"])
    return (
        f"{answers['sent']} requests, {answers['failed'] + answers['unanswered']} failed {answers['statuses']}, "
        f"{streams['sent']} streams, {streams['failed'] + streams['unanswered']} cut {streams['statuses']}; "
        f"ms P50 {_at(whole, 0.5):.1f}, P99 {_at(whole, 0.99):.1f}, longest {_at(whole, 1.0):.0f}; "
        f"healthy workers at least {await healthy}"
    )


async def _fewest_healthy(envoy_admin: str, loads: asyncio.Future[Any]) -> int:
    """As Envoy's statistics say every tenth of a second until the load has ended."""
    name = f"cluster.{EXT_PROC}.membership_healthy"
    fewest = sys.maxsize
    async with httpx.AsyncClient(base_url=f"http://{envoy_admin}", trust_env=False) as admin:
        while not loads.done():
            text = (await admin.get("/stats", params={"filter": f"^{name}$"})).text
            fewest = min(fewest, int(text.rpartition(":")[2]))
            await asyncio.sleep(0.1)
    return fewest


def _at(ordered: Sequence[int], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1000 if ordered else float("nan")


async def _load(port: int, rate: float, seconds: float, bodies: Sequence[Path], seed: int) -> dict[str, Any]:
    words = (port, PATH, seconds, 0, 32, rate, seed, *bodies)
    process = await asyncio.create_subprocess_exec(built("load"), *map(str, words), stdout=PIPE)
    out, _ = await process.communicate()
    said: dict[str, Any] = json.loads(out)
    return said


async def measure(rates: Sequence[float], workers: int, seconds: float, transport: str, faults: Sequence[str]) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        bodies = write_bodies(folder / "bodies")
        ports = []
        for number in range(2):
            ports.append(free_port())
            argv: list[str | Path] = [built("engine"), str(ports[-1]), MODEL, str(TOKENS), str(GAP_MS)]
            await stack.enter_async_context(program(argv, ports[-1], f"engine-{number}", folder))
        engines = Engines((ports[0], ports[1]), MODEL)
        config = CONFIG % f", workers: {workers}, transport: {transport}" + NO_SESSIONS
        system = await stack.enter_async_context(running_system(config))
        for url, format_ in zip(engines.urls, FORMATS, strict=True):
            shape = ("--model", MODEL, "--format", format_, *SHAPE)
            await stack.enter_async_context(system.node(url, format_, *shape))
        await system.until_pools(*(f"{MODEL}/{tier}/long/on_demand" for tier in ("full", "quantized")))
        await answering(int(system.addresses["gateway"].rpartition(":")[2]), lambda: system.process.returncode)
        for rate in rates:
            for fault in faults:
                said = await run(system, FAULTS[fault], rate, seconds, bodies)
                print(f"{rate:g}/s, {workers} workers, {fault}: {said}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=float, nargs="*", default=[250.0, 500.0, 1000.0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--transport", default="h2", choices=("h2", "grpc"))
    parser.add_argument("--faults", nargs="*", default=list(FAULTS), choices=list(FAULTS))
    given = parser.parse_args()
    asyncio.run(measure(given.rates, given.workers, given.seconds, given.transport, given.faults))


if __name__ == "__main__":
    main()
