"""What a room goes on to give when no news of it comes: credits at the pace at which they were last spent. No I/O.

A worker answers once per request and does not learn of its end, so that it cannot free a place itself. But while a
room was used up, each credit was spent as it came: the pace of spending was that of ends. It is measured only over such
times, since a room that had places left was spent as fast as requests came, which says nothing of what it can do. One
that was not used up, or gave too few credits to measure, is not known to be short, and limits nobody for long.

docs/decisions/0028-absent-news.md says why. All times in seconds by the clock of the credits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# News comes at least each 1.1 s (controlplane/crediting.py).
QUIET_SECONDS = 1.5
# Engines and traffic change: what was measured so long ago bounds nobody.
LONGEST_QUIET_SECONDS = 60.0
# The pace is a mean over about so long.
PACE_SECONDS = 10.0
# In the mean; used up for less, or with fewer credits spent meanwhile, there is no pace.
LEAST_SECONDS = PACE_SECONDS / 2
LEAST_SPENT = 4.0
# The share of the pace that is given. Nothing puts an error right while no news comes: too fast a pace adds up in the
# engines' queues, and answers grow longer once pressure is forgotten and caps none. Too slow a one leaves a few places
# empty.
CAREFUL = 0.9


@dataclass(slots=True)
class Refill:
    """Of one room. `heard` at each news, `spent` at each credit; between two news it holds `level` credits at `at`."""

    told: float = -math.inf
    level: float = 0.0
    at: float = 0.0
    count: int = 0
    seconds: float = 0.0
    credits: float = 0.0

    def heard(self, now: float, *, used_up: bool, left: float) -> None:
        """News: whether all that was left before is spent by now, and what is left from now on."""
        elapsed = now - self.told
        kept = math.exp(-elapsed / PACE_SECONDS)
        self.seconds *= kept
        self.credits *= kept
        if used_up and elapsed <= QUIET_SECONDS:
            self.seconds += elapsed
            self.credits += self.count
        self.told, self.count = now, 0
        self.level, self.at = left, now

    def spent(self, now: float, count: int = 1) -> None:
        """With a negative count credits are given back."""
        self.count += count
        if self.is_known:
            self.level, self.at = self._filled(now) - count, now

    @property
    def is_known(self) -> bool:
        return self.seconds >= LEAST_SECONDS and self.credits >= LEAST_SPENT

    def left(self, now: float, balance: int) -> float | None:
        """Of a room with this balance by the last news: that, while there is news; then what it gives by itself; None
        where the pace is not known, or the news too long ago."""
        quiet = now - self.told
        if quiet > LONGEST_QUIET_SECONDS or not self.is_known:
            return None
        return self._filled(now) if quiet > QUIET_SECONDS else balance

    def _filled(self, now: float) -> float:
        """What nobody takes is not saved up for longer than it takes to notice that no news comes."""
        pace = CAREFUL * self.credits / self.seconds
        return min(self.level + pace * (now - self.at), max(pace * QUIET_SECONDS, 1.0))
