"""Workers that the fork server makes: real processes, and children of this one."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace.forking import Forked, ForkServer
from headrace.supervisor import Part, Supervisor, program
from support.processes import descendants, is_running
from support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no fork server")

CONFIG = 'ext_proc: {listen: "127.0.0.1:0", health: "127.0.0.1:0", metrics: "127.0.0.1:0"}'


@asynccontextmanager
async def forking(folder: Path, import_seconds: float = 60.0) -> AsyncIterator[tuple[Supervisor, Part]]:
    """A supervisor with a fork server, and a part that is a filter worker."""
    config = folder / "headrace.yaml"
    config.write_text(CONFIG)
    command = ("ext-proc", "--config", str(config))
    server = ForkServer(folder / "fork-server.log", import_seconds)
    with server:
        async with Supervisor(time.monotonic) as supervisor:
            await supervisor.add(server.part)
            supervisor.settled()
            log = folder / "filter-0.log"
            unforked = program("filter-0", (sys.executable, "-m", "headrace", *command), log=log)
            yield supervisor, server.forked(unforked, "ext-proc 0", command)


def serves(folder: Path) -> bool:
    log = folder / "filter-0.log"
    return log.exists() and "serving" in log.read_text()


async def test_a_forked_worker_is_our_child_with_a_name_and_a_log_of_its_own(tmp_path: Path) -> None:
    async with forking(tmp_path) as (supervisor, part):
        await supervisor.add(part)
        pid = supervisor.pid("filter-0")
        assert descendants(os.getpid())[pid][:2] == ["ext-proc", "0"]
        assert os.getsid(pid) == pid
        await until(lambda: serves(tmp_path))
    assert not is_running(pid)


async def test_how_a_forked_worker_ended_is_known(tmp_path: Path) -> None:
    async with forking(tmp_path) as (_, part):
        for number in (signal.SIGTERM, signal.SIGKILL):
            worker = await part.start()
            assert isinstance(worker, Forked)
            assert worker.returncode is None
            os.kill(worker.pid, number)
            assert await worker.wait() == worker.returncode == -number


async def test_a_worker_outlives_its_fork_server_which_is_started_again(tmp_path: Path) -> None:
    async with forking(tmp_path) as (supervisor, part):
        await supervisor.add(part)
        worker, server = supervisor.pid("filter-0"), supervisor.pid("fork-server")
        await until(lambda: serves(tmp_path))
        os.kill(server, signal.SIGKILL)
        await until(lambda: supervisor.pid("fork-server") != server)
        assert is_running(worker)
        os.kill(worker, signal.SIGKILL)
        await until(lambda: supervisor.pid("filter-0") != worker)
        again = supervisor.pid("filter-0")
        assert descendants(os.getpid())[again][:2] == ["ext-proc", "0"]


async def test_while_the_fork_server_hangs_workers_start_as_ever_and_it_is_replaced(
    tmp_path: Path,
) -> None:
    async with forking(tmp_path, import_seconds=0.1) as (supervisor, part):
        hung = supervisor.pid("fork-server")
        os.kill(hung, signal.SIGSTOP)
        worker = await part.start()
        assert isinstance(worker, asyncio.subprocess.Process)
        await until(lambda: supervisor.pid("fork-server") != hung)
        await until(lambda: serves(tmp_path))
        worker.kill()
        await worker.wait()
