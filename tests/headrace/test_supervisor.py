"""Parts as child processes: real ones, started again when they die and never left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controlplane import child
from controlplane.errors import UnavailableError
from headrace.supervisor import (
    LONGEST_RESTART_SECONDS,
    MOST_UNANSWERED,
    Part,
    PartFailedError,
    Supervisor,
    program,
)
from support.processes import is_running
from support.waiting import until

SLEEPER = ["sleep", "600"]
SAYS_WHEN_IT_ENDS = """
import signal, sys

def end(*_):
    print(sys.argv[1], flush=True)
    sys.exit()

signal.signal(signal.SIGTERM, end)
print("up", flush=True)
signal.pause()
"""


class Sleeps:
    """A sleep that takes no time and keeps how long it should have been; ends the test's waiting after `enough`."""

    def __init__(self, enough: int) -> None:
        self.seconds: list[float] = []
        self.done = asyncio.Event()
        self._enough = enough

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if len(self.seconds) >= self._enough:
            self.done.set()
            await asyncio.Event().wait()


@asynccontextmanager
async def supervising(sleeps: Sleeps | None = None, clock: float | None = None) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor((lambda: clock) if clock is not None else time.monotonic, sleeps or asyncio.sleep)
    async with supervisor:
        yield supervisor


async def test_parts_end_in_the_reverse_order_of_their_start(tmp_path: Path) -> None:
    log = tmp_path / "ends"
    async with supervising() as supervisor:
        for number in range(3):
            await supervisor.add(program(str(number), [sys.executable, "-c", SAYS_WHEN_IT_ENDS, str(number)], log=log))
        supervisor.settled()
        await until(lambda: log.read_text().count("up") == 3)
    assert log.read_text().split("\n")[3:] == ["2", "1", "0", ""]


async def test_a_part_that_dies_before_the_system_is_up_is_named_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    script = "for n in $(seq 100); do echo line $n; done; echo 'cannot listen on 1.2.3.4:5'; exit 3"
    async with supervising() as supervisor:
        await supervisor.add(program("bystander", SLEEPER, log=None))
        await supervisor.add(program("filter-0", ["sh", "-c", script], log=log))
        with pytest.raises(PartFailedError) as failed:
            await supervisor.failure()
        with pytest.raises(PartFailedError):
            supervisor.settled()
        bystander = supervisor.pid("bystander")
    text = str(failed.value)
    assert text.startswith("filter-0 ended with status 3 while starting\n")
    assert "cannot listen on 1.2.3.4:5" in text
    assert "line 100" in text
    assert "line 50" not in text
    assert str(log) in text
    assert not is_running(bystander)


async def test_a_part_that_is_killed_while_starting_is_named_with_the_signal() -> None:
    async with supervising() as supervisor:
        await supervisor.add(program("engine", SLEEPER, log=None))
        os.kill(supervisor.pid("engine"), signal.SIGKILL)
        with pytest.raises(PartFailedError, match="engine was ended by SIGKILL while starting"):
            await supervisor.failure()


async def test_a_part_that_dies_later_is_started_again() -> None:
    async with supervising() as supervisor:
        await supervisor.add(program("sleeper", SLEEPER, log=None))
        supervisor.settled()
        first = supervisor.pid("sleeper")
        os.kill(first, signal.SIGKILL)
        await until(lambda: supervisor.pid("sleeper") != first)
        second = supervisor.pid("sleeper")
        assert is_running(second)
    assert not is_running(second)


async def test_one_that_dies_again_and_again_is_started_ever_later() -> None:
    sleeps = Sleeps(enough=8)
    async with supervising(sleeps, clock=0.0) as supervisor:
        await supervisor.add(program("short", ["sh", "-c", "read -r _ < /dev/null; sleep 0.05"], log=None))
        supervisor.settled()
        await asyncio.wait_for(sleeps.done.wait(), 60)
    assert sleeps.seconds == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, LONGEST_RESTART_SECONDS, LONGEST_RESTART_SECONDS]


async def test_one_that_ran_long_is_started_again_soon() -> None:
    sleeps = Sleeps(enough=4)
    ticks = iter(range(0, 100_000, 100))
    supervisor = Supervisor(lambda: float(next(ticks)), sleeps)
    async with supervisor:
        await supervisor.add(program("short", ["sleep", "0.05"], log=None))
        supervisor.settled()
        await asyncio.wait_for(sleeps.done.wait(), 60)
    assert sleeps.seconds == [0.2] * 4


async def test_one_that_cannot_be_started_again_is_tried_on_and_hinders_no_other() -> None:
    sleeps = Sleeps(enough=4)
    starts = 0

    async def start() -> Process:
        nonlocal starts
        starts += 1
        if starts in {2, 3}:
            raise UnavailableError("etcd does not start")
        return await child.start(SLEEPER)

    async with supervising(sleeps) as supervisor:
        await supervisor.add(program("first", SLEEPER, log=None))
        await supervisor.add(Part("stubborn", start))
        supervisor.settled()
        killed = supervisor.pid("stubborn")
        os.kill(killed, signal.SIGKILL)
        await until(lambda: supervisor.pid("stubborn") != killed)
        assert starts == 4
        pids = [supervisor.pid("first"), supervisor.pid("stubborn")]
    assert sleeps.seconds == [0.2, 0.4, 0.8]
    assert not any(is_running(pid) for pid in pids)


async def test_parts_end_also_when_one_waits_to_be_started_again() -> None:
    sleeps = Sleeps(enough=1)
    async with supervising(sleeps) as supervisor:
        await supervisor.add(program("first", SLEEPER, log=None))
        await supervisor.add(program("dead", ["true"], log=None))
        supervisor.settled()
        await asyncio.wait_for(sleeps.done.wait(), 60)
        first = supervisor.pid("first")
    assert not is_running(first)


# --- parts that hang -----------------------------------------------------------------------------------------------


class Answers:
    """Gives these answers in turn, and the last one from then on."""

    def __init__(self, *answers: bool) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def __call__(self) -> bool:
        self.asked += 1
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


async def _hurry(_: float) -> None:
    await asyncio.sleep(0)


async def test_one_that_hangs_is_killed_and_started_again() -> None:
    answers = Answers(False, False, True, *[False] * MOST_UNANSWERED, True)
    async with Supervisor(time.monotonic, _hurry) as supervisor:
        await supervisor.add(program("sleeper", SLEEPER, log=None, answers=answers))
        hung = supervisor.pid("sleeper")
        os.kill(hung, signal.SIGSTOP)
        supervisor.settled()
        await until(lambda: supervisor.pid("sleeper") != hung)
        assert not is_running(hung)
        again = supervisor.pid("sleeper")
        asked = answers.asked
        await until(lambda: answers.asked > asked + 2 * MOST_UNANSWERED)
        assert supervisor.pid("sleeper") == again


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(Answers(False), id="never answered yet"),
        pytest.param(Answers(*([True] + [False] * (MOST_UNANSWERED - 1)) * 20, True), id="answers now and then"),
    ],
)
async def test_one_is_left_alone_that(answers: Answers) -> None:
    async with Supervisor(time.monotonic, _hurry) as supervisor:
        await supervisor.add(program("sleeper", SLEEPER, log=None, answers=answers))
        supervisor.settled()
        first = supervisor.pid("sleeper")
        await until(lambda: answers.asked > 20 * MOST_UNANSWERED)
        assert supervisor.pid("sleeper") == first


async def test_one_that_dies_while_it_is_asked_is_started_again() -> None:
    asked = asyncio.Event()

    async def answers() -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    async with supervising() as supervisor:
        await supervisor.add(program("sleeper", SLEEPER, log=None, answers=answers))
        supervisor.settled()
        await asked.wait()
        first = supervisor.pid("sleeper")
        os.kill(first, signal.SIGKILL)
        await until(lambda: supervisor.pid("sleeper") != first)
