"""How much a peer may ask of us for nothing: pings, settings, resets, empty frames.

Each is cheap and legal, and a flood of them is an attack (CVE-2019-9512, -9515, -9518, CVE-2023-44487 and others). What
a peer may do at once is generous, as one proxy's connection carries what thousands of clients do.
"""

from __future__ import annotations

from typing import Final

AT_ONCE: Final = 10_000
PER_SECOND: Final = 1_000.0


class Patience:
    """A bucket of tokens that fills with time."""

    __slots__ = ("_at", "_left")

    def __init__(self, now: float) -> None:
        """`now` in seconds, of a clock that does not go back."""
        self._left = float(AT_ONCE)
        self._at = now

    def spend(self, now: float) -> bool:
        """False when it has run out."""
        self._left = min(AT_ONCE, self._left + (now - self._at) * PER_SECOND)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def earn(self) -> None:
        """We have sent data, for which frames in return are due."""
        self._left += 2  # more than it holds is taken off when something is spent
