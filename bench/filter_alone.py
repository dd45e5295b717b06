"""A filter worker that needs nobody: it answers by a constant, or by the router with a table of its own.

    python bench/filter_alone.py {h2,grpc} {constant,router} ADDRESS [PROFILE]

A constant leaves the transport; the router decides as ever. Ends at SIGTERM, and then writes PROFILE for pstats. At
SIGUSR1 it prints as a line of JSON what it holds, for those who look for leaks.
"""

from __future__ import annotations

import asyncio
import cProfile
import gc
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import uvloop
from policy import _pool
from prometheus_client import CollectorRegistry

from controlplane.model import FormatTier, HttpRequest, Pool
from controlplane.policy.settings import Policy
from controlplane.policy.table import compile_table
from ext_proc.answer import Answer, Route
from ext_proc.credits import Credits
from ext_proc.debts import MemoryDebts
from ext_proc.exchange import Exchange, TooLarge
from ext_proc.http2.grpc import Call
from ext_proc.http2.stream import Stream
from ext_proc.http2_transport import Http2Transport
from ext_proc.keys import NO_KEYS
from ext_proc.limits import RateLimits
from ext_proc.metrics import FilterMetrics
from ext_proc.pins import MemoryPins
from ext_proc.router import Router
from ext_proc.transport import GrpcAioTransport, NewTransport
from ext_proc.waiting import Extend, Line
from headrace.allocation import set_for_bodies

TRANSPORTS: dict[str, NewTransport] = {"h2": Http2Transport, "grpc": GrpcAioTransport}
ANSWERS = ("constant", "router")
MAX_BODY = 16 << 20
READY = "ready"
# One of each belongs to an exchange: none may stay once the exchange has ended.
_OF_EXCHANGES = (Stream, Call, Exchange, asyncio.Task)


def argv(transport: str, answer: str, address: str, *profile: str) -> list[str]:
    return [sys.executable, __file__, transport, answer, address, *profile]


def pools() -> list[Pool]:
    """Of the router's table."""
    return [_pool("llama", tier, context) for tier in FormatTier for context in ("short", "long")]


async def _serve(transport: str, answer: str, address: str, profile: str = "") -> None:
    set_for_bodies()
    answering = _constant if answer == "constant" else _router().answer
    served = TRANSPORTS[transport](address, answering, _unused, max_body_bytes=MAX_BODY)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, lambda: print(json.dumps(_held()), flush=True))
    await served.start()
    await served.health.set_ready(True)
    print(READY, flush=True)
    with _profiled(profile) if profile else nullcontext():
        await stop.wait()
    await served.stop(0.0)


def _held() -> dict[str, object]:
    gc.collect()
    objects = gc.get_objects()
    kinds = Counter(type(each) for each in objects)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "resident": pages * os.sysconf("SC_PAGE_SIZE"),
        "objects": len(objects),
        "of_exchanges": {
            kind.__name__: sum(kinds[each] for each in kinds if issubclass(each, kind)) for kind in _OF_EXCHANGES
        },
        "descriptors": len(os.listdir("/proc/self/fd")),
    }


@contextmanager
def _profiled(file: str) -> Iterator[None]:
    with cProfile.Profile() as profile:
        yield
    profile.dump_stats(file)


async def _constant(request: HttpRequest | TooLarge, extend: Extend) -> Answer:
    return Route("llama/full/short/on_demand", {"pool": "llama/full/short/on_demand", "decision": "x" * 400})


def _unused(note: str, tokens: int | None, *, failed: bool) -> None:
    pass


def _router() -> Router:
    table = compile_table("1", pools(), Policy())
    metrics = FilterMetrics(CollectorRegistry())
    line = Line(Credits(time.monotonic), metrics, time.monotonic, max_wait=30.0)
    rates = RateLimits(MemoryDebts(time.monotonic), metrics)
    return Router(lambda: table, MemoryPins(time.monotonic), line, metrics, random.random, rates=rates, keys=NO_KEYS)


if __name__ == "__main__":
    uvloop.run(_serve(*sys.argv[1:]))
