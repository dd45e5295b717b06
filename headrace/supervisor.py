"""Runs the parts of a system as child processes, starts those again that die or hang, and stops them in order."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane import child
from controlplane.child import Child
from controlplane.errors import HeadraceError

_log = logging.getLogger(__name__)

FIRST_RESTART_SECONDS = 0.2
LONGEST_RESTART_SECONDS = 10.0
# A part that ran this long had started well: its next death is a new one.
SETTLED_SECONDS = 30.0
STOP_SECONDS = 10.0
LOG_LINES_SHOWN = 15

LOOK_SECONDS = 1.0
# Looks, not seconds: if this process was stopped itself, or had no time, its children need not have hung.
MOST_UNANSWERED = 4


class PartFailedError(HeadraceError):
    """A part ended before the system was up."""


@dataclass(frozen=True, slots=True)
class Part:
    """One child process: `start` starts it, and starts it again when it has died. `log` is where its output goes.

    `answers` asks it for a sign of life, gives up after a time of its own, and raises nothing. A part that has given
    one and then does not for MOST_UNANSWERED times is killed: of one that hangs this makes one that died.
    """

    name: str
    start: Callable[[], Awaitable[Child]]
    log: Path | None = None
    stop_seconds: float = STOP_SECONDS
    answers: Callable[[], Awaitable[bool]] | None = None


def program(
    name: str,
    argv: Sequence[str],
    *,
    log: Path | None,
    env: Mapping[str, str] | None = None,
    answers: Callable[[], Awaitable[bool]] | None = None,
) -> Part:
    """A part that is one command; without `log` its output goes to ours."""

    async def start() -> Child:
        if log is None:
            return await child.start(argv, env=env)
        with log.open("ab") as output:
            return await child.start(argv, env=env, stdout=output)

    return Part(name, start, log, answers=answers)


class Supervisor:
    """Parts are started one by one with `add`, and stopped in the reverse order when the context ends.

    Until `settled` is called the death of a part is an error that `failure` raises; after it, the part is started again
    with a growing delay. `clock` is monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._clock = clock
        self._sleep = sleep
        self._parts: list[tuple[Part, asyncio.Task[None]]] = []
        self._processes: dict[str, Child] = {}
        self._is_settled = False
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Supervisor:
        return self

    async def __aexit__(self, *_: object) -> None:
        for part, task in reversed(self._parts):
            task.cancel()
            await asyncio.wait((task,))
            await child.stop(self._processes[part.name], part.stop_seconds)
        if self._failed.done():
            self._failed.exception()  # seen, whether or not somebody waited for it

    def pid(self, name: str) -> int:
        """The process id of a part that runs now."""
        return self._processes[name].pid

    async def add(self, part: Part) -> None:
        """Starts a part. Raises what its start raises."""
        self._processes[part.name] = await part.start()
        self._parts.append((part, asyncio.create_task(self._keep_running(part), name=f"part {part.name}")))

    def settled(self) -> None:
        """The system is up: from now on parts that die are started again. Raises PartFailedError if one has died."""
        if self._failed.done():
            self._failed.result()
        self._is_settled = True

    async def failure(self) -> None:
        """Waits until a part dies before the system is settled, and raises PartFailedError then."""
        await asyncio.shield(self._failed)

    async def _keep_running(self, part: Part) -> None:
        delay = FIRST_RESTART_SECONDS
        started = self._clock()
        while True:
            status = await self._end_of(part)
            if not self._is_settled:
                if not self._failed.done():
                    self._failed.set_exception(PartFailedError(_obituary(part, status)))
                return
            _log.error("part died part=%s status=%s seconds=%.1f", part.name, status, self._clock() - started)
            if self._clock() - started > SETTLED_SECONDS:
                delay = FIRST_RESTART_SECONDS
            started = await self._start_again(part, delay)
            delay = min(delay * 2, LONGEST_RESTART_SECONDS)

    async def _end_of(self, part: Part) -> int:
        """The exit status of the part's process, once it has ended by itself or was killed because it hung."""
        process = self._processes[part.name]
        if part.answers is None:
            return await process.wait()
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._kill_when_hung(part.name, part.answers, process))
            status = await process.wait()
            watching.cancel()
        return status

    async def _kill_when_hung(self, name: str, answers: Callable[[], Awaitable[bool]], process: Child) -> None:
        while not await answers():  # it starts
            await self._sleep(LOOK_SECONDS)
        unanswered = 0
        while unanswered < MOST_UNANSWERED:
            await self._sleep(LOOK_SECONDS)
            unanswered = 0 if await answers() else unanswered + 1
        _log.error("part hangs and is killed part=%s unanswered=%d", name, unanswered)
        if process.returncode is None:
            process.kill()

    async def _start_again(self, part: Part, delay: float) -> float:
        """Tries until the part has been started; returns when that was."""
        while True:
            await self._sleep(delay)
            started = self._clock()
            try:
                self._processes[part.name] = await part.start()
            except (HeadraceError, OSError) as error:
                _log.error("part cannot be started again part=%s fault=%s", part.name, error)
                delay = min(delay * 2, LONGEST_RESTART_SECONDS)
            else:
                _log.info("part started again part=%s delay=%.1f", part.name, delay)
                return started


def _obituary(part: Part, status: int) -> str:
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    lines = [f"{part.name} {how} while starting"]
    if part.log is not None:
        tail = part.log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        lines += [f"  {line}" for line in tail]
        lines.append(f"  (whole log: {part.log})")
    return "\n".join(lines)
