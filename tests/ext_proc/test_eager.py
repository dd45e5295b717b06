"""A coroutine that is begun at once does all that it would do as a task."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from ext_proc.eager import begin

VALUE = ContextVar("VALUE", default="outside")


async def test_what_never_waits_is_done_at_once() -> None:
    done = []

    async def work() -> None:
        done.append(True)

    assert begin(work()) is None
    assert done


async def test_what_waits_goes_on_as_a_task_and_keeps_its_context() -> None:
    seen: list[object] = []
    first: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        VALUE.set("inside")
        seen.append(await first)
        await asyncio.sleep(0)
        async with asyncio.timeout(5.0):  # wants a task
            await asyncio.sleep(0)
        seen.append(VALUE.get())

    task = begin(work())
    assert task is not None
    assert VALUE.get() == "outside"
    first.set_result(7)
    await task
    assert seen == [7, "inside"]


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_a_cancelled_one_is_told_of_it_where_it_waits(turns: int) -> None:
    told = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append(True)
            raise

    task = begin(work())
    assert task is not None
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told


async def test_an_error_is_raised_here_before_it_waits_and_by_the_task_after() -> None:
    async def at_once() -> None:
        raise ZeroDivisionError

    async def later() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        begin(at_once())
    task = begin(later())
    assert task is not None
    with pytest.raises(ZeroDivisionError):
        await task
