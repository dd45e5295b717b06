"""Waiting for the signals by which a process is asked to end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def stop_requested() -> AsyncIterator[asyncio.Event]:
    """An event that is set at the first SIGINT or SIGTERM; a second one of them ends the process as usual."""
    requested = asyncio.Event()
    loop = asyncio.get_running_loop()

    def request() -> None:
        requested.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, request)
    try:
        yield requested
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def run_until_stopped(work: Coroutine[Any, Any, None], stopping: Callable[[], None] = lambda: None) -> None:
    """Runs `work` until it ends, or cancels it at the first SIGINT or SIGTERM and waits until it has cleaned up.

    `stopping` is called before it is cancelled.
    """
    async with stop_requested() as stop:
        working, signalled = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait((working, signalled), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                stopping()
        finally:
            for task in (working, signalled):
                task.cancel()
            await asyncio.wait((working, signalled))
    if not working.cancelled():
        working.result()
