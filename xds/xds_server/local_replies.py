"""Envoy's own error answers, as OpenAI-shaped JSON that says what happened and what to do.

Only answers with one of these response flags are rewritten, and of those to requests that no filter has decided about
401, 403 and 413, of which a 403 to who asks for another protocol says so; so the filter's own and direct responses pass
untouched.
https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage#command-operators
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from headrace_protos.envoy.config.accesslog.v3 import accesslog_pb2
from headrace_protos.envoy.config.core.v3 import base_pb2
from headrace_protos.envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2
from xds_server.gateway import DECISION_KEY, METADATA_NAMESPACE


@dataclass(frozen=True, slots=True)
class _Cause:
    flags: tuple[str, ...]
    status: int
    code: str
    message: str
    type: str = "server_error"
    answered: int | None = None
    asked_by: str | None = None  # a request's header


_NO_GOOD = "The token does not count: %LOCAL_REPLY_BODY%."
_NO_UPGRADE = "The gateway takes no upgraded connections, such as WebSocket; send plain requests."
_CAUSES = (
    _Cause(("UH",), 503, "no_healthy_node", "No node of the pool is healthy now; retry shortly."),
    _Cause(("NC", "NR"), 503, "pool_unknown", "The pool is not known to the gateway yet, or no longer; retry shortly."),
    _Cause(("UO",), 503, "overloaded", "The gateway carries as many requests as it may; retry shortly."),
    _Cause(("UF", "URX"), 503, "node_unreachable", "No node of the pool could be reached; retry shortly."),
    _Cause(("UT", "DT"), 504, "node_timeout", "The node did not answer in time; shorten the request or its output."),
    _Cause(("UC", "UR", "LR"), 502, "node_disconnected", "The node closed the connection before it answered."),
    _Cause(("UPE",), 502, "node_protocol_error", "The node's answer is not valid HTTP."),
    _Cause((), 403, "upgrade_refused", _NO_UPGRADE, "invalid_request_error", asked_by="upgrade"),
    _Cause((), 401, "invalid_api_key", _NO_GOOD, "invalid_request_error"),
    _Cause((), 403, "invalid_api_key", _NO_GOOD, "invalid_request_error", answered=401),  # of another audience
    _Cause((), 413, "body_too_large", "The request body is larger than the gateway takes.", "invalid_request_error"),
    _Cause(("SI",), 408, "idle_timeout", "The request came to a halt; send it again.", "invalid_request_error"),
)

CODES = frozenset(cause.code for cause in _CAUSES)

_Mapper = http_connection_manager_pb2.ResponseMapper


def local_reply_config() -> http_connection_manager_pb2.LocalReplyConfig:
    return http_connection_manager_pb2.LocalReplyConfig(mappers=[_mapper(cause) for cause in _CAUSES])


def error_body(code: str, message: str, kind: str = "server_error") -> str:
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


def _by_flags(flags: tuple[str, ...]) -> accesslog_pb2.AccessLogFilter:
    return accesslog_pb2.AccessLogFilter(response_flag_filter={"flags": flags})


def _undecided(cause: _Cause) -> accesslog_pb2.AccessLogFilter:
    # A key is demanded.
    value = {"default_value": cause.status, "runtime_key": f"headrace.local_reply.{cause.status}"}
    by_status = accesslog_pb2.AccessLogFilter(status_code_filter={"comparison": {"op": "EQ", "value": value}})
    # What is there matches only if it is this, which a decision never is.
    nothing = {"filter": METADATA_NAMESPACE, "path": [{"key": DECISION_KEY}], "value": {"string_match": {"exact": ""}}}
    undecided = accesslog_pb2.AccessLogFilter(
        metadata_filter={"matcher": nothing, "match_if_key_not_found": {"value": True}}
    )
    filters = [by_status, undecided]
    if cause.asked_by is not None:
        asked = {"header": {"name": cause.asked_by, "present_match": True}}
        filters.append(accesslog_pb2.AccessLogFilter(header_filter=asked))
    return accesslog_pb2.AccessLogFilter(and_filter={"filters": filters})


def _mapper(cause: _Cause) -> http_connection_manager_pb2.ResponseMapper:
    mapper = _Mapper(
        filter=_by_flags(cause.flags) if cause.flags else _undecided(cause),
        status_code={"value": cause.answered or cause.status},
        body_format_override={
            "text_format_source": {"inline_string": error_body(cause.code, cause.message, cause.type)},
            "content_type": "application/json",
        },
    )
    if cause.status == 503:
        mapper.headers_to_add.append(
            base_pb2.HeaderValueOption(
                header={"key": "retry-after", "value": "1"},
                append_action=base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
            )
        )
    return mapper
