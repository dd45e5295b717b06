"""One value that others wait on."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from controlplane.latest import Latest


async def is_not_done(waiting: asyncio.Future[Any]) -> None:
    done, _ = await asyncio.wait({waiting}, timeout=0)
    assert not done


async def test_next_waits_for_a_value_that_is_put_later() -> None:
    latest = Latest(1)
    waiting = asyncio.ensure_future(latest.next())
    await is_not_done(waiting)
    latest.put(2)
    assert await waiting == 2
    assert latest.value == 2


async def test_next_counts_from_its_call_whenever_it_is_awaited() -> None:
    latest = Latest(1)
    following = latest.next()
    latest.put(2)
    assert await following == 2


async def test_changes_begin_with_the_value_there_is_and_pass_over_none() -> None:
    latest = Latest[str | None](None)
    async with aclosing(latest.changes()) as changes:
        first = asyncio.ensure_future(anext(changes))
        await is_not_done(first)
        latest.put("a")
        assert await first == "a"
    async with aclosing(latest.changes()) as changes:
        assert await anext(changes) == "a"


async def test_a_slow_reader_gets_the_last_value_and_none_twice() -> None:
    latest = Latest[str | None]("a")
    async with aclosing(latest.changes()) as changes:
        assert await anext(changes) == "a"
        latest.put("b")
        latest.put("c")
        assert await anext(changes) == "c"
        later = asyncio.ensure_future(anext(changes))
        latest.put("d")
        assert await later == "d"


async def test_every_reader_is_woken() -> None:
    latest = Latest(0)
    waiting = [asyncio.ensure_future(latest.next()) for _ in range(3)]
    latest.put(1)
    assert await asyncio.gather(*waiting) == [1, 1, 1]
