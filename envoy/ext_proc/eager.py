"""Coroutines that hardly ever wait, run at once where they are begun: as a task they would first go round the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import copy_context
from typing import Any


def begin(coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    """Runs it up to where it first waits, and has a task do the rest; None when it has come to its end.

    What it raises before it waits is raised here. Until then there is no `asyncio.current_task()`, which some of
    asyncio, such as `timeout`, wants to know.
    """
    context = copy_context()
    try:
        waits_for = context.run(coroutine.send, None)
    except StopIteration:
        return None
    return asyncio.get_running_loop().create_task(_Begun(coroutine, waits_for), context=context)


class _Begun(Coroutine[Any, Any, None]):
    """To a task it looks as if it had not begun: the first step gives what it waits for already."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], waits_for: object) -> None:
        self._coroutine = coroutine
        self._first: tuple[object, ...] = (waits_for,)

    def send(self, value: Any, /) -> Any:
        if self._first:
            [waits_for], self._first = self._first, ()
            return waits_for
        return self._coroutine.send(value)

    def throw(self, error: Any, /, *more: Any) -> Any:
        self._first = ()
        return self._coroutine.throw(error, *more)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, None, None]:
        return self._coroutine.__await__()
