"""A shared store of pins that may be away: meanwhile this process's own memory stands in for it.

What this process has decided or seen lately it remembers, so that the sessions that it has served keep their tier while
the store is away, and take it back to the store afterwards. What only others know is decided anew, and two filters may
then decide differently about one session: docs/decisions/0006-session-store.md.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from controlplane.model import FormatTier
from controlplane.policy.settings import SessionRules
from ext_proc.pins import MemoryPins, PinStore

_log = logging.getLogger(__name__)

T = TypeVar("T")

# While the store is away it is tried so often, by one request: none of the others waits for it.
TRY_AGAIN_SECONDS = 1.0


class Observer(Protocol):
    """Told how the store does, for metrics."""

    def session_store_failed(self, operation: str) -> None: ...

    def session_store_up(self, up: bool) -> None: ...


class FallbackPins:
    """Never fails. `own` is the memory that stands in for `store`; `clock` gives monotonic seconds."""

    def __init__(self, store: PinStore, own: MemoryPins, observer: Observer, clock: Callable[[], float]) -> None:
        self._store = store
        self._own = own
        self._observer = observer
        self._clock = clock
        self._away_until: float | None = None
        observer.session_store_up(True)

    def configure(self, rules: SessionRules) -> None:
        self._store.configure(rules)
        self._own.configure(rules)

    async def get(self, session: str) -> FormatTier | None:
        known = await self._own.get(session)
        tier = await self._try("get", lambda: self._store.get(session), known)
        if tier is None and known is not None:  # pinned here while the store was away, or lost by it
            return await self.set_first(session, known)
        if tier is not None and tier is not known:
            await self._own.replace(session, tier)
        return tier

    async def set_first(self, session: str, tier: FormatTier) -> FormatTier:
        known = await self._own.set_first(session, tier)
        winner = await self._try("set_first", lambda: self._store.set_first(session, known), known)
        if winner is not known:
            await self._own.replace(session, winner)
        return winner

    async def replace(self, session: str, tier: FormatTier) -> None:
        await self._own.replace(session, tier)
        await self._try("replace", lambda: self._store.replace(session, tier), None)

    async def _try(self, name: str, operation: Callable[[], Awaitable[T]], otherwise: T) -> T:
        now = self._clock()
        if self._away_until is not None:
            if now < self._away_until:
                self._observer.session_store_failed(name)
                return otherwise
            self._away_until = now + TRY_AGAIN_SECONDS  # the others do not try meanwhile
        try:
            result = await operation()
        except Exception as error:
            self._observer.session_store_failed(name)
            self._observer.session_store_up(False)
            if self._away_until is None:
                _log.error("session store fails, own memory stands in for it error=%s", type(error).__name__)
            self._away_until = self._clock() + TRY_AGAIN_SECONDS
            return otherwise
        if self._away_until is not None:
            self._away_until = None
            self._observer.session_store_up(True)
            _log.warning("session store is back")
        return result
