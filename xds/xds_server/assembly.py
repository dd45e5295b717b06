"""All resources of a gateway, put together as one snapshot."""

from __future__ import annotations

from collections.abc import Iterable

from xds_server.clusters import (
    access_log_cluster,
    ext_proc_cluster,
    pool_cluster,
    pool_endpoints,
    retrying_cluster,
    usage_log_cluster,
)
from xds_server.gateway import Gateway, PoolCluster
from xds_server.listener import gateway_listener
from xds_server.routes import pool_routes
from xds_server.snapshot import Snapshot
from xds_server.tokens import token_keys_cluster


def gateway_snapshot(gateway: Gateway, pools: Iterable[PoolCluster]) -> Snapshot:
    """ValueError when an address cannot be read; publishing it refuses a `default_pool` that is not among the pools."""
    pools = tuple(pools)
    tokens = gateway.tokens
    keys = [token_keys_cluster(tokens.keys_url, tokens.keys_authority)] if tokens and tokens.keys_url else []
    logs = [access_log_cluster(gateway.access_log)] if gateway.access_log else []
    return Snapshot.of(
        [
            ext_proc_cluster(gateway.ext_proc),
            usage_log_cluster(gateway.ext_proc),
            *logs,
            *keys,
            *map(pool_cluster, pools),
            *map(pool_endpoints, pools),
            *(retrying_cluster(pool) for pool in pools if pool.retried_at),
            gateway_listener(gateway),
            pool_routes(
                gateway,
                [pool.name for pool in pools],
                retrying={pool.name: pool.retrying for pool in pools if pool.retried_at},
            ),
        ]
    )
