"""SIGINT and SIGTERM ask to end; what was begun is cleaned up."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from headrace.signals import run_until_stopped, stop_requested


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_work_is_cancelled_by_a_signal_and_waited_for(number: signal.Signals) -> None:
    said = []

    async def work() -> None:
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            said.append("cleaned up")

    await asyncio.wait_for(run_until_stopped(work(), stopping=lambda: said.append("stopping")), 60)
    assert said == ["stopping", "cleaned up"]


async def test_work_that_ends_by_itself_ends_all_and_its_error_is_raised() -> None:
    async def end() -> None: ...

    async def fail() -> None:
        raise OSError("taken")

    await run_until_stopped(end())
    with pytest.raises(OSError, match="taken"):
        await run_until_stopped(fail())


async def test_an_error_while_cleaning_up_is_raised() -> None:
    async def work() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("cannot clean up")

    with pytest.raises(OSError, match="cannot clean up"):
        await run_until_stopped(work())


async def test_cancelling_it_from_outside_cancels_the_work() -> None:
    ended = asyncio.Event()
    began = asyncio.Event()

    async def work() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    running = asyncio.ensure_future(run_until_stopped(work()))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()


async def test_the_former_signal_handling_is_back_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    async with stop_requested() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stop.wait(), 60)
    assert signal.getsignal(signal.SIGTERM) == before
