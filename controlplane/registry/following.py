"""Follows the fleet in etcd through outages, restarts and compactions, and shows it as one value after the other."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

from controlplane.errors import HeadraceError, UnavailableError
from controlplane.etcd.client import EtcdClient
from controlplane.etcd.connection import Pause
from controlplane.etcd.errors import WatchLostError
from controlplane.etcd.records import delete, mod_revision_is
from controlplane.latest import Latest
from controlplane.policy.settings import QuiescenceRules
from controlplane.registry.codec import decode_session
from controlplane.registry.former import Ending, LastSessions
from controlplane.registry.keys import Keys
from controlplane.registry.state import FleetState, Mirror

logger = logging.getLogger(__name__)

_TICK_SECONDS = 1.0  # far below the leases, which an outage has to outlast to do harm
# A process that ran for no instant of so many seconds was stopped or starved, and renewed no lease meanwhile.
_STANDSTILL_SECONDS = 3.0


class FleetFollower:
    """`run` follows; any number of `states` iterators see what it has found.

    While etcd does not answer, the last state stays. `grace` is for how many seconds after an outage a node that has
    vanished is still shown, so that it can come back; give it the nodes' lease time, and what their agents need to come
    back. Where etcd itself was down this is needed only in part: it gives all leases their whole time again when it
    elects a leader, as after each start (lessor.Promote in etcd's server/lease). Where this process was down, stood
    still or was cut off, or etcd was too busy to renew leases, they have run out.

    A node that has left for good is deleted from those that etcd remembers, and kept as one that was there for as long
    as `quiescence`, which gives the rules in force, wants; any number of followers may do so at once.

    `clock` has to be the one that the client's connection goes by.
    """

    def __init__(
        self,
        client: EtcdClient,
        keys: Keys,
        *,
        grace: float,
        quiescence: Callable[[], QuiescenceRules] = QuiescenceRules,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._keys = keys
        self._last = LastSessions(client, keys, quiescence)
        self._clock = clock
        self._draw = draw
        self._mirror = Mirror(keys, grace)
        self._awake_at = 0.0  # by the clock; from `run` on
        self._refusal: str | None = None
        self._state = Latest[FleetState | None](None)

    @property
    def state(self) -> FleetState | None:
        """The latest state; None before the first listing."""
        return self._state.value

    @property
    def trouble(self) -> str | None:
        """What keeps the state from being up to date; None when nothing does."""
        return self._refusal or self._client.health.trouble

    def states(self) -> AsyncGenerator[FleetState, None]:
        """The latest state, and each later one; a slow reader skips to the latest."""
        return self._state.changes()

    async def run(self) -> None:
        """Follows until it is cancelled."""
        self._awake_at = self._clock()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._tick())
            tasks.create_task(self._beat())

    async def _follow(self) -> None:
        pause = Pause(self._draw)
        while True:
            try:
                listing = await self._client.list(self._keys.prefix)
                self._mirror.replace(listing, self._client.health, self._now())
                self._refusal = None
                self._show()
                async with aclosing(self._client.watch(self._keys.prefix, listing.revision + 1)) as watch:
                    async for changes in watch:
                        pause.reset()
                        self._mirror.apply(changes, self._client.health, self._now())
                        self._show()
            except WatchLostError as error:
                logger.warning("listing the fleet anew: %s", error)
            except UnavailableError:
                pass  # the client's health tells, and has logged it
            except HeadraceError as error:
                if self._refusal is None:
                    logger.error("cannot follow the fleet: %s", error)  # noqa: TRY400
                self._refusal = str(error)
            await pause.wait()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            # In a quiet fleet nothing else would find out that etcd hangs, or that it answers again.
            with suppress(HeadraceError):
                await self._client.get(self._keys.policy)
            if self._mirror.end_grace(self._client.health, self._now()):
                self._show()
            with suppress(HeadraceError):
                await self._forget()

    async def _forget(self) -> None:
        """A node that has registered meanwhile was written anew, and is not forgotten."""
        for node_id, revision in self._mirror.given_up.items():
            key = self._keys.remembered_node(node_id)
            record = await self._client.get(key)
            session = decode_session(record) if record else None
            ending = await self._last.ending(session) if session else Ending()
            await self._client.transact(
                [mod_revision_is(key, revision), *ending.conditions], [delete(key), *ending.changes]
            )

    async def _beat(self) -> None:
        """Looks at the clock so often that only a standstill of the process can make it leap."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self._now()

    def _now(self) -> float:
        now = self._clock()
        if now - self._awake_at > _STANDSTILL_SECONDS:
            logger.warning("this process stood still for %.1f s; nodes get time to come back", now - self._awake_at)
            self._mirror.was_away(now)
        self._awake_at = now
        return now

    def _show(self) -> None:
        self._state.put(self._mirror.state)
