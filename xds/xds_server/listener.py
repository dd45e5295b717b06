"""The gateway's listener: how connections are read, which filters a request passes, what is logged of it."""

from __future__ import annotations

from datetime import timedelta

from google.protobuf.message import Message

from headrace_protos.envoy.config.accesslog.v3 import accesslog_pb2
from headrace_protos.envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from headrace_protos.envoy.config.core.v3 import base_pb2, protocol_pb2
from headrace_protos.envoy.config.listener.v3 import listener_pb2
from headrace_protos.envoy.extensions.access_loggers.grpc.v3 import als_pb2
from headrace_protos.envoy.extensions.filters.http.buffer.v3 import buffer_pb2
from headrace_protos.envoy.extensions.filters.http.ext_proc.v3 import ext_proc_pb2, processing_mode_pb2
from headrace_protos.envoy.extensions.filters.http.router.v3 import router_pb2
from headrace_protos.envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2
from headrace_protos.envoy.extensions.http.early_header_mutation.header_mutation.v3 import header_mutation_pb2
from headrace_protos.envoy.type.tracing.v3 import custom_tag_pb2
from xds_server.clusters import ACCESS_LOG, EXT_PROC, USAGE_LOG
from xds_server.gateway import BILL_KEY, INTERNAL_PREFIX, PEER_HEADER, WISH_PREFIX, Gateway
from xds_server.local_replies import local_reply_config
from xds_server.resource import packed
from xds_server.routes import ROUTES
from xds_server.tokens import token_check
from xds_server.usage import json_errors, json_usage, sse_usage

LISTENER = "gateway"

# How the access log names the time until the answer's first byte of content.
FIRST_CONTENT_TAG = "first_content_us"

_Manager = http_connection_manager_pb2.HttpConnectionManager
_Mode = processing_mode_pb2.ProcessingMode

# A wish is a word or two; what is longer is cut.
_WISH_BYTES = 64


def gateway_listener(gateway: Gateway) -> listener_pb2.Listener:
    return listener_pb2.Listener(
        name=LISTENER,
        address={"socket_address": {"address": gateway.host, "port_value": gateway.port}},
        per_connection_buffer_limit_bytes={"value": gateway.buffer_bytes},
        filter_chains=[
            {
                "filters": [
                    {
                        "name": "envoy.filters.network.http_connection_manager",
                        "typed_config": packed(_connection_manager(gateway)),
                    }
                ]
            }
        ],
    )


def _connection_manager(gateway: Gateway) -> http_connection_manager_pb2.HttpConnectionManager:
    return _Manager(
        stat_prefix=LISTENER,
        rds={"route_config_name": ROUTES, "config_source": {"ads": {}, "resource_api_version": "V3"}},
        early_header_mutation_extensions=[
            {
                "name": "envoy.http.early_header_mutation.header_mutation",
                "typed_config": packed(_cleaning(gateway)),
            }
        ],
        http_filters=[
            *([_filter("jwt_authn", token_check(gateway.tokens))] if gateway.tokens else []),
            _filter("buffer", _whole_body(gateway)),
            _filter("ext_proc", _ext_proc(gateway)),
            _filter("json_to_metadata", json_usage(gateway)),
            _filter("json_to_metadata.errors", json_errors(gateway)),
            _filter("sse_to_metadata", sse_usage(gateway)),
            _filter("router", _router()),
        ],
        access_log=[*([_access_log(ACCESS_LOG)] if gateway.access_log else []), _usage_log(gateway)],
        local_reply_config=local_reply_config(),
        # Clients are what connects, whatever they claim in x-forwarded-for.
        use_remote_address={"value": True},
        preserve_external_request_id=True,
        always_set_request_id_in_response=True,
        server_header_transformation=_Manager.PASS_THROUGH,
        normalize_path={"value": True},
        merge_slashes=True,
        # Slow or silent clients give their connection back.
        request_headers_timeout=timedelta(seconds=10),
        request_timeout=timedelta(seconds=gateway.request_timeout),
        stream_idle_timeout=timedelta(seconds=gateway.stream_idle_timeout),
        common_http_protocol_options={"idle_timeout": timedelta(hours=1)},
        http2_protocol_options=protocol_pb2.Http2ProtocolOptions(
            max_concurrent_streams={"value": 100},
            # In HTTP/2 a stream's window is its buffer limit too, and the filter answers only once it has the body.
            initial_stream_window_size={"value": gateway.buffer_bytes},
            initial_connection_window_size={"value": gateway.buffer_bytes},
        ),
    )


def _cleaning(gateway: Gateway) -> header_mutation_pb2.HeaderMutation:
    """Take away what only the gateway may say, after moving the client's wishes to names that only the filter reads.
    Then tell the filter who connects.

    This is done early, before Envoy looks for a route: it keeps the one that it finds if the filter fails. The prefix
    x-envoy- steers Envoy's router (timeouts, retries), which is ours to decide.
    """
    keep_wishes = [_set(WISH_PREFIX + wish, f"%REQ({INTERNAL_PREFIX}{wish}):{_WISH_BYTES}%") for wish in gateway.wishes]
    peer = _set(PEER_HEADER, "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%")
    return header_mutation_pb2.HeaderMutation(
        mutations=[_strip(WISH_PREFIX), *keep_wishes, _strip(INTERNAL_PREFIX), _strip("x-envoy-"), peer]
    )


def _set(header: str, value: str) -> mutation_rules_pb2.HeaderMutation:
    return mutation_rules_pb2.HeaderMutation(
        append={
            "header": {"key": header, "value": value},
            "append_action": base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
        }
    )


def _strip(prefix: str) -> mutation_rules_pb2.HeaderMutation:
    return mutation_rules_pb2.HeaderMutation(remove_on_match={"key_matcher": {"prefix": prefix}})


def _whole_body(gateway: Gateway) -> buffer_pb2.Buffer:
    """Hand a request to ext_proc only once its body is there, and so in one piece.

    When a filter fails, or answers, before Envoy sent it the end of a body, Envoy 1.40 passes on twice the pieces that
    came before. It also keeps slow clients from holding a stream to the filter, and its timeout, open.
    """
    return buffer_pb2.Buffer(max_request_bytes={"value": gateway.max_body_bytes})


def _ext_proc(gateway: Gateway) -> ext_proc_pb2.ExternalProcessor:
    """The filter sees headers and body, and answers the headers once it has the end of the body.

    When it fails the request goes on without a pool, to the route for that. So does, after the timeout, a request with
    trailers: this mode sends a filter neither them nor the end of the body before them.
    """
    return ext_proc_pb2.ExternalProcessor(
        grpc_service={"envoy_grpc": {"cluster_name": EXT_PROC, "skip_envoy_headers": True}},
        processing_mode=_Mode(
            request_header_mode=_Mode.SEND,
            request_body_mode=_Mode.STREAMED,
            request_trailer_mode=_Mode.SKIP,
            response_header_mode=_Mode.SKIP,
            response_body_mode=_Mode.NONE,
            response_trailer_mode=_Mode.SKIP,
        ),
        send_body_without_waiting_for_header_response=True,
        failure_mode_allow=True,
        message_timeout=timedelta(seconds=gateway.message_timeout),
        max_message_timeout=timedelta(seconds=gateway.max_wait + gateway.message_timeout),
        metadata_options={"receiving_namespaces": {"untyped": [gateway.metadata_namespace]}},
        mutation_rules={"allow_all_routing": {"value": True}},
    )


def _router() -> router_pb2.Router:
    """Without statistics by status, which the access log has for each request, with its pool and verdict.

    They are made and counted anew with each request (docs/decisions/0021-what-envoy-spends.md).
    """
    return router_pb2.Router(suppress_envoy_headers=True, dynamic_stats={"value": False})


def _usage_log(gateway: Gateway) -> accesslog_pb2.AccessLog:
    """To the filter, of the requests that it has charged somebody with."""
    log = _access_log(USAGE_LOG)
    log.filter.metadata_filter.CopyFrom(
        accesslog_pb2.MetadataFilter(
            matcher={
                "filter": gateway.metadata_namespace,
                "path": [{"key": BILL_KEY}],
                "value": {"present_match": True},
            },
            match_if_key_not_found={"value": False},
        )
    )
    return log


def _access_log(cluster: str) -> accesslog_pb2.AccessLog:
    return accesslog_pb2.AccessLog(
        name="envoy.access_loggers.http_grpc",
        typed_config=packed(
            als_pb2.HttpGrpcAccessLogConfig(
                common_config=als_pb2.CommonGrpcAccessLogConfig(
                    log_name=LISTENER,
                    transport_api_version="V3",
                    grpc_service={"envoy_grpc": {"cluster_name": cluster}},
                    buffer_flush_interval=timedelta(seconds=0.1),
                    buffer_size_bytes={"value": 262_144},
                    custom_tags=[
                        # The log's own time to the first byte is the headers', which engines send before they have any.
                        custom_tag_pb2.CustomTag(
                            tag=FIRST_CONTENT_TAG, value="%COMMON_DURATION(DS_RX_BEG:US_RX_BODY_BEG:us)%"
                        )
                    ],
                ),
            )
        ),
    )


def _filter(name: str, config: Message) -> http_connection_manager_pb2.HttpFilter:
    return http_connection_manager_pb2.HttpFilter(name=f"envoy.filters.http.{name}", typed_config=packed(config))
