"""The filters that read token counts, and why an answer ended or was refused, out of responses into dynamic metadata,
and so into the access log.

Whole JSON bodies and server-sent events; the last value of a stream counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

from google.protobuf import any_pb2

from headrace_protos.envoy.extensions.common.matching.v3 import extension_matcher_pb2
from headrace_protos.envoy.extensions.content_parsers.json.v3 import json_content_parser_pb2
from headrace_protos.envoy.extensions.filters.common.matcher.action.v3 import skip_action_pb2
from headrace_protos.envoy.extensions.filters.http.json_to_metadata.v3 import json_to_metadata_pb2
from headrace_protos.envoy.extensions.filters.http.sse_to_metadata.v3 import sse_to_metadata_pb2
from headrace_protos.envoy.type.matcher.v3 import http_inputs_pb2
from headrace_protos.xds.core.v3 import extension_pb2
from headrace_protos.xds.type.matcher.v3 import matcher_pb2
from xds_server.gateway import Gateway, UsageRule
from xds_server.resource import packed

_JsonToMetadata = json_to_metadata_pb2.JsonToMetadata
_Predicate: TypeAlias = matcher_pb2.Matcher.MatcherList.Predicate

# The last event of a response of OpenAI's `responses` API repeats the whole answer beside its usage.
_MAX_EVENT_BYTES = 1 << 20

# The usual one, which is looked for first, and all others, with parameters too: llama.cpp says
# `application/json; charset=utf-8`.
_USUAL_CONTENT_TYPE = "application/json"
_JSON_CONTENT_TYPES = r"(?i)application/json\s*(;.*)?"


def json_usage(gateway: Gateway) -> extension_matcher_pb2.ExtensionWithMatcher:
    """Of whole answers. The filter holds a body back until it is whole, and fails the answer if the body exceeds the
    buffer.

    So it is skipped for bodies said to be near that size, and for those of unknown size but where usage is expected.
    """
    return _from_json(gateway, gateway.usage, _too_much(gateway))


def json_errors(gateway: Gateway) -> extension_matcher_pb2.ExtensionWithMatcher:
    """Why a request was refused with 400. An error's message may quote the request, so no other answer's is read."""
    status = packed(http_inputs_pb2.HttpResponseHeaderMatchInput(header_name=":status"))
    return _from_json(gateway, gateway.errors, [_not(_matches("status", status, "400")), *_too_much(gateway)])


def _from_json(
    gateway: Gateway, rules: Iterable[UsageRule], unless: Iterable[_Predicate]
) -> extension_matcher_pb2.ExtensionWithMatcher:
    filter_ = _JsonToMetadata(
        response_rules={
            "rules": [_rule(gateway, rule) for rule in rules],
            "allow_content_types": [_USUAL_CONTENT_TYPE],
            "allow_content_types_regex": {"google_re2": {}, "regex": _JSON_CONTENT_TYPES},
        }
    )
    skip = extension_pb2.TypedExtensionConfig(name="skip", typed_config=packed(skip_action_pb2.SkipFilter()))
    return extension_matcher_pb2.ExtensionWithMatcher(
        extension_config={"name": "json_to_metadata", "typed_config": packed(filter_)},
        xds_matcher=matcher_pb2.Matcher(
            matcher_list={"matchers": [{"predicate": predicate, "on_match": {"action": skip}} for predicate in unless]}
        ),
    )


def _too_much(gateway: Gateway) -> list[_Predicate]:
    length = packed(http_inputs_pb2.HttpResponseHeaderMatchInput(header_name="content-length"))
    path = packed(http_inputs_pb2.HttpRequestHeaderMatchInput(header_name=":path"))
    too_large = _matches("content-length", length, rf"\d{{{len(str(gateway.buffer_bytes))},}}")
    unknown = _not(_matches("content-length", length, ".+"))
    elsewhere = _not(_matches("path", path, rf"(?:{'|'.join(map(re.escape, gateway.usage_paths))})(?:\?.*)?"))
    return [too_large, _Predicate(and_matcher={"predicate": [unknown, elsewhere]})]


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


def _matches(name: str, source: any_pb2.Any, regex: str) -> _Predicate:
    return _Predicate(
        single_predicate={
            "input": {"name": name, "typed_config": source},
            "value_match": {"safe_regex": {"google_re2": {}, "regex": regex}},
        }
    )


def _not(predicate: _Predicate) -> _Predicate:
    return _Predicate(not_matcher=predicate)


def _rule(gateway: Gateway, usage: UsageRule) -> json_to_metadata_pb2.JsonToMetadata.Rule:
    return _JsonToMetadata.Rule(
        selectors=[{"key": key} for key in usage.path],
        on_present={
            "metadata_namespace": f"{gateway.metadata_namespace}.usage",
            "key": usage.key,
            "type": _JsonToMetadata.STRING if usage.text else _JsonToMetadata.NUMBER,
        },
    )
