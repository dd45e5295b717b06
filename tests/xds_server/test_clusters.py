from __future__ import annotations

import pytest

from headrace_protos.envoy.config.cluster.v3 import cluster_pb2
from headrace_protos.envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
from xds_server.clusters import ext_proc_cluster, pool_cluster, pool_endpoints, socket_address, usage_log_cluster
from xds_server.gateway import Endpoint, Gateway, PoolCluster


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:9002", "127.0.0.1", 9002), ("[::1]:9002", "::1", 9002), ("filter.internal:1", "filter.internal", 1)],
)
def test_an_address_is_a_host_and_a_port(text, host, port):
    address = socket_address(text).socket_address
    assert (address.address, address.port_value) == (host, port)


def test_an_address_may_be_a_unix_socket():
    assert socket_address("unix:/run/filter.sock").pipe.path == "/run/filter.sock"


@pytest.mark.parametrize("text", ["", "host", "host:", ":80", "host:0", "host:65536", "host:http", "host:-1"])
def test_anything_else_is_refused_with_what_was_given(text):
    with pytest.raises(ValueError, match="neither unix:/path nor host:port") as refused:
        socket_address(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(
    ("addresses", "kind"),
    [
        (["127.0.0.1:1", "unix:/a"], cluster_pb2.Cluster.STATIC),
        (["[::1]:1"], cluster_pb2.Cluster.STATIC),
        (["filter:1", "127.0.0.1:1"], cluster_pb2.Cluster.STRICT_DNS),
    ],
)
def test_only_host_names_are_looked_up(addresses, kind):
    assert ext_proc_cluster(addresses).type == kind


def test_host_names_and_unix_sockets_cannot_be_mixed():
    with pytest.raises(ValueError, match="cannot be mixed: filter:1, unix:/a"):
        ext_proc_cluster(["filter:1", "unix:/a"])


def test_a_filter_worker_that_hangs_is_found_out_before_its_requests_time_is_up():
    """Then they are tried on another; what ends by its time is not."""
    cluster = ext_proc_cluster(["unix:/a", "unix:/b"])
    pings = _protocol(cluster).explicit_http_config.http2_protocol_options.connection_keepalive
    most_jitter = 1 + (pings.interval_jitter.value or 15) / 100  # Envoy's default
    longest = pings.interval.ToMilliseconds() * most_jitter + pings.timeout.ToMilliseconds()
    gateway = Gateway(ext_proc=("unix:/a",), host="127.0.0.1", port=0)
    assert longest < gateway.message_timeout * 1000 / 2


def test_no_filter_worker_that_is_ill_is_asked_and_the_last_one_is_not_ejected():
    cluster = ext_proc_cluster(["unix:/a", "unix:/b"])
    assert cluster.common_lb_config.HasField("healthy_panic_threshold")
    assert cluster.common_lb_config.healthy_panic_threshold.value == 0
    assert cluster.outlier_detection.max_ejection_percent.value < 100


def test_endpoints_keep_their_weights():
    made = pool_endpoints(PoolCluster("p", (Endpoint("10.0.0.1", 1, weight=3), Endpoint("10.0.0.2", 1))))
    assert [endpoint.load_balancing_weight.value for endpoint in made.endpoints[0].lb_endpoints] == [3, 1]


def test_a_connection_is_given_up_before_an_engine_closes_it():
    """uvicorn and cpp-httplib close after 5 s without a request, cpp-httplib (llama.cpp) also after 100 answers."""
    common = _protocol(pool_cluster(PoolCluster("p", ()))).common_http_protocol_options
    assert common.idle_timeout.ToSeconds() < 5
    assert common.max_requests_per_connection.value < 100


def test_filters_are_asked_again_but_not_told_again_what_was_used():
    """Twice told, a request would be charged twice."""
    assert _protocol(ext_proc_cluster(["filter:1"])).retry_policy.retry_on
    assert not _protocol(usage_log_cluster(["filter:1"])).HasField("retry_policy")


def _protocol(cluster):
    options = http_protocol_options_pb2.HttpProtocolOptions()
    cluster.typed_extension_protocol_options["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"].Unpack(options)
    return options
