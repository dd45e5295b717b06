"""Waiting for a condition, in place of sleeping."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import isawaitable
from typing import Any


async def until(condition: Callable[[], Any], timeout: float = 60.0) -> Any:
    """Polls `condition`, a function or coroutine function, until it gives something true, and returns that."""
    last: Any = None
    try:
        async with asyncio.timeout(timeout):
            while True:
                found = condition()
                last = await found if isawaitable(found) else found
                if last:
                    return last
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"{condition} was still {last!r} after {timeout:g} s") from None
