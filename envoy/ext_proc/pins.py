"""Where it is kept what each session keeps to. The first writer wins, so that filters that race agree.

The memory store serves one filter process; `redis_pins` has one for several. In both, pins end some time after their
last use, as the policy's session rules say, which may change while they run. Here the least recently used give way when
there are too many.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from controlplane.model import Pin
from controlplane.policy.settings import SessionRules


class PinStore(Protocol):
    """What keeps pins. Any of these may raise when it cannot be reached. `session` is a key as `pin_key` gives it."""

    def configure(self, rules: SessionRules) -> None:
        """Takes the rules that hold from now on."""

    async def get(self, session: str) -> Pin | None:
        """The session's pin, if it has one; counts as a use."""

    async def set_first(self, session: str, pin: Pin) -> Pin:
        """Pins the session unless it is pinned already; returns the pin that holds."""

    async def replace(self, session: str, pin: Pin) -> None:
        """Pins the session whatever held before."""


class MemoryPins:
    """`clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._rules = SessionRules()
        self._clock = clock
        self._pins: OrderedDict[str, tuple[Pin, float]] = OrderedDict()

    def configure(self, rules: SessionRules) -> None:
        self._rules = rules

    def __len__(self) -> int:
        return len(self._pins)

    async def get(self, session: str) -> Pin | None:
        held = self._pins.get(session)
        if held is None:
            return None
        pin, expires = held
        if expires <= self._clock():
            del self._pins[session]
            return None
        self._keep(session, pin)
        return pin

    async def set_first(self, session: str, pin: Pin) -> Pin:
        held = await self.get(session)
        if held is not None:
            return held
        self._keep(session, pin)
        return pin

    async def replace(self, session: str, pin: Pin) -> None:
        self._keep(session, pin)

    def _keep(self, session: str, pin: Pin) -> None:
        self._pins[session] = (pin, self._clock() + self._rules.ttl_seconds)
        self._pins.move_to_end(session)
        while len(self._pins) > self._rules.max_sessions:
            self._pins.popitem(last=False)
