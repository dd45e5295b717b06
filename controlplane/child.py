"""Child processes that do not outlive their parent, and how to stop one.

It starts and stops; it neither restarts nor watches: that is the owner's to decide.

On Linux the kernel itself signals a child when its parent dies, even by kill -9. It does so when the *thread* that
started the child ends, so call `start` from an event loop that runs as long as the children should: the main thread's.
Elsewhere a child outlives a parent that was killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Protocol

# Asks the kernel for the signal and then becomes the program. A `preexec_fn` would do the same without this start of
# an interpreter (some 20 ms), but runs Python between fork and exec, which can deadlock in a process that has threads
# already, as one that uses gRPC has. The check of the parent closes the gap in which it may have died unnoticed.
_LAUNCHER = """
import ctypes, os, sys
signal, parent = int(sys.argv[1]), int(sys.argv[2])
if ctypes.CDLL(None, use_errno=True).prctl(1, signal, 0, 0, 0):
    sys.exit("prctl(PR_SET_PDEATHSIG): " + os.strerror(ctypes.get_errno()))
if os.getppid() != parent:
    sys.exit(1)
try:
    os.execvp(sys.argv[3], sys.argv[3:])
except OSError as error:
    sys.exit(f"{sys.argv[3]}: {error.strerror}")
"""


class Child(Protocol):
    """What can be done with a child, whoever started it: an asyncio.subprocess.Process is one."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


async def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    stdin: int = DEVNULL,
    stdout: int | IO[bytes] | None = None,
    on_parent_death: signal.Signals = signal.SIGTERM,
) -> Process:
    """Starts a program, with its standard error going where `stdout` goes and, by default, nothing to read.

    It gets a session of its own, so that Ctrl-C in a terminal reaches only the parent, which then stops its children
    in order. `env` is the whole environment, by default the parent's.
    """
    if sys.platform == "linux":
        # -I and -S keep the launcher quick and deaf to PYTHON* variables, which are for the program.
        launcher = (sys.executable, "-I", "-S", "-c", _LAUNCHER, str(int(on_parent_death)), str(os.getpid()))
    else:
        launcher = ()
    return await asyncio.create_subprocess_exec(
        *launcher, *argv, env=env, stdin=stdin, stdout=stdout, stderr=STDOUT, start_new_session=True
    )


async def stop(process: Child, grace: float) -> int:
    """Stops a child that `start` made: SIGTERM, and after `grace` seconds SIGKILL to it and its own children.

    Returns its exit status, negative for a signal. A child that has ended already is fine.
    """
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(grace):
                return await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return await process.wait()
