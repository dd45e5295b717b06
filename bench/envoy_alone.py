"""Envoy, configured as Headrace does it, before filter workers that need nobody and two engines: no control plane's
work, no etcd and no ledger take part in what is measured."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bodies import MODEL
from building import built
from filter_alone import READY, argv, pools
from peers.contestant import answering, free_port, program

import headrace.supervisor
from headrace.supervisor import Supervisor
from support.envoy import RunningEnvoy, running_envoy
from support.gateway import Notes, serving
from support.waiting import until
from xds_server.assembly import gateway_snapshot
from xds_server.bootstrap import render_bootstrap
from xds_server.gateway import Endpoint, Gateway, PoolCluster
from xds_server.server import DiscoveryService


@dataclass(frozen=True, slots=True)
class EnvoyAlone:
    """`port` takes chat requests; workers are parts of the supervisor named `filter-0` and so on, and start again."""

    port: int
    envoy: RunningEnvoy
    supervisor: Supervisor
    folder: Path

    async def held(self, worker: int) -> dict[str, Any]:
        """What a worker says that it holds; see `filter_alone`."""
        return await held_by(self.supervisor.pid(f"filter-{worker}"), _log(self.folder, worker))


@asynccontextmanager
async def running(
    folder: Path, *, workers: int, transport: str, answer: str, tokens: int, gap_ms: float
) -> AsyncIterator[EnvoyAlone]:
    """`tokens` are in each streamed answer, `gap_ms` apart."""
    async with AsyncExitStack() as stack:
        endpoints = []
        for number in range(2):
            port = free_port()
            words: list[str | Path] = [built("engine"), str(port), MODEL, str(tokens), str(gap_ms)]
            await stack.enter_async_context(program(words, port, f"engine-{number}", folder))
            endpoints.append(Endpoint("127.0.0.1", port))
        supervisor = await stack.enter_async_context(Supervisor(time.monotonic))
        sockets = tuple(f"unix:{folder}/filter-{number}.sock" for number in range(workers))
        for number, socket in enumerate(sockets):
            part = headrace.supervisor.program(
                f"filter-{number}", argv(transport, answer, socket), log=_log(folder, number)
            )
            await supervisor.add(part)
        await until(lambda: all(READY in _log(folder, number).read_text() for number in range(workers)))
        supervisor.settled()
        service = DiscoveryService(Notes(), "bench")
        xds_port = await stack.enter_async_context(serving(service))
        gateway = Gateway(ext_proc=sockets, access_log=None, host="127.0.0.1", port=0)
        service.publish(gateway_snapshot(gateway, [PoolCluster(pool.name, tuple(endpoints)) for pool in pools()]))
        bootstrap = render_bootstrap(
            node_id="bench", cluster="bench", xds_host="127.0.0.1", xds_port=xds_port, admin_port=0
        )
        envoy = await stack.enter_async_context(running_envoy(bootstrap, concurrency=os.cpu_count() or 1))
        port = int((await envoy.gateway()).rpartition(":")[2])
        await answering(port, lambda: envoy.process.returncode)
        yield EnvoyAlone(port, envoy, supervisor, folder)


async def held_by(worker: int, log: Path) -> dict[str, Any]:
    """What the worker with this process id says in its log that it holds."""
    known = len(_lines(log))
    os.kill(worker, signal.SIGUSR1)
    said = await until(lambda: _lines(log)[known:])
    return dict(json.loads(said[0]))


def _lines(log: Path) -> list[str]:
    """Those that are whole."""
    return log.read_text().split("\n")[:-1]


def _log(folder: Path, worker: int) -> Path:
    return folder / f"filter-{worker}.log"
