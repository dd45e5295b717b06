"""How long to wait before trying again: exponential with full jitter, so that a fleet does not come back at once."""

from __future__ import annotations

from collections.abc import Callable

FIRST_SECONDS = 0.25
# Well below the default lease of 10 s, so that a control plane that is away for a moment costs no session.
LONGEST_SECONDS = 2.5


class Backoff:
    """`dice` gives a number in 0..1 for each wait."""

    def __init__(self, dice: Callable[[], float]) -> None:
        self._dice = dice
        self._limit = FIRST_SECONDS

    def next(self) -> float:
        """Seconds to wait now: a random part of a limit that doubles with each call."""
        seconds = self._dice() * self._limit
        self._limit = min(self._limit * 2, LONGEST_SECONDS)
        return seconds

    def reset(self) -> None:
        self._limit = FIRST_SECONDS
