"""When to say again what has been said: an agent may wait for hours, and its log is to tell so in a few lines."""

from __future__ import annotations

from collections.abc import Callable

FIRST_SECONDS = 5.0
LONGEST_SECONDS = 300.0


class Telling:
    """`clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told: object = None
        self._wait = 0.0
        self._at = 0.0

    def over(self) -> None:
        """What was said holds no more: it is new when it is said again."""
        self._told = None

    def is_new(self, said: object) -> bool:
        """Whether it differs from what was said last."""
        return said != self._told

    def is_due(self, said: object) -> bool:
        """Whether to say it now: when it is new, and then less and less often."""
        now = self._clock()
        if self.is_new(said):
            self._told, self._wait = said, FIRST_SECONDS
        elif now - self._at < self._wait:
            return False
        else:
            self._wait = min(2 * self._wait, LONGEST_SECONDS)
        self._at = now
        return True
