"""What Envoys are told: the gateway as configured, and a cluster for each pool of the fleet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from controlplane.config.addresses import split_address
from controlplane.config.settings import Settings
from controlplane.fleet import Fleet, Member
from xds_server.assembly import gateway_snapshot
from xds_server.gateway import Endpoint, Gateway, PoolCluster
from xds_server.snapshot import Snapshot

# Fine enough to tell throughputs apart; Envoy sums up to 2**32 - 1 of a cluster.
GREATEST_WEIGHT = 1000


def snapshot_of(fleet: Fleet, before: Fleet | None, settings: Settings) -> Snapshot:
    """`before` is the fleet that filters still decide by.

    A pool of it that has lost its last ready node keeps its endpoints in this snapshot, and loses them in the next: so
    filters stop sending to it first, and what they have sent is still answered.
    """
    members = (*fleet.members, *(_bereft(fleet, before) if before else ()))
    return gateway_snapshot(_gateway(fleet, settings), pool_clusters(members))


def pool_clusters(members: Iterable[Member]) -> tuple[PoolCluster, ...]:
    """A cluster for every pool, also for one without a ready node: its requests then get 503 from Envoy itself."""
    by_pool = groupby(sorted(members, key=lambda m: m.pool), key=lambda m: m.pool)
    return tuple(_pool_cluster(name, tuple(members)) for name, members in by_pool)


def _bereft(fleet: Fleet, before: Fleet) -> Iterator[Member]:
    """The ready members of former pools that have none now."""
    alive = {member.pool for member in fleet.members if member.ready}
    return (member for member in before.members if member.ready and member.pool not in alive)


def _gateway(fleet: Fleet, settings: Settings) -> Gateway:
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
        # A default pool that has no node now must not keep the rest from being published.
        default_pool=default_pool if any(pool.name == default_pool for pool in fleet.pools) else None,
    )


def _pool_cluster(name: str, members: tuple[Member, ...]) -> PoolCluster:
    health_paths = {m.session.spec.health_path for m in members}
    ready = [m for m in members if m.ready]
    greatest = max((m.throughput for m in ready), default=0.0)
    return PoolCluster(
        name=name,
        endpoints=tuple(_endpoint(m, greatest) for m in ready),
        # One cluster has one check: where its engines differ, only a connection is common to them.
        health_path=next(iter(health_paths)) or None if len(health_paths) == 1 else None,
    )


def _endpoint(member: Member, greatest: float) -> Endpoint:
    """Weighed by its throughput, as a share of the greatest one of its pool."""
    ip, port = split_address(member.session.spec.address)
    weight = round(GREATEST_WEIGHT * member.throughput / greatest) if greatest > 0 else 1
    return Endpoint(ip, port, weight=max(weight, 1))
