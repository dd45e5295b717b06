"""A node's place in the fleet: registered, kept alive, registered anew when it must be, and left at the end.

The engine is not asked here: what it is and how loaded it is come in as `spec` and `readings`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

from controlplane.errors import HeadraceError, RegistrationError, UnavailableError, UnknownSessionError
from controlplane.latest import Latest
from controlplane.model import NodeLoad, NodeSpec
from node_agent.backoff import Backoff
from node_agent.metrics import Observer
from node_agent.probe import Reading
from node_agent.registry import Acknowledged, Drain, Registration, RegistryClient, ReRegister
from node_agent.telling import Telling

_log = logging.getLogger(__name__)

Sleep = Callable[[float], Awaitable[None]]

# After a refusal somebody has to change something first; the whole fleet may be refused, so spread it.
REFUSED_SECONDS = 10.0
LONGEST_REFUSED_SECONDS = 60.0
# Where the server only says that it does not know the session.
UNKNOWN_SESSION_WITHIN_SECONDS = 2.0


class Membership:
    """`spec` may be replaced at any time: the node then registers as what it is now. `clock` is monotonic, in seconds;
    `dice` gives numbers in 0..1. `was_registered` says whether it ever was."""

    def __init__(
        self,
        registry: RegistryClient,
        spec: NodeSpec,
        readings: Latest[Reading],
        observer: Observer,
        *,
        clock: Callable[[], float],
        dice: Callable[[], float],
        sleep: Sleep,
    ) -> None:
        self.spec = spec
        self.session = Latest[Registration | None](None)
        self._registry = registry
        self._readings = readings
        self._observer = observer
        self._dice = dice
        self._sleep = sleep
        self._backoff = Backoff(dice)
        self._draining = False
        self._telling = Telling(clock)
        self._refused_seconds = REFUSED_SECONDS
        self.was_registered = False

    async def keep(self) -> None:
        """Runs until it is cancelled."""
        while True:
            registration = await self._register()
            self.session.put(registration)
            self.was_registered = True
            self._observer.registered(True)
            wait = await self._keep_alive(registration)
            self.session.put(None)
            self._observer.registered(False)
            await self._sleep(wait)

    async def drain(self) -> None:
        """Takes the node out of routing for good: a new session is drained too. Best effort, at every control plane."""
        self._draining = True
        if self.session.value is not None:
            await self._at_any(lambda: self._registry.drain(self.spec.node_id))

    async def leave(self) -> None:
        """Ends the session. Best effort: without it the lease runs out."""
        registration = self.session.value
        if registration is not None:
            await self._at_any(lambda: self._registry.deregister(registration.session_id))
            self._observer.registered(False)

    async def _register(self) -> Registration:
        while True:
            try:
                registration = await self._registry.register(self.spec)
            except RegistrationError as error:
                self._observer.registration("refused")
                wait = self._refused_seconds * (0.5 + self._dice() / 2)
                self._refused_seconds = min(2 * self._refused_seconds, LONGEST_REFUSED_SECONDS)
                is_new = self._telling.is_new(error.faults)
                if self._telling.is_due(error.faults):
                    _log.error(
                        "registration %s by %s, tried again in %.0f s%s",
                        "refused" if is_new else "still refused",
                        self._registry.target,
                        wait,
                        "; to mend:\n" + "\n".join(f"  {fault}" for fault in error.faults) if is_new else "",
                    )
            except UnavailableError as error:
                self._observer.registration("unavailable")
                wait = self._backoff.next()
                self._refused_seconds = REFUSED_SECONDS
                if self._telling.is_due(str(error)):
                    _log.warning("registration failed, tried again in %.1f s: %s", wait, error)
            else:
                self._observer.registration("ok")
                self._backoff.reset()
                self._refused_seconds = REFUSED_SECONDS
                self._telling.over()
                _log.info(
                    "registered node=%s session=%s pools=%s control_plane=%s",
                    self.spec.node_id,
                    registration.session_id,
                    ",".join(registration.pools),
                    self._registry.target,
                )
                if self._draining:
                    await self._at_any(lambda: self._registry.drain(self.spec.node_id))
                return registration
            self._registry.turn()
            await self._sleep(wait)

    async def _keep_alive(self, registration: Registration) -> float:
        """Reports until the session is over; returns how many seconds to wait before the next one."""
        while True:
            try:
                within = await self._report(registration)
            except UnknownSessionError:
                self._observer.heartbeat("session_lost")
                within = UNKNOWN_SESSION_WITHIN_SECONDS
            except (UnavailableError, RegistrationError) as error:
                refused = isinstance(error, RegistrationError)
                self._observer.heartbeat("refused" if refused else "unavailable")
                wait = REFUSED_SECONDS * (0.5 + self._dice() / 2) if refused else self._backoff.next()
                _log.warning("heartbeats interrupted, going on in %.1f s: %s", wait, error)
                self._registry.turn()
                await self._sleep(wait)
                if not self._outdated(registration):
                    continue
                within = 0.0
            if within is None:
                self._registry.turn()
                await self._sleep(self._backoff.next())
                continue
            return self._dice() * within

    async def _report(self, registration: Registration) -> float | None:
        """One heartbeat stream. Returns within how many seconds to register anew, None when it merely ended."""
        # Half of the lease is left for finding another control plane.
        patience = registration.lease_seconds / 2
        stream = self._registry.heartbeat(registration.session_id, self._loads(registration), patience)
        async with aclosing(stream) as instructions:
            async for instruction in instructions:
                self._backoff.reset()
                match instruction:
                    case ReRegister(within_seconds):
                        self._observer.heartbeat("session_lost")
                        _log.warning("session lost, registering anew session=%s", registration.session_id)
                        return within_seconds
                    case Drain() | Acknowledged():
                        self._observer.heartbeat("ok")
                        if isinstance(instruction, Drain) and not self._draining:
                            _log.info("draining by the control plane's instruction, until the agent is restarted")
                            self._draining = True
        return 0.0 if self._outdated(registration) else None

    async def _loads(self, registration: Registration) -> AsyncIterator[NodeLoad]:
        """The last load at once, then each new one, for as long as the session says what the node is."""
        load = self._readings.value.load
        while not self._outdated(registration):
            yield load
            load = (await self._readings.next()).load

    def _outdated(self, registration: Registration) -> bool:
        # A node that is being drained stays so under its old description: a new session would bring it back.
        return registration.spec != self.spec and not self._draining

    async def _at_any(self, call: Callable[[], Awaitable[None]]) -> None:
        for _ in range(len(self._registry)):
            try:
                return await call()
            except UnknownSessionError:
                return None
            except HeadraceError as error:
                _log.warning("not told: %s", error)
                self._registry.turn()
        return None
