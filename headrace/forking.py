"""Asks the fork server for workers, and looks after them as after any child."""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from controlplane import child
from controlplane.child import Child
from headrace.fork_server import READY
from headrace.supervisor import Part

_log = logging.getLogger(__name__)

IMPORT_SECONDS = 60.0
FORK_SECONDS = 10.0
_PR_SET_CHILD_SUBREAPER = 36


class ForkServer:
    """`part` runs it. Only on Linux: elsewhere a process cannot adopt another, and each part is started by itself.
    To be left once the part has been stopped.

    So many seconds are waited for the server to be ready: a worker that was started by itself would take as long.
    """

    def __init__(self, log: Path | None, import_seconds: float = IMPORT_SECONDS) -> None:
        self.part = Part("fork-server", self._start, log)
        self._process: Process | None = None
        self._socket: socket.socket | None = None
        self._import_seconds = import_seconds
        self._is_ready = False
        self._one_at_a_time = asyncio.Lock()

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._give_up()

    def forked(self, part: Part, name: str, argv: Sequence[str]) -> Part:
        """The part, started by a fork, or as it would be otherwise if the server makes none."""

        async def start() -> Child:
            try:
                return await self._fork(name, argv, part.log)
            except OSError as error:
                if self._process is not None:
                    _log.warning("not forked, started anew part=%s fork_server=%s", part.name, str(error) or "too slow")
                return await part.start()

        return replace(part, start=start)

    async def _start(self) -> Process:
        """In place of a server that has ended."""
        self._give_up()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        argv = (sys.executable, "-m", "headrace.fork_server")
        with theirs, self.part.log.open("ab") if self.part.log else nullcontext() as output:
            self._process = await child.start(argv, stdin=theirs.fileno(), stdout=output)
        self._socket = ours
        return self._process

    async def _fork(self, name: str, argv: Sequence[str], log: Path | None) -> Child:
        """A new process that is called `name` and runs the command `headrace` with these words.

        Raises OSError, of which TimeoutError is one, when the server does not make it, and then none is made later.
        """
        async with self._one_at_a_time:
            if self._socket is None:
                raise ConnectionError("it does not run")
            try:
                if not self._is_ready:
                    async with asyncio.timeout(self._import_seconds):
                        self._is_ready = await _told(self._socket) == READY
                async with asyncio.timeout(FORK_SECONDS):
                    return Forked(await _asked(self._socket, [name, str(log) if log else None, *argv]))
            except (OSError, asyncio.CancelledError):
                self._give_up()
                raise

    def _give_up(self) -> None:
        """What was asked and not answered is not done any more; the supervisor starts another server."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self._is_ready = False
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()


async def _asked(server: socket.socket, words: list[str | None]) -> int:
    """The process id that the server answers with."""
    loop = asyncio.get_running_loop()
    with _adopting():
        await loop.sock_sendall(server, json.dumps(words).encode())
        return int(await _told(server))


async def _told(server: socket.socket) -> bytes:
    told = await asyncio.get_running_loop().sock_recv(server, 32)
    if not told:
        raise ConnectionError("it has ended")
    return told


class Forked:
    """A Child that we did not start ourselves. To be made on the event loop."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = loop.create_future()
        self._descriptor = os.pidfd_open(pid)
        loop.add_reader(self._descriptor, self._reap)

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._ended.set_result(self.returncode)


@contextmanager
def _adopting() -> Iterator[None]:
    """Meanwhile a process whose parent ends becomes our child, if it descends from us."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0)
