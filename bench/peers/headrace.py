"""Headrace as `headrace up` runs it, all of it on: policy, ledger, feedback; sessions in memory; two agents.

One engine is taken for a full one and one for a quantized one, so that each request is classified and led by it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from peers.contestant import Contestant, Engines, Running, answering
from support.processes import descendants
from support.system import running_system

# All but the ports is as by default.
CONFIG = """
gateway: {address: "127.0.0.1:0"}
control_plane: {grpc: "127.0.0.1:0", xds: "127.0.0.1:0", metrics: "127.0.0.1:0"}
ext_proc: {listen: "127.0.0.1:0", health: "127.0.0.1:0", metrics: "127.0.0.1:0"%s}
envoy: {admin: "127.0.0.1:0"}
"""
# Engines that take every request at once: what is measured is the way to them.
SHAPE = ("--max-context", "1048576", "--max-sequences", "65536", "--kv-cache-tokens", "1000000000")
FORMATS = ("bf16", "int4-awq")

# By a word of the command line, what a process does.
_ROLES = {"ext-proc": "filter", "controlplane": "control plane", "--initial-cluster": "etcd", "--config-yaml": "envoy"}


def _starting(transport: str) -> Callable[[Engines, Path], AbstractAsyncContextManager[Running]]:
    @asynccontextmanager
    async def start(engines: Engines, _: Path) -> AsyncIterator[Running]:
        shape = ("--model", engines.model, *SHAPE)
        full, quantized = FORMATS
        async with (
            running_system(CONFIG % f", transport: {transport}") as system,
            system.node(engines.urls[0], full, "--format", full, *shape) as first,
            system.node(engines.urls[1], quantized, "--format", quantized, *shape) as second,
        ):
            port = int(system.addresses["gateway"].rpartition(":")[2])
            await system.until_pools(*(f"{engines.model}/{tier}/long/on_demand" for tier in ("full", "quantized")))
            await answering(port, lambda: system.process.returncode)
            agents = (first.pid, second.pid)
            yield Running(port, lambda: _processes(system.process.pid) | {"agents": agents})

    return start


def _processes(root: int) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {"headrace up": (root,)}
    for pid, argv in descendants(root).items():
        role = next((role for word, role in _ROLES.items() if any(word in each for each in argv)), "headrace up")
        found[role] = (*found.get(role, ()), pid)
    return found


HEADRACE = Contestant("headrace", "Headrace", _starting("h2"))
HEADRACE_GRPC_AIO = Contestant("headrace-grpc", "Headrace on grpc.aio", _starting("grpc"))
