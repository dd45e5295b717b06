"""One value that others wait on."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from controlplane.latest import Latest


async def test_next_waits_for_a_value_that_is_put_later() -> None:
    latest = Latest(1)
    waiting = asyncio.ensure_future(latest.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    latest.put(2)
    assert await waiting == 2
    assert latest.value == 2


async def test_changes_begin_with_the_value_there_is_and_pass_over_none() -> None:
    latest = Latest[str | None](None)
    async with aclosing(latest.changes()) as changes:
        first = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        assert not first.done()
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
    await asyncio.sleep(0)
    latest.put(1)
    assert await asyncio.gather(*waiting) == [1, 1, 1]
