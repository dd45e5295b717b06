"""The route configuration: one route per pool, found by the header that the filter sets, and one for no pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType

from headrace_protos.envoy.config.core.v3 import base_pb2
from headrace_protos.envoy.config.route.v3 import route_components_pb2, route_pb2
from headrace_protos.envoy.type.matcher.v3 import http_inputs_pb2
from headrace_protos.xds.core.v3 import extension_pb2 as xds_extension_pb2
from headrace_protos.xds.type.matcher.v3 import matcher_pb2
from xds_server import retries
from xds_server.gateway import (
    PEER_HEADER,
    POOL_HEADER,
    RATE_HEADERS,
    RESPONSE_HEADERS,
    TENANT_HEADER,
    WISH_PREFIX,
    Gateway,
)
from xds_server.local_replies import error_body
from xds_server.resource import packed

ROUTES = "pools"
UNDECIDED = "undecided"
"""The route of requests that the filter gave no pool, because it failed."""
NEWER = "newer"
"""The route of requests that the filter gave a pool which these routes do not know, but a cluster may be there for."""

_POOL_INPUT = xds_extension_pb2.TypedExtensionConfig(
    name="pool", typed_config=packed(http_inputs_pb2.HttpRequestHeaderMatchInput(header_name=POOL_HEADER))
)
_OVERWRITE = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD


def pool_routes(
    gateway: Gateway, pools: Sequence[str], retrying: Mapping[str, str] = MappingProxyType({})
) -> route_pb2.RouteConfiguration:
    """`retrying` names, for pools whose 400s are retried elsewhere, the cluster that leads there too."""
    host = route_components_pb2.VirtualHost(name="all", domains=["*"])
    # A matcher tree without entries is refused.
    host.matcher.CopyFrom(_matcher(gateway, pools, retrying) if pools else _otherwise(gateway))
    return route_pb2.RouteConfiguration(
        name=ROUTES,
        virtual_hosts=[host],
        request_headers_to_remove=[
            POOL_HEADER,
            TENANT_HEADER,
            PEER_HEADER,
            *(WISH_PREFIX + wish for wish in gateway.wishes),
        ],
        # Removals come first, so an engine's own header of the name never passes for ours.
        response_headers_to_remove=[name for name, _ in (*RESPONSE_HEADERS, *RATE_HEADERS)],
        response_headers_to_add=[
            _header(name, f"%DYNAMIC_METADATA({gateway.metadata_namespace}:{key})%")
            for name, key in (*RESPONSE_HEADERS, *(RATE_HEADERS if gateway.rates else ()))
        ],
    )


def _matcher(gateway: Gateway, pools: Sequence[str], retrying: Mapping[str, str]) -> matcher_pb2.Matcher:
    return matcher_pb2.Matcher(
        matcher_tree={
            "input": _POOL_INPUT,
            "exact_match_map": {
                "map": {pool: _on_match(_to_pool(gateway, pool, retrying.get(pool))) for pool in pools}
            },
        },
        on_no_match={"matcher": _otherwise(gateway)},
    )


def _otherwise(gateway: Gateway) -> matcher_pb2.Matcher:
    """A request that waits in the filter keeps the routes of its beginning, and may get a pool that came since."""
    named = matcher_pb2.Matcher.MatcherList.Predicate(
        single_predicate={
            "input": _POOL_INPUT,
            "value_match": {"safe_regex": {"google_re2": {}, "regex": ".+"}},
        }
    )
    newer = _on_match(_forward(gateway, NEWER, by_header=POOL_HEADER))
    return matcher_pb2.Matcher(
        matcher_list={"matchers": [{"predicate": named, "on_match": newer}]}, on_no_match=_on_match(_undecided(gateway))
    )


def _on_match(route: route_components_pb2.Route) -> matcher_pb2.Matcher.OnMatch:
    return matcher_pb2.Matcher.OnMatch(action={"name": route.name, "typed_config": packed(route)})


def _to_pool(gateway: Gateway, pool: str, retrying: str | None) -> route_components_pb2.Route:
    route = _forward(gateway, pool, pool=retrying or pool)
    if retrying:
        route.route.retry_policy.CopyFrom(retries.of_requests_and_400s())
    return route


def _forward(gateway: Gateway, name: str, *, pool: str = "", by_header: str = "") -> route_components_pb2.Route:
    """To the cluster of the pool, or to the one that the header names."""
    action = route_components_pb2.RouteAction(
        timeout=timedelta(seconds=gateway.route_timeout), retry_policy=retries.of_requests()
    )
    if by_header:
        action.cluster_header = by_header
    else:
        action.cluster = pool
    return route_components_pb2.Route(name=name, match={"prefix": "/"}, route=action)


def _undecided(gateway: Gateway) -> route_components_pb2.Route:
    if gateway.default_pool is not None:
        return _forward(gateway, UNDECIDED, pool=gateway.default_pool)
    return route_components_pb2.Route(
        name=UNDECIDED,
        match={"prefix": "/"},
        direct_response={
            "status": 503,
            "body": {"inline_string": error_body(UNDECIDED, "The gateway could not choose a pool; retry shortly.")},
        },
        response_headers_to_add=[_header("content-type", "application/json"), _header("retry-after", "1")],
    )


def _header(name: str, value: str) -> base_pb2.HeaderValueOption:
    return base_pb2.HeaderValueOption(header={"key": name, "value": value}, append_action=_OVERWRITE)
