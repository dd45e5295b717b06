"""What is lost when a filter worker dies or hangs while requests come and long answers are streamed.

    python bench/worker_loss.py [--bare] [--rates 250 500 1000] [--workers 2] [--seconds 8] [--faults ...]

`headrace up` with several workers; or, `--bare`, only Envoy and workers that decide by a constant, where a machine
cannot carry the whole at such rates. Each rate is first run without a fault: what fails then is not lost to one, the
machine is too slow. A quarter into the time of the next run one worker is killed with SIGKILL, and started again; in
the run after that one is stopped with SIGSTOP, and goes on after three quarters of the time. Told are the
requests that failed, the streams that were cut, the longest times that requests took, how many workers Envoy took
for healthy at the least, how busy the processors were, and with what that is not ours.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import envoy_alone
import httpx
import machine
from bodies import LARGE, MIDDLE, MODEL, SMALL, write_bodies
from building import built
from loading import generate
from peers.contestant import Engines, answering, free_port, program
from peers.headrace import CONFIG, FORMATS, SHAPE

from support.processes import descendants
from support.system import running_system
from support.waiting import until
from xds_server.clusters import EXT_PROC

# A streamed answer outlasts a run's second half.
TOKENS, GAP_MS = 60, 100.0
STREAMS_PER_SECOND = 10
FAULTS: dict[str, tuple[signal.Signals, ...]] = {
    "nothing": (),
    "SIGKILL": (signal.SIGKILL,),
    "SIGSTOP": (signal.SIGSTOP, signal.SIGCONT),
}
CALM_SECONDS = 120.0
NO_SESSIONS = "policy: {sessions: {headers: [], body_fields: []}}\n"  # several workers share a store, or look for none


@dataclass(frozen=True, slots=True)
class Target:
    """`port` takes requests, `victim` gives the process id of the worker to be hit."""

    port: int
    envoy_admin: str
    victim: Callable[[], int]


async def run(target: Target, fault: str, rate: float, given: argparse.Namespace, bodies: Any) -> str:
    before = machine.read(_ours())
    load = partial(generate, target.port, seconds=given.seconds, connections=32)
    loads = asyncio.gather(
        load(bodies[given.size, False], rate=rate, seed=1), load(bodies[SMALL, True], rate=STREAMS_PER_SECOND, seed=2)
    )
    healthy = asyncio.create_task(_fewest_healthy(target.envoy_admin, loads))
    victim = target.victim()
    await asyncio.sleep(given.seconds / 4)
    for number in FAULTS[fault]:
        os.kill(victim, number)
        await asyncio.sleep(given.seconds / 2)
    answers, streams = await loads
    after = machine.read(_ours())
    busy = (after.busy - before.busy) / (after.total - before.total)
    whole = sorted(answers["whole"])
    return (
        f"{answers['sent']} requests, {answers['failed'] + answers['unanswered']} failed {answers['statuses']}, "
        f"{streams['sent']} streams, {streams['failed'] + streams['unanswered']} cut {streams['statuses']}; "
        f"ms P50 {_at(whole, 0.5):.1f}, P99 {_at(whole, 0.99):.1f}, longest {_at(whole, 1.0):.0f}; "
        f"healthy workers at least {await healthy}; processors {busy:.0%} busy, "
        f"{machine.spent(before, after).foreign:.0%} with others"
    )


def _ours() -> list[int]:
    return list(descendants(os.getpid()))


async def _calm(envoy_admin: str, workers: int) -> None:
    """Waits until nothing is under way any more and all workers are healthy, so that no run burdens the next."""
    wanted = {f"cluster.{EXT_PROC}.upstream_rq_active": 0, f"cluster.{EXT_PROC}.membership_healthy": workers}
    pattern = "|".join(f"^{name}$" for name in wanted)
    async with httpx.AsyncClient(base_url=envoy_admin, trust_env=False, timeout=60) as admin:

        async def is_calm() -> bool:
            text = (await admin.get("/stats", params={"filter": pattern})).text
            return dict(line.split(": ") for line in text.splitlines()) == {k: str(v) for k, v in wanted.items()}

        await until(is_calm, CALM_SECONDS)


async def _fewest_healthy(envoy_admin: str, loads: asyncio.Future[Any]) -> int:
    """As Envoy's statistics say every tenth of a second until the load has ended."""
    name = f"cluster.{EXT_PROC}.membership_healthy"
    fewest = sys.maxsize
    async with httpx.AsyncClient(base_url=envoy_admin, trust_env=False) as admin:
        while not loads.done():
            text = (await admin.get("/stats", params={"filter": f"^{name}$"})).text
            fewest = min(fewest, int(text.rpartition(":")[2]))
            await asyncio.sleep(0.1)
    return fewest


def _at(ordered: Sequence[int], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1000 if ordered else float("nan")


@asynccontextmanager
async def whole_system(workers: int, transport: str, folder: Path) -> AsyncIterator[Target]:
    """`headrace up`, with an agent for each engine."""
    async with AsyncExitStack() as stack:
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
        port = int(system.addresses["gateway"].rpartition(":")[2])
        await answering(port, lambda: system.process.returncode)
        yield Target(port, f"http://{system.addresses['envoy_admin']}", lambda: system.pid_of("ext-proc"))


@asynccontextmanager
async def bare(workers: int, transport: str, folder: Path) -> AsyncIterator[Target]:
    """Envoy and workers that answer by a constant, which `headrace up`'s supervisor looks after."""
    running = envoy_alone.running(
        folder, workers=workers, transport=transport, answer="constant", tokens=TOKENS, gap_ms=GAP_MS
    )
    async with running as alone:
        yield Target(alone.port, alone.envoy.admin, lambda: alone.supervisor.pid("filter-0"))


async def measure(target: Target, name: str, given: argparse.Namespace, bodies: Any) -> None:
    for rate in given.rates:
        for fault in given.faults:
            await _calm(target.envoy_admin, given.workers)
            said = await run(target, fault, rate, given, bodies)
            print(f"{name}, {rate:g}/s, {given.workers} workers, {fault}: {said}", flush=True)


async def go(given: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
        folder = Path(scratch)
        bodies = write_bodies(folder / "bodies")
        start = bare if given.bare else whole_system
        async with start(given.workers, given.transport, folder) as target:
            await measure(target, "bare" if given.bare else "headrace up", given, bodies)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bare", action="store_true", help="without control plane and router, for higher rates")
    parser.add_argument("--size", default=SMALL, choices=(SMALL, MIDDLE, LARGE), help="of the bodies")
    parser.add_argument("--rates", type=float, nargs="*", default=[250.0, 500.0, 1000.0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--transport", default="h2", choices=("h2", "grpc"))
    parser.add_argument("--faults", nargs="*", default=list(FAULTS), choices=list(FAULTS))
    given = parser.parse_args()
    asyncio.run(go(given))


if __name__ == "__main__":
    main()
