"""What Envoys are told: the gateway as configured, and a cluster for each pool of the fleet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from controlplane.config.addresses import split_address
from controlplane.config.settings import Settings
from controlplane.fleet import Fleet, Member
from controlplane.model import NodeSession, Pool, is_pools_own, open_cluster
from controlplane.policy.settings import TenantRules
from xds_server.gateway import Endpoint, Gateway, PoolCluster, Tokens

# Fine enough to tell throughputs apart; Envoy sums up to 2**32 - 1 of a cluster.
GREATEST_WEIGHT = 1000


def gateway_of(
    fleet: Fleet,
    clusters: Sequence[PoolCluster],
    settings: Settings,
    tenants: TenantRules,
    tokens: Tokens | None = None,
) -> tuple[Gateway, tuple[PoolCluster, ...]]:
    """What a snapshot is made of. `clusters` are those that `pool_clusters` makes of the fleet, `tenants` the rules in
    force, `tokens` what makes clients' tokens count."""
    if settings.gateway.retry_refused:
        clusters = retried(clusters, fleet)
    return _gateway(fleet, settings, tenants, tokens), tuple(clusters)


def is_led_to(session: NodeSession, clusters: Iterable[PoolCluster]) -> bool:
    """Whether requests reach the session's address that are not for it: any when it drains, else those of sessions that
    go on."""
    ip, port = split_address(session.spec.address)
    return any(
        (endpoint.ip, endpoint.port) == (ip, port)
        for cluster in clusters
        if session.draining or is_pools_own(cluster.name)
        for endpoint in cluster.endpoints
    )


def fills_empty_cluster(clusters: Iterable[PoolCluster], before: Iterable[PoolCluster]) -> bool:
    """Whether a cluster has endpoints that was there without any."""
    empty = {cluster.name for cluster in before if not cluster.endpoints}
    return any(cluster.name in empty and cluster.endpoints for cluster in clusters)


def pool_clusters(fleet: Fleet, before: Fleet | None = None) -> tuple[PoolCluster, ...]:
    """A cluster for every pool, of its settled nodes, and while some quiesce another one of all its ready nodes; while
    all do, also one for the sessions that are new to all of them.

    `before` is the fleet that filters still decide by.

    So whatever table a filter decides by, what it sends to a pool by its name reaches no quiescing node: requests of
    sessions that go on, and of all sessions where the filter does not know yet that a node quiesces. The third cluster
    is named by when its last node registered, and gets none that registers later.

    A cluster that `before` needs stays in this snapshot, and goes with the next; one that has lost its last node keeps
    those that it had for as long: so filters stop sending to it first, and what they have sent is still answered. A
    node that has registered anew is not kept: it is another one now.

    A cluster without a node is there too: its requests get 503 from Envoy itself.
    """
    members, former = _by_pool(fleet), _by_pool(before)
    pools = [pool for each in (fleet, before) if each for pool in each.pools if pool.quiescing_nodes]
    opened = {pool.name for pool in pools}
    in_force = {member.session.spec.address: member.session.session_id for member in fleet.members}
    clusters: list[PoolCluster] = []
    for name in sorted({*members, *former}):
        now = [m for m in members.get(name, ()) if m.ready]
        then = [m for m in former.get(name, ()) if m.ready and _is_in_force(m, in_force)]
        if not now and not then and name not in members:
            continue
        checked = members.get(name) or former[name]
        settled = [m for m in now if m.settled] or [m for m in then if m.settled]
        clusters.append(_pool_cluster(name, settled, checked))
        if name in opened:
            clusters.append(_pool_cluster(open_cluster(name), now or then, checked))
        for cluster, since in sorted(_since_clusters(name, pools)):
            known = [m for m in now if m.session.quiesces_since <= since]
            known = known or [m for m in then if m.session.quiesces_since <= since]
            clusters.append(_pool_cluster(cluster, known, checked))
    return tuple(clusters)


def retried(clusters: Sequence[PoolCluster], fleet: Fleet) -> tuple[PoolCluster, ...]:
    """The clusters, each with where its 400s are retried: in the largest context that the model has in its tier, by
    engines that know it by the same names. What needs all of a pool's nodes to be settled, needs that there too."""
    serving = {cluster.name for cluster in clusters if cluster.endpoints}
    pools = {name: pool for pool in fleet.pools for name in pool.clusters}
    found = []
    for cluster in clusters:
        pool = pools.get(cluster.name)
        larger = [
            other
            for other in fleet.pools
            if pool is not None
            and (other.model, other.tier) == (pool.model, pool.tier)
            and other.max_context > pool.max_context
            and {pool.served_name, *pool.aliases} <= {other.served_name, *other.aliases}
            and other.name in serving
        ]
        if pool is None or not larger:
            found.append(cluster)
            continue
        best = max(larger, key=lambda other: (other.max_context, other.capacity_type is pool.capacity_type, other.name))
        is_for_new_sessions = pool.quiescing_nodes and cluster.name == pool.open_cluster
        goes_to = best.open_cluster if is_for_new_sessions and best.open_cluster in serving else best.name
        found.append(replace(cluster, retried_at=goes_to))
    return tuple(found)


def _by_pool(fleet: Fleet | None) -> Mapping[str, list[Member]]:
    """The members by their pools' names."""
    found: dict[str, list[Member]] = {}
    for member in fleet.members if fleet else ():
        found.setdefault(member.pool, []).append(member)
    return found


def _since_clusters(name: str, pools: Iterable[Pool]) -> set[tuple[str, float]]:
    """The clusters of a pool for sessions that began after its nodes had registered, and when that was."""
    return {(pool.since_cluster, pool.quiesces_since) for pool in pools if pool.name == name and not pool.settled_nodes}


def _is_in_force(member: Member, in_force: Mapping[str, str]) -> bool:
    """Whether no other session has come to the member's address since."""
    return in_force.get(member.session.spec.address, member.session.session_id) == member.session.session_id


def _gateway(fleet: Fleet, settings: Settings, tenants: TenantRules, tokens: Tokens | None) -> Gateway:
    host, port = split_address(settings.gateway.address)
    default_pool = settings.gateway.default_pool
    return Gateway(
        ext_proc=settings.ext_proc.advertise or (settings.ext_proc.listen,),
        access_log=settings.control_plane.xds_advertise or settings.control_plane.xds,
        host=host,
        port=port,
        max_body_bytes=settings.gateway.max_body_bytes,
        route_timeout=settings.gateway.route_timeout,
        stream_idle_timeout=settings.gateway.stream_idle_timeout,
        max_wait=settings.gateway.max_wait,
        tokens=tokens,
        rates=tenants.have_rates,
        # A default pool that has no node now must not keep the rest from being published.
        default_pool=default_pool if any(pool.name == default_pool for pool in fleet.pools) else None,
    )


def _pool_cluster(name: str, endpoints: Sequence[Member], members: Iterable[Member]) -> PoolCluster:
    health_paths = {m.session.spec.health_path for m in members}
    greatest = max((m.throughput for m in endpoints), default=0.0)
    return PoolCluster(
        name=name,
        endpoints=tuple(_endpoint(m, greatest) for m in endpoints),
        # One cluster has one check: where its engines differ, only a connection is common to them.
        health_path=next(iter(health_paths)) or None if len(health_paths) == 1 else None,
    )


def _endpoint(member: Member, greatest: float) -> Endpoint:
    """Weighed by its throughput, as a share of the greatest one of its pool."""
    ip, port = split_address(member.session.spec.address)
    weight = round(GREATEST_WEIGHT * member.throughput / greatest) if greatest > 0 else 1
    return Endpoint(ip, port, weight=max(weight, 1))
