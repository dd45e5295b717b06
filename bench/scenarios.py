"""What is asked of every contestant."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bodies import LARGE, MIDDLE, MIXED, SMALL

# An answer that is streamed has so many tokens, so many milliseconds apart.
TOKENS, GAP_MS = 20, 10.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """`rate` is in requests a second, by a Poisson process; None is as many as `connections` can be answered. The first
    `warm_up` seconds are not counted."""

    name: str
    size: str
    streamed: bool = False
    rate: float | None = None
    connections: int = 64
    seconds: float = 3.0
    warm_up: float = 0.5

    @property
    def key(self) -> str:
        """Its name on the command line, and that of its file."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower())


SCENARIOS = (
    Scenario("most, 2 KB", SMALL),
    Scenario("most, 50 KB", MIDDLE),
    Scenario("most, 500 KB", LARGE),
    Scenario("most, mixed", MIXED),
    Scenario("most, 2 KB streamed", SMALL, streamed=True, connections=512, warm_up=1.0),
    Scenario("2 KB at 500/s", SMALL, rate=500.0, connections=32, seconds=8.0),
    Scenario("50 KB at 200/s", MIDDLE, rate=200.0, connections=32, seconds=8.0),
    Scenario("2 KB streamed at 100/s", SMALL, streamed=True, rate=100.0, connections=64, seconds=8.0),
    Scenario("2 KB at 50/s", SMALL, rate=50.0, connections=32, seconds=8.0),
)
