"""Numbers a filter worker's decisions within each minute, so that others can tell how many of them they never heard of.

Envoy brings a decision to a control plane when its request has ended, and what was on the way when one of both died is
lost without a trace. The number says which decisions there must be.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from controlplane.model import HttpRequest
from ext_proc.answer import Answer
from ext_proc.exchange import TooLarge
from ext_proc.names import KEY_MADE
from ext_proc.transport import AnswerTo
from ext_proc.waiting import Extend

# For so long a worker that reaches no control plane remembers what it has to tell.
MOST_MINUTES = 12 * 60
# What was told is told again for so long: the control plane that was told may have died before it wrote it down.
TOLD_AGAIN_MINUTES = 10


class Numbering:
    """`clock` gives Unix seconds. `name` is this worker's, unlike that of any other process there has ever been."""

    def __init__(self, clock: Callable[[], float], name: str | None = None) -> None:
        self._clock = clock
        self.name = name or secrets.token_urlsafe(6)
        self._made: dict[int, int] = {}
        self._minute = 0
        self._untold = 0  # the first minute that has not been told whole

    def numbered(self, answer: AnswerTo) -> AnswerTo:
        """The same answers, each with its number. One whose client has left before it was there gets none."""

        async def numbered(request: HttpRequest | TooLarge, extend: Extend) -> Answer:
            found = await answer(request, extend)
            found.metadata[KEY_MADE] = self.next()
            return found

        return numbered

    def next(self) -> str:
        """Of one more decision: this worker, the minute, and the number, from 1."""
        minute = max(int(self._clock() / 60), self._minute)
        if minute != self._minute:
            self._minute = minute
            self._forget(minute - MOST_MINUTES)
        number = self._made[minute] = self._made.get(minute, 0) + 1
        return f"{self.name} {minute} {number}"

    def to_tell(self) -> dict[int, int]:
        """How many decisions were made in the minutes that are worth telling."""
        since = min(self._untold, self._minute - TOLD_AGAIN_MINUTES)
        return {minute: made for minute, made in self._made.items() if minute >= since}

    def told(self, minutes: dict[int, int]) -> None:
        """A control plane has taken these."""
        self._untold = max(minutes, default=self._untold)
        self._forget(min(self._untold, self._minute - TOLD_AGAIN_MINUTES))

    def _forget(self, before: int) -> None:
        for minute in [each for each in self._made if each < before]:
            del self._made[minute]
