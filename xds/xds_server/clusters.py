"""Clusters and endpoints: the pools, the ext_proc filter's workers, the access-log receiver."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from google.protobuf import any_pb2

from headrace_protos.envoy.config.cluster.v3 import circuit_breaker_pb2, cluster_pb2, outlier_detection_pb2
from headrace_protos.envoy.config.core.v3 import address_pb2, config_source_pb2, health_check_pb2, protocol_pb2
from headrace_protos.envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from headrace_protos.envoy.config.route.v3 import route_components_pb2
from headrace_protos.envoy.extensions.clusters.aggregate.v3 import cluster_pb2 as aggregate_pb2
from headrace_protos.envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
from xds_server import retries
from xds_server.gateway import Endpoint, PoolCluster
from xds_server.hosts import is_ip
from xds_server.resource import packed

EXT_PROC = "headrace-ext-proc"
USAGE_LOG = "headrace-usage-log"
ACCESS_LOG = "headrace-access-log"

_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_CONNECT_TIMEOUT = timedelta(seconds=1)

# Engines on uvicorn or cpp-httplib close an idle connection after 5 s; a request sent just then would be lost.
_ENGINE_IDLE_TIMEOUT = timedelta(seconds=4)
# Engines on cpp-httplib, as llama.cpp, close a connection after 100 answers; a request sent just then would be lost.
_ENGINE_REQUESTS = 90

# Every status that speaks for a broken engine: 5xx but 503, which like 429 is a full one, and 4xx is the client's.
_BROKEN = r"50[0-24-9]|5[1-9]\d"


def pool_cluster(pool: PoolCluster) -> cluster_pb2.Cluster:
    return cluster_pb2.Cluster(
        name=pool.name,
        type=cluster_pb2.Cluster.EDS,
        eds_cluster_config={
            "eds_config": config_source_pb2.ConfigSource(
                ads={}, resource_api_version="V3", initial_fetch_timeout=timedelta(seconds=5)
            )
        },
        connect_timeout=_CONNECT_TIMEOUT,
        lb_policy=cluster_pb2.Cluster.LEAST_REQUEST,
        # An endpoint that is taken out gets no new request, even if it still answers the health check.
        ignore_health_on_host_removal=True,
        common_lb_config=_health_counts(),
        circuit_breakers=_circuit_breakers(),
        health_checks=[_engine_check(pool.health_path)],
        outlier_detection=outlier_detection_pb2.OutlierDetection(
            split_external_local_origin_errors=True,
            consecutive_local_origin_failure={"value": 3},
            consecutive_5xx={"value": 10},
            enforcing_consecutive_gateway_failure={"value": 0},
            enforcing_success_rate={"value": 0},
            enforcing_local_origin_success_rate={"value": 0},
            interval=timedelta(seconds=1),
            base_ejection_time=timedelta(seconds=5),
            max_ejection_time=timedelta(seconds=60),
            max_ejection_percent={"value": 50},
            # An engine may answer its health check and fail every request.
            successful_active_health_check_uneject_host={"value": False},
        ),
        typed_extension_protocol_options={_HTTP_OPTIONS: _engine_protocol()},
    )


def retrying_cluster(pool: PoolCluster) -> cluster_pb2.Cluster:
    """The pool's own hosts first, then those of the pool where it is retried, which only a retry asks for, or a pool
    without a healthy host."""
    return cluster_pb2.Cluster(
        name=pool.retrying,
        connect_timeout=_CONNECT_TIMEOUT,
        lb_policy=cluster_pb2.Cluster.CLUSTER_PROVIDED,
        cluster_type={
            "name": "envoy.clusters.aggregate",
            "typed_config": packed(aggregate_pb2.ClusterConfig(clusters=[pool.name, pool.retried_at])),
        },
        circuit_breakers=_circuit_breakers(),
    )


def pool_endpoints(pool: PoolCluster) -> endpoint_pb2.ClusterLoadAssignment:
    assignment = endpoint_pb2.ClusterLoadAssignment(
        cluster_name=pool.name, endpoints=[{"lb_endpoints": [_weighted(endpoint) for endpoint in pool.endpoints]}]
    )
    if pool.retried_at:
        # By default, traffic begins to go to the next priority when more than 28% of the hosts are unhealthy.
        assignment.policy.overprovisioning_factor.value = 100_000
    return assignment


def ext_proc_cluster(addresses: Sequence[str]) -> cluster_pb2.Cluster:
    """Where the filter is asked. The retries are the cluster's: ext_proc's own are read anew with each request, for a
    seventh of what Envoy spends on it (docs/decisions/0021-what-envoy-spends.md)."""
    return _filter_cluster(EXT_PROC, addresses, retries.of_questions())


def usage_log_cluster(addresses: Sequence[str]) -> cluster_pb2.Cluster:
    """Where the filter is told what requests used: without retries, which would tell another worker all of it again."""
    return _filter_cluster(USAGE_LOG, addresses)


def _filter_cluster(
    name: str, addresses: Sequence[str], retry_policy: route_components_pb2.RetryPolicy | None = None
) -> cluster_pb2.Cluster:
    """One endpoint per filter worker. Pings find out a hung one: they reset its connection, so that the requests in its
    hands are tried on another, and their failure takes it out, as that of two requests to a dead one does.

    Health checks say when it is back. By themselves they take out only what has not answered for long: one that is
    merely slow must not be, for its requests would make the next one slow. Hence the last worker is never ejected.
    """
    cluster = _grpc_cluster(name, addresses, ping_interval=0.5, ping_timeout=1.0, retry_policy=retry_policy)
    cluster.health_checks.append(
        health_check_pb2.HealthCheck(
            grpc_health_check={},
            interval=timedelta(seconds=0.5),
            no_traffic_interval=timedelta(seconds=0.5),
            no_traffic_healthy_interval=timedelta(seconds=0.5),
            timeout=timedelta(seconds=2),
            unhealthy_threshold={"value": 2},
            healthy_threshold={"value": 1},
        )
    )
    cluster.outlier_detection.CopyFrom(
        outlier_detection_pb2.OutlierDetection(
            split_external_local_origin_errors=True,
            consecutive_local_origin_failure={"value": 2},
            interval=timedelta(seconds=0.5),
            # Until a health check succeeds, at the longest.
            base_ejection_time=timedelta(seconds=10),
            max_ejection_time=timedelta(seconds=10),
            max_ejection_percent={"value": 99},
        )
    )
    return cluster


def access_log_cluster(address: str) -> cluster_pb2.Cluster:
    return _grpc_cluster(ACCESS_LOG, [address], ping_interval=10.0, ping_timeout=5.0)


def socket_address(text: str) -> address_pb2.Address:
    """`unix:/path`, `ip:port`, `[ipv6]:port` or `host:port`; ValueError says what is wrong."""
    if text.startswith("unix:"):
        return address_pb2.Address(pipe={"path": text.removeprefix("unix:")})
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"address {text!r} is neither unix:/path nor host:port with a port of 1 to 65535")
    return address_pb2.Address(socket_address={"address": host, "port_value": int(port)})


def _grpc_cluster(
    name: str,
    texts: Sequence[str],
    *,
    ping_interval: float,
    ping_timeout: float,
    retry_policy: route_components_pb2.RetryPolicy | None = None,
) -> cluster_pb2.Cluster:
    addresses = [socket_address(text) for text in texts]
    by_name = any(a.HasField("socket_address") and not is_ip(a.socket_address.address) for a in addresses)
    if by_name and any(a.HasField("pipe") for a in addresses):
        raise ValueError(f"{name}: host names and unix sockets cannot be mixed: {', '.join(texts)}")
    return cluster_pb2.Cluster(
        name=name,
        type=cluster_pb2.Cluster.STRICT_DNS if by_name else cluster_pb2.Cluster.STATIC,
        connect_timeout=_CONNECT_TIMEOUT,
        # Not by fewest requests: a worker that just died has none, and would get them all.
        lb_policy=cluster_pb2.Cluster.ROUND_ROBIN,
        common_lb_config=_health_counts(),
        circuit_breakers=_circuit_breakers(),
        load_assignment=endpoint_pb2.ClusterLoadAssignment(
            cluster_name=name,
            endpoints=[{"lb_endpoints": [{"endpoint": {"address": address}} for address in addresses]}],
        ),
        typed_extension_protocol_options={
            _HTTP_OPTIONS: packed(
                http_protocol_options_pb2.HttpProtocolOptions(
                    explicit_http_config={
                        "http2_protocol_options": protocol_pb2.Http2ProtocolOptions(
                            connection_keepalive={
                                "interval": timedelta(seconds=ping_interval),
                                "timeout": timedelta(seconds=ping_timeout),
                            },
                        )
                    },
                    retry_policy=retry_policy,
                )
            )
        },
    )


def _weighted(endpoint: Endpoint) -> endpoint_components_pb2.LbEndpoint:
    return endpoint_components_pb2.LbEndpoint(
        endpoint={"address": {"socket_address": {"address": endpoint.ip, "port_value": endpoint.port}}},
        load_balancing_weight={"value": endpoint.weight},
    )


def _engine_check(path: str | None) -> health_check_pb2.HealthCheck:
    check = health_check_pb2.HealthCheck(
        interval=timedelta(seconds=1),
        no_traffic_interval=timedelta(seconds=1),
        no_traffic_healthy_interval=timedelta(seconds=1),
        interval_jitter_percent=10,
        timeout=timedelta(seconds=1),
        unhealthy_threshold={"value": 2},
        healthy_threshold={"value": 1},
    )
    if path is None:
        check.tcp_health_check.SetInParent()
    else:
        check.http_health_check.path = path
        check.http_health_check.host = "localhost"  # pools' names are no host names
    return check


def _engine_protocol() -> any_pb2.Any:
    """HTTP/1.1, and what outlier detection counts. Needs `error_matcher`: by default 429s are errors of a host too."""
    return packed(
        http_protocol_options_pb2.HttpProtocolOptions(
            explicit_http_config={"http_protocol_options": {}},
            common_http_protocol_options={
                "idle_timeout": _ENGINE_IDLE_TIMEOUT,
                "max_requests_per_connection": {"value": _ENGINE_REQUESTS},
            },
            outlier_detection={
                "error_matcher": {
                    "http_response_headers_match": {
                        "headers": [{"name": ":status", "string_match": {"safe_regex": {"regex": _BROKEN}}}]
                    }
                }
            },
        )
    )


def _health_counts() -> cluster_pb2.Cluster.CommonLbConfig:
    """An unhealthy host gets nothing, however few are left; and what a health check finds takes effect at once.

    By default the first good check of a new host takes effect only a second later, with other changes of that time.
    """
    return cluster_pb2.Cluster.CommonLbConfig(healthy_panic_threshold={"value": 0}, update_merge_window=timedelta(0))


def _circuit_breakers() -> circuit_breaker_pb2.CircuitBreakers:
    """Above what a gateway carries: the filter decides who waits, Envoy's defaults of 1024 would refuse at random."""
    return circuit_breaker_pb2.CircuitBreakers(
        thresholds=[
            {
                "max_connections": {"value": 65_536},
                "max_pending_requests": {"value": 65_536},
                "max_requests": {"value": 65_536},
                "max_retries": {"value": 1024},
            }
        ]
    )
