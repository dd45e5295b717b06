"""Where the format tier of each session is kept. The first writer wins, so that filters that race agree.

The memory store serves one filter process. Its pins end some time after their last use, and the least recently used
give way when there are too many: both as the policy's session rules say, which may change while it runs.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from controlplane.model import FormatTier
from controlplane.policy.settings import SessionRules

_log = logging.getLogger(__name__)

T = TypeVar("T")


class PinStore(Protocol):
    """What keeps pins. Any of these may raise when it cannot be reached."""

    async def get(self, session: str) -> FormatTier | None:
        """The session's tier, if it has one; counts as a use."""

    async def set_first(self, session: str, tier: FormatTier) -> FormatTier:
        """Pin the session to `tier` unless it is pinned already; returns the tier that holds."""

    async def replace(self, session: str, tier: FormatTier) -> None:
        """Pin the session to `tier` whatever held before."""


class MemoryPins:
    """`clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._rules = SessionRules()
        self._clock = clock
        self._pins: OrderedDict[str, tuple[FormatTier, float]] = OrderedDict()

    def configure(self, rules: SessionRules) -> None:
        self._rules = rules

    def __len__(self) -> int:
        return len(self._pins)

    async def get(self, session: str) -> FormatTier | None:
        pin = self._pins.get(session)
        if pin is None:
            return None
        tier, expires = pin
        if expires <= self._clock():
            del self._pins[session]
            return None
        self._keep(session, tier)
        return tier

    async def set_first(self, session: str, tier: FormatTier) -> FormatTier:
        held = await self.get(session)
        if held is not None:
            return held
        self._keep(session, tier)
        return tier

    async def replace(self, session: str, tier: FormatTier) -> None:
        self._keep(session, tier)

    def _keep(self, session: str, tier: FormatTier) -> None:
        self._pins[session] = (tier, self._clock() + self._rules.ttl_seconds)
        self._pins.move_to_end(session)
        while len(self._pins) > self._rules.max_sessions:
            self._pins.popitem(last=False)


class FailOpenPins:
    """A store that never fails: while `store` does, sessions are decided as if they were new, and nothing is pinned.

    `on_failure` is told of each failed operation; the log has one line when the store fails and one when it is back.
    """

    def __init__(self, store: PinStore, on_failure: Callable[[], None]) -> None:
        self._store = store
        self._on_failure = on_failure
        self._fails = False

    async def get(self, session: str) -> FormatTier | None:
        return await self._try(self._store.get(session), None)

    async def set_first(self, session: str, tier: FormatTier) -> FormatTier:
        return await self._try(self._store.set_first(session, tier), tier)

    async def replace(self, session: str, tier: FormatTier) -> None:
        await self._try(self._store.replace(session, tier), None)

    async def _try(self, operation: Awaitable[T], otherwise: T) -> T:
        try:
            result = await operation
        except Exception as error:
            self._on_failure()
            if not self._fails:
                self._fails = True
                _log.error("session store fails, sessions are not kept error=%s", type(error).__name__)
            return otherwise
        if self._fails:
            self._fails = False
            _log.warning("session store is back")
        return result
