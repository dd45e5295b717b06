"""From one entry of Envoy's HTTP access log to a recorded decision.

The filter leaves its decision in the request's dynamic metadata, Envoy's usage filters leave the engine's token counts
there, and the access log brings both with the outcome. An error's message may quote the prompt: what it is about is
told here, and nothing of it is kept.
"""

from __future__ import annotations

import base64
import binascii
import re

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct

from controlplane.ledger.mistakes import misroute
from controlplane.ledger.sessions import SessionHistory
from headrace_protos.envoy.data.accesslog.v3 import accesslog_pb2
from headrace_protos.headrace.v1 import decision_pb2

DECISION_NAMESPACE = "headrace"
DECISION_KEY = "decision"
USAGE_NAMESPACE = "headrace.usage"
PROMPT_TOKENS_KEY = "prompt_tokens"
COMPLETION_TOKENS_KEY = "completion_tokens"
# Of llama.cpp's timings, for streams without usage.
READ_TOKENS_KEY = "read_tokens"
CACHED_TOKENS_KEY = "cached_tokens"
PREDICTED_TOKENS_KEY = "predicted_tokens"
FINISH_REASON_KEY = "finish_reason"
ERROR_TYPE_KEY = "error_type"
ERROR_CODE_KEY = "error_code"
ERROR_MESSAGE_KEY = "error_message"
_TOKEN_KEYS = (
    PROMPT_TOKENS_KEY,
    COMPLETION_TOKENS_KEY,
    READ_TOKENS_KEY,
    CACHED_TOKENS_KEY,
    PREDICTED_TOKENS_KEY,
)

# What the access log has beside its own times: until the first byte of the answer's body, in microseconds.
FIRST_CONTENT_TAG = "first_content_us"

MOST_TOKENS = 2**31
_FINISH_REASON = re.compile(r"[a-z_]{1,40}")

# By what engines tell that a request is too long for their context: llama.cpp by a type, OpenAI's own API by a code;
# vLLM, SGLang and older ones of llama.cpp only in words.
CONTEXT_ERROR_TYPES = frozenset({"exceed_context_size_error"})
CONTEXT_ERROR_CODES = frozenset({"context_length_exceeded"})
CONTEXT_ERROR_WORDS = re.compile(
    r"maximum context length|maximum model length|max_model_len|model's context length|available context size",
    re.IGNORECASE,
)


def recorded_decision(
    entry: accesslog_pb2.HTTPAccessLogEntry, sessions: SessionHistory
) -> decision_pb2.RecordedDecision:
    """Never refuses an entry: what is missing or of a wrong type is left unset.

    The session that served it is the one of `sessions` that was in force when Envoy began to send the request there.
    """
    common = entry.common_properties
    metadata = common.metadata.filter_metadata
    outcome = decision_pb2.Outcome(
        status=entry.response.response_code.value,
        upstream=_address(common.upstream_remote_address),
        cluster=common.upstream_cluster,
        duration_seconds=_seconds(common.duration),
        flags=_flags(common.response_flags),
        attempts=common.upstream_request_attempt_count,
        details=entry.response.response_code_details,
    )
    sent_at = common.start_time.ToNanoseconds() / 1e9 + _seconds(common.time_to_first_upstream_tx_byte)
    if (session := sessions.at(outcome.upstream, sent_at)) is not None:
        outcome.node_id = session.spec.node_id
        outcome.node_session_id = session.session_id
    if common.HasField("time_to_first_upstream_rx_byte"):
        outcome.first_byte_seconds = _seconds(common.time_to_first_upstream_rx_byte)
    if common.HasField("time_to_last_rx_byte"):
        outcome.received_seconds = _seconds(common.time_to_last_rx_byte)
    if (content := common.custom_tags.get(FIRST_CONTENT_TAG, "")).isascii() and content.isdigit():
        outcome.first_content_seconds = int(content) / 1e6
    if common.HasField("time_to_last_upstream_rx_byte"):
        outcome.last_byte_seconds = _seconds(common.time_to_last_upstream_rx_byte)
    usage = metadata[USAGE_NAMESPACE] if USAGE_NAMESPACE in metadata else Struct()
    if (prompt_tokens := _prompt_tokens(usage)) is not None:
        outcome.prompt_tokens = prompt_tokens
    if (completion_tokens := _first(usage, COMPLETION_TOKENS_KEY, PREDICTED_TOKENS_KEY)) is not None:
        outcome.completion_tokens = completion_tokens
    if _FINISH_REASON.fullmatch(reason := _text(usage, FINISH_REASON_KEY)):
        outcome.finish_reason = reason
    outcome.context_exceeded = outcome.status == 400 and _is_about_context(usage)
    outcome.usage_unreadable = any(key in usage.fields and _tokens(usage, key) is None for key in _TOKEN_KEYS)
    recorded = decision_pb2.RecordedDecision(
        request_id=entry.request.request_id,
        time=common.start_time,
        outcome=outcome,
    )
    if DECISION_NAMESPACE in metadata:
        decision = _decision(metadata[DECISION_NAMESPACE])
        if decision is not None:
            recorded.decision.CopyFrom(decision)
            recorded.misroute = misroute(decision, outcome) or ""
    return recorded


def _decision(metadata: Struct) -> decision_pb2.Decision | None:
    if DECISION_KEY not in metadata.fields:
        return None
    try:
        encoded = base64.b64decode(metadata.fields[DECISION_KEY].string_value, validate=True)
        return decision_pb2.Decision.FromString(encoded)
    except (binascii.Error, DecodeError):
        return None


def _prompt_tokens(usage: Struct) -> int | None:
    if PROMPT_TOKENS_KEY in usage.fields:
        return _tokens(usage, PROMPT_TOKENS_KEY)
    read, cached = _tokens(usage, READ_TOKENS_KEY), _tokens(usage, CACHED_TOKENS_KEY)
    return None if read is None or cached is None else read + cached


def _first(usage: Struct, *keys: str) -> int | None:
    """Of the first of the keys that is there."""
    return next((_tokens(usage, key) for key in keys if key in usage.fields), None)


def _tokens(usage: Struct, key: str) -> int | None:
    if key not in usage.fields:
        return None
    value = usage.fields[key]
    if value.WhichOneof("kind") != "number_value" or not 0 <= value.number_value < MOST_TOKENS:
        return None
    return int(value.number_value)


def _text(usage: Struct, key: str) -> str:
    """Empty when there is none."""
    return usage.fields[key].string_value if key in usage.fields else ""


def _is_about_context(usage: Struct) -> bool:
    return (
        _text(usage, ERROR_TYPE_KEY) in CONTEXT_ERROR_TYPES
        or _text(usage, ERROR_CODE_KEY) in CONTEXT_ERROR_CODES
        or CONTEXT_ERROR_WORDS.search(_text(usage, ERROR_MESSAGE_KEY)) is not None
    )


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9


def _address(address: object) -> str:
    socket = getattr(address, "socket_address", None)
    if socket is None or not socket.address:
        return ""
    host = f"[{socket.address}]" if ":" in socket.address else socket.address
    return f"{host}:{socket.port_value}"


def _flags(flags: accesslog_pb2.ResponseFlags) -> list[str]:
    return [field.name for field, _ in flags.ListFields()]
