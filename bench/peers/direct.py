"""The engine itself, with nothing before it: what the load generator and the engine can do at most."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from peers.contestant import Contestant, Engines, Running


@asynccontextmanager
async def _start(engines: Engines, _: Path) -> AsyncIterator[Running]:
    yield Running(engines.ports[0], dict)


DIRECT = Contestant("direct", "no proxy", _start)
