"""A shared store of pins that may be away: meanwhile this process's own memory stands in for it.

What this process has decided or seen lately it remembers, so that the sessions that it has served keep their tier while
the store is away, and take it back to the store afterwards. What only others know is decided anew, and two filters may
then decide differently about one session: docs/decisions/0006-session-store.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn, Protocol, TypeVar

from controlplane.errors import HeadraceError, UnavailableError
from controlplane.latest import Latest
from controlplane.model import Pin
from controlplane.policy.settings import SessionRules
from ext_proc.pins import MemoryPins, PinStore

_log = logging.getLogger(__name__)

T = TypeVar("T")

# While the store is away it is tried so often, beside all requests: none of them waits for it.
TRY_AGAIN_SECONDS = 1.0


class SharedStore(PinStore, Protocol):
    """A store behind a connection. Its operations raise UnavailableError, at once while there is no connection; one
    that fails ends the connection, so that the store is tried before it is relied on again."""

    async def connect(self) -> None:
        """One try. Raises UnavailableError, and ConfigurationError when no other try could end better."""

    async def hold(self) -> NoReturn:
        """Lasts as long as the connection; then raises UnavailableError with the reason."""


class Observer(Protocol):
    """Told how the store does, for metrics."""

    def session_store_failed(self, operation: str) -> None: ...

    def session_store_up(self, up: bool) -> None: ...


class FallbackPins:
    """Never fails. `own` is the memory that stands in for `store`; `clock` gives monotonic seconds."""

    def __init__(self, store: SharedStore, own: MemoryPins, observer: Observer, clock: Callable[[], float]) -> None:
        self._store = store
        self._own = own
        self._observer = observer
        self._clock = clock
        self._up = True
        self.trouble = Latest[str | None]("")
        """Why the store cannot be reached; empty when it can."""

    def configure(self, rules: SessionRules) -> None:
        self._store.configure(rules)
        self._own.configure(rules)

    async def start(self) -> None:
        """The first try, before any request: a filter that comes back must not decide anew what the store knows.

        Raises ConfigurationError when no other try could end better.
        """
        try:
            await self._store.connect()
        except UnavailableError as error:
            self._is_away(error)

    async def run(self) -> NoReturn:
        """Keeps the connection, and tries to have it again while it is lost."""
        while True:
            began = self._clock()
            try:
                await self._store.hold()
            except UnavailableError as error:
                self._is_away(error)
            await asyncio.sleep(max(0.0, began + TRY_AGAIN_SECONDS - self._clock()))
            try:
                await self._store.connect()
            except HeadraceError as error:
                self._is_away(error)
            else:
                self._is_back()

    async def get(self, session: str) -> Pin | None:
        known = await self._own.get(session)
        pin = await self._try("get", self._store.get(session), known)
        if pin is None and known is not None:  # pinned here while the store was away, or lost by it
            return await self.set_first(session, known)
        if pin is not None and pin != known:
            await self._own.replace(session, pin)
        return pin

    async def set_first(self, session: str, pin: Pin) -> Pin:
        known = await self._own.set_first(session, pin)
        winner = await self._try("set_first", self._store.set_first(session, known), known)
        if winner != known:
            await self._own.replace(session, winner)
        return winner

    async def replace(self, session: str, pin: Pin) -> None:
        await self._own.replace(session, pin)
        await self._try("replace", self._store.replace(session, pin), None)

    async def _try(self, name: str, operation: Awaitable[T], otherwise: T) -> T:
        try:
            return await operation
        except UnavailableError:
            self._observer.session_store_failed(name)
            return otherwise

    def _is_away(self, error: HeadraceError) -> None:
        if self._up:
            self._up = False
            self.trouble.put(str(error))
            self._observer.session_store_up(False)
            _log.error("session store is away, own memory stands in for it: %s", error)

    def _is_back(self) -> None:
        if not self._up:
            self._up = True
            self.trouble.put("")
            self._observer.session_store_up(True)
            _log.warning("session store is back")
