"""One real engine for all tests of the agent."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from support.llama import RunningLlama, running_llama


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def llama() -> AsyncIterator[RunningLlama]:
    async with running_llama() as engine:
        yield engine
