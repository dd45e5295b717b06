"""Leads Envoys: tells them of clusters and endpoints, and knows when they hold what they were told.

Filters hear of a fleet only after Envoys do, and a node registers anew only after Envoys have left it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress

from controlplane.config.settings import Settings
from controlplane.gateway import fills_empty_cluster, gateway_of, is_led_to, pool_clusters
from controlplane.model import NodeSession
from controlplane.view import CurrentView, View
from xds_server.assembly import gateway_snapshot
from xds_server.gateway import Gateway, PoolCluster, Tokens
from xds_server.server import DiscoveryService

HELD_SECONDS = 2.0
# What Envoy's first check of an endpoint may take, which it begins at once: until then it sends the endpoint nothing.
FIRST_CHECK_SECONDS = 0.5


class Leading:
    """`current` is the view that filters decide by. `tokens` says what makes clients' tokens count now."""

    def __init__(
        self,
        settings: Settings,
        tokens: Callable[[], Tokens | None],
        discovery: DiscoveryService,
        current: CurrentView,
    ) -> None:
        self._settings = settings
        self._tokens = tokens
        self._discovery = discovery
        self._current = current
        self._clusters: tuple[PoolCluster, ...] = ()
        self._told: tuple[Gateway, tuple[PoolCluster, ...]] | None = None

    async def tell(self, view: View) -> None:
        """Filters learn of a new cluster only when Envoys can lead to it: a request sent sooner would be refused.

        So it is with a cluster's first endpoints, as when the first node of a pool settles. An Envoy that is stuck
        holds back the others' for HELD_SECONDS, and no longer.
        """
        before, led_before = self._current.value, self._clusters
        self._clusters = pool_clusters(view.fleet, before.fleet if before else None)
        tenants = view.table.policy.tenants
        told = gateway_of(view.fleet, self._clusters, self._settings, tenants, self._tokens())
        if told != self._told:  # most views differ from the last one in load only
            self._discovery.publish(gateway_snapshot(*told))
            self._told = told
        fills = fills_empty_cluster(self._clusters, led_before)
        if fills or not _clusters(view) <= _clusters(before):
            with suppress(TimeoutError):
                async with asyncio.timeout(HELD_SECONDS):
                    await self._discovery.until_held()
        if fills:  # Envoy takes endpoints before it has checked them, unlike clusters
            await asyncio.sleep(FIRST_CHECK_SECONDS)

    async def until_left(self, session: NodeSession) -> None:
        """Until no Envoy leads requests to a session that are not for it any more; HELD_SECONDS at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(HELD_SECONDS), aclosing(self._current.changes()) as views:
                async for view in views:
                    shown = view.sessions.get(session.spec.node_id)
                    is_told = shown is None or shown == session or shown.session_id != session.session_id
                    if is_told and not is_led_to(session, self._clusters):
                        await self._discovery.until_held()
                        return


def _clusters(view: View | None) -> set[str]:
    return {cluster for pool in view.fleet.pools for cluster in pool.clusters} if view else set()
