from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.services import Services, running_services


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    async with running_services() as services:
        yield services
