"""One value, replaced whole, that others wait on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Known = TypeVar("Known")


class Latest(Generic[T]):
    """Holds the last value that was put. Whoever is slow misses values in between, never the last one."""

    def __init__(self, value: T) -> None:
        self.value = value
        self._changed = asyncio.Event()

    def put(self, value: T) -> None:
        self.value = value
        # A fresh event for those who begin to wait from now on; it never has to be cleared.
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def next(self) -> Coroutine[Any, Any, T]:
        """The value after the next `put`, counted from this call and not from when it is awaited."""
        return self._after(self._changed)

    async def _after(self, changed: asyncio.Event) -> T:
        await changed.wait()
        return self.value

    async def changes(self: Latest[Known | None]) -> AsyncGenerator[Known, None]:
        """The value, and each later one; None stands for none yet and is passed over."""
        seen: Known | None = None
        while True:
            value = self.value
            if value is not None and value is not seen:
                seen = value
                yield value
            else:
                await self._changed.wait()


async def changes_of_both(one: Latest[T], other: Latest[Known]) -> AsyncGenerator[tuple[T, Known], None]:
    """Both values, and again after each change of either."""
    while True:
        waiting = [asyncio.ensure_future(one.next()), asyncio.ensure_future(other.next())]
        try:
            yield one.value, other.value
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
