"""A value that others wait for to change."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """Holds the last value that was put, and wakes all that wait for the next one."""

    def __init__(self, value: T) -> None:
        self.value = value
        self._changed = asyncio.Event()

    def put(self, value: T) -> None:
        self.value = value
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def next(self) -> T:
        """The next value that is put after this call."""
        await self._changed.wait()
        return self.value
