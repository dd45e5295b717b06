"""Tells all control planes by etcd which filter workers watch this one: each divides free room among all there are.

A worker's key has the lease of the control plane that it watches, and goes when the worker does or the control plane
dies. One that turns to another control plane has its key written over by that one.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Callable
from contextlib import suppress

from controlplane.errors import HeadraceError
from controlplane.etcd.client import EtcdClient
from controlplane.etcd.connection import Pause
from controlplane.etcd.errors import LeaseNotFoundError
from controlplane.etcd.records import delete, value_is
from controlplane.latest import Latest
from controlplane.registry.keys import Keys

_log = logging.getLogger(__name__)

_STOP_SECONDS = 1.0


class WorkerPresence:
    """`watching` are the ids of the workers that watch this control plane now."""

    def __init__(
        self,
        client: EtcdClient,
        keys: Keys,
        watching: Latest[frozenset[str]],
        *,
        lease_seconds: int,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._keys = keys
        self._watching = watching
        self._lease_seconds = lease_seconds
        self._draw = draw
        self._name = secrets.token_hex(8).encode()
        self._lease: int | None = None
        self._told: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Keeps etcd told until it is cancelled; then the workers are gone at once, as far as etcd answers."""
        pause = Pause(self._draw)
        try:
            while True:
                changed = asyncio.ensure_future(self._watching.next())
                try:
                    await self._tell(self._watching.value)
                    pause.reset()
                    await asyncio.wait((changed,), timeout=self._lease_seconds / 3)
                except LeaseNotFoundError:
                    self._lease = None
                except HeadraceError as error:
                    _log.debug("etcd cannot be told of filter workers: %s", error)  # its health is logged elsewhere
                    await pause.wait()
                finally:
                    changed.cancel()
        finally:
            await self._leave()

    async def _tell(self, workers: frozenset[str]) -> None:
        if self._lease is None:
            self._lease = await self._client.grant_lease(self._lease_seconds)
        else:
            await self._client.renew_lease(self._lease)
        self._told |= workers  # a put that fails may have been done
        for worker in sorted(workers):  # also those told before: another control plane may have been late to tell
            await self._client.put(self._keys.worker(worker), self._name, lease_id=self._lease)
        for worker in sorted(self._told - workers):
            key = self._keys.worker(worker)
            await self._client.transact([value_is(key, self._name)], [delete(key)])
            self._told -= {worker}

    async def _leave(self) -> None:
        if self._lease is not None:
            with suppress(HeadraceError, TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._client.revoke_lease(self._lease)
