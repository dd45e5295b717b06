from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.gateway import World, running_world


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running_world() as world:
        yield world
