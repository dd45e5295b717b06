"""The filters that read numbers out of responses into dynamic metadata, and so into the access log.

Whole JSON bodies and server-sent events; the last value of a stream counts.
"""

from __future__ import annotations

from headrace_protos.envoy.extensions.content_parsers.json.v3 import json_content_parser_pb2
from headrace_protos.envoy.extensions.filters.http.json_to_metadata.v3 import json_to_metadata_pb2
from headrace_protos.envoy.extensions.filters.http.sse_to_metadata.v3 import sse_to_metadata_pb2

from xds_server.gateway import Gateway, UsageRule
from xds_server.resource import packed

_JsonToMetadata = json_to_metadata_pb2.JsonToMetadata

# The last event of a response of OpenAI's `responses` API repeats the whole answer beside its usage.
_MAX_EVENT_BYTES = 1 << 20


def json_usage(gateway: Gateway) -> json_to_metadata_pb2.JsonToMetadata:
    return _JsonToMetadata(response_rules={"rules": [_rule(gateway, usage) for usage in gateway.usage]})


def sse_usage(gateway: Gateway) -> sse_to_metadata_pb2.SseToMetadata:
    parser = json_content_parser_pb2.JsonContentParser(
        rules=[{"rule": _rule(gateway, usage)} for usage in gateway.streamed_usage]
    )
    return sse_to_metadata_pb2.SseToMetadata(
        response_rules={
            "content_parser": {"name": "envoy.content_parsers.json", "typed_config": packed(parser)},
            "max_event_size": {"value": _MAX_EVENT_BYTES},
        }
    )


def _rule(gateway: Gateway, usage: UsageRule) -> json_to_metadata_pb2.JsonToMetadata.Rule:
    return _JsonToMetadata.Rule(
        selectors=[{"key": key} for key in usage.path],
        on_present={
            "metadata_namespace": f"{gateway.metadata_namespace}.usage",
            "key": usage.key,
            "type": _JsonToMetadata.NUMBER,
        },
    )
