"""A real etcd for a test."""

from __future__ import annotations

import asyncio
import functools
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from controlplane.etcd.client import EtcdClient
from controlplane.etcd.connection import EtcdAccess
from controlplane.etcd.server import EtcdProgram, EtcdServer, find_program, running


class RunningEtcd:
    """A running etcd that a test may kill and bring back."""

    def __init__(self, server: EtcdServer) -> None:
        self.server = server

    @property
    def endpoint(self) -> str:
        return self.server.endpoint

    @property
    def settings(self) -> EtcdAccess:
        return EtcdAccess(endpoints=(self.endpoint,))

    def client(self) -> EtcdClient:
        return EtcdClient(self.settings)

    async def kill(self) -> None:
        """As by kill -9."""
        self.server.process.kill()
        await self.server.process.wait()

    def freeze(self) -> None:
        """It neither answers nor notices that time goes by, as on a stalled disk."""
        self.server.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.server.process.send_signal(signal.SIGCONT)

    def lose_data(self) -> None:
        """Only while it is not running."""
        shutil.rmtree(self.server.data_folder)

    async def start_again(self) -> None:
        """On the same port, with the same data."""
        await self.server.start()


@functools.cache
def found_program() -> EtcdProgram:
    """Found once: asking each candidate for its version takes longer than starting one."""
    return asyncio.run(find_program())


@asynccontextmanager
async def running_etcd(
    *,
    program: EtcdProgram | None = None,
    folder: Path | None = None,
    arguments: Sequence[str] = (),
    scheme: str = "http",
) -> AsyncIterator[RunningEtcd]:
    """An etcd with empty data on a free port; the one on PATH if it is sound, else the wheel's."""
    program = program or await asyncio.to_thread(found_program)
    async with running(program, folder, arguments=arguments, scheme=scheme) as server:
        yield RunningEtcd(server)
