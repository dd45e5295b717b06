"""The route configuration: one route per pool, found by the header that the filter sets, and one for no pool."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from headrace_protos.envoy.config.core.v3 import base_pb2
from headrace_protos.envoy.config.route.v3 import route_components_pb2, route_pb2
from headrace_protos.envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2
from headrace_protos.envoy.type.matcher.v3 import http_inputs_pb2
from headrace_protos.xds.core.v3 import extension_pb2 as xds_extension_pb2
from headrace_protos.xds.type.matcher.v3 import matcher_pb2

from xds_server.gateway import POOL_HEADER, WISH_PREFIX, Gateway
from xds_server.local_replies import error_body
from xds_server.resource import packed

ROUTES = "pools"
UNDECIDED = "undecided"
"""The route of requests that the filter gave no pool that exists, because it failed or was ahead of this Envoy."""

_OVERWRITE = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD


def pool_routes(gateway: Gateway, pools: Sequence[str]) -> route_pb2.RouteConfiguration:
    undecided = _undecided(gateway)
    host = route_components_pb2.VirtualHost(name="all", domains=["*"])
    if pools:
        host.matcher.CopyFrom(_matcher(gateway, pools, undecided))
    else:
        host.routes.append(undecided)  # a matcher tree without entries is refused
    return route_pb2.RouteConfiguration(
        name=ROUTES,
        virtual_hosts=[host],
        request_headers_to_remove=[POOL_HEADER, *(WISH_PREFIX + wish for wish in gateway.wishes)],
        # Removals come first, so an engine's own header of the name never passes for ours.
        response_headers_to_remove=[name for name, _ in gateway.response_headers],
        response_headers_to_add=[
            _header(name, f"%DYNAMIC_METADATA({gateway.metadata_namespace}:{key})%")
            for name, key in gateway.response_headers
        ],
    )


def _matcher(gateway: Gateway, pools: Sequence[str], undecided: route_components_pb2.Route) -> matcher_pb2.Matcher:
    by_header = xds_extension_pb2.TypedExtensionConfig(
        name="pool", typed_config=packed(http_inputs_pb2.HttpRequestHeaderMatchInput(header_name=POOL_HEADER))
    )
    return matcher_pb2.Matcher(
        matcher_tree={
            "input": by_header,
            "exact_match_map": {"map": {pool: _on_match(_pool_route(gateway, pool, pool)) for pool in pools}},
        },
        on_no_match=_on_match(undecided),
    )


def _on_match(route: route_components_pb2.Route) -> matcher_pb2.Matcher.OnMatch:
    return matcher_pb2.Matcher.OnMatch(action={"name": route.name, "typed_config": packed(route)})


def _pool_route(gateway: Gateway, name: str, pool: str) -> route_components_pb2.Route:
    return route_components_pb2.Route(
        name=name,
        match={"prefix": "/"},
        route=route_components_pb2.RouteAction(
            cluster=pool,
            timeout=timedelta(seconds=gateway.route_timeout),
            retry_policy=_retry_policy(),
        ),
    )


def _undecided(gateway: Gateway) -> route_components_pb2.Route:
    if gateway.default_pool is not None:
        return _pool_route(gateway, UNDECIDED, gateway.default_pool)
    return route_components_pb2.Route(
        name=UNDECIDED,
        match={"prefix": "/"},
        direct_response={
            "status": 503,
            "body": {"inline_string": error_body(UNDECIDED, "The gateway could not choose a pool; retry shortly.")},
        },
        response_headers_to_add=[_header("content-type", "application/json"), _header("retry-after", "1")],
    )


def _retry_policy() -> route_components_pb2.RetryPolicy:
    """On another host, and only what certainly did no work on the first."""
    return route_components_pb2.RetryPolicy(
        retry_on="connect-failure,refused-stream,reset-before-request",
        num_retries={"value": 2},
        retry_host_predicate=[
            {
                "name": "envoy.retry_host_predicates.previous_hosts",
                "typed_config": packed(previous_hosts_pb2.PreviousHostsPredicate()),
            }
        ],
        host_selection_retry_max_attempts=5,
        retry_back_off={"base_interval": timedelta(seconds=0.025), "max_interval": timedelta(seconds=0.25)},
    )


def _header(name: str, value: str) -> base_pb2.HeaderValueOption:
    return base_pb2.HeaderValueOption(header={"key": name, "value": value}, append_action=_OVERWRITE)
