"""From one entry of Envoy's HTTP access log to a recorded decision.

The filter leaves its decision in the request's dynamic metadata, Envoy's usage filters leave the engine's token counts
there, and the access log brings both with the outcome. An error's message may quote the prompt: what it is about is
told here, and nothing of it is kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from controlplane.ledger.mistakes import misroute
from controlplane.ledger.sessions import SessionHistory
from headrace_protos.envoy.config.core.v3 import address_pb2
from headrace_protos.envoy.data.accesslog.v3 import accesslog_pb2
from headrace_protos.headrace.v1 import decision_pb2

DECISION_NAMESPACE = "headrace"
DECISION_KEY = "decision"
MADE_KEY = "made"
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
_TOKEN_KEYS = frozenset(
    {PROMPT_TOKENS_KEY, COMPLETION_TOKENS_KEY, READ_TOKENS_KEY, CACHED_TOKENS_KEY, PREDICTED_TOKENS_KEY}
)

_READ_KEYS = _TOKEN_KEYS | {FINISH_REASON_KEY, ERROR_TYPE_KEY, ERROR_CODE_KEY, ERROR_MESSAGE_KEY}
_MADE = re.compile(r"([\w-]{1,40}) (\d{1,9}) (\d{1,9})", re.ASCII)

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
    recorded = decision_pb2.RecordedDecision(request_id=entry.request.request_id, time=common.start_time)
    outcome = recorded.outcome
    _take_times(common, outcome)
    _take_answer(common, entry.response, outcome)
    if outcome.upstream:
        sent_at = _seconds(common.start_time) + _seconds(common.time_to_first_upstream_tx_byte)
        if (session := sessions.at(outcome.upstream, sent_at)) is not None:
            outcome.node_id = session.spec.node_id
            outcome.node_session_id = session.session_id
    if USAGE_NAMESPACE in metadata:
        _take_usage(metadata[USAGE_NAMESPACE], outcome)
    if DECISION_NAMESPACE in metadata:
        ours = metadata[DECISION_NAMESPACE]
        _take_number(ours, recorded)
        if _take_decision(ours, recorded):
            recorded.misroute = misroute(recorded.decision, outcome) or ""
    return recorded


def _take_times(common: accesslog_pb2.AccessLogCommon, outcome: decision_pb2.Outcome) -> None:
    outcome.duration_seconds = _seconds(common.duration)
    if common.HasField("time_to_first_upstream_rx_byte"):
        outcome.first_byte_seconds = _seconds(common.time_to_first_upstream_rx_byte)
    if common.HasField("time_to_last_rx_byte"):
        outcome.received_seconds = _seconds(common.time_to_last_rx_byte)
    if (content := common.custom_tags.get(FIRST_CONTENT_TAG, "")).isascii() and content.isdigit():
        outcome.first_content_seconds = int(content) / 1e6
    if common.HasField("time_to_last_upstream_rx_byte"):
        outcome.last_byte_seconds = _seconds(common.time_to_last_upstream_rx_byte)


def _take_answer(
    common: accesslog_pb2.AccessLogCommon,
    response: accesslog_pb2.HTTPResponseProperties,
    outcome: decision_pb2.Outcome,
) -> None:
    outcome.status = response.response_code.value
    outcome.details = response.response_code_details
    outcome.upstream = _address(common.upstream_remote_address)
    outcome.cluster = common.upstream_cluster
    outcome.attempts = common.upstream_request_attempt_count
    if common.HasField("response_flags"):
        outcome.flags.extend(field.name for field, _ in common.response_flags.ListFields())


def _take_usage(usage: Struct, outcome: decision_pb2.Outcome) -> None:
    """The tokens that the engine counted, and how the answer ended; usage, where it is, before llama.cpp's timings."""
    fields = usage.fields
    told = {key: fields[key] for key in fields if key in _READ_KEYS}
    tokens = {key: _tokens(value) for key, value in told.items() if key in _TOKEN_KEYS}
    outcome.usage_unreadable = None in tokens.values()
    prompt_tokens = tokens.get(PROMPT_TOKENS_KEY)
    if PROMPT_TOKENS_KEY not in tokens:
        read, cached = tokens.get(READ_TOKENS_KEY), tokens.get(CACHED_TOKENS_KEY)
        prompt_tokens = None if read is None or cached is None else read + cached
    if prompt_tokens is not None:
        outcome.prompt_tokens = prompt_tokens
    completion_tokens = tokens.get(COMPLETION_TOKENS_KEY if COMPLETION_TOKENS_KEY in tokens else PREDICTED_TOKENS_KEY)
    if completion_tokens is not None:
        outcome.completion_tokens = completion_tokens
    if len(told) > len(tokens):
        texts = {key: value.string_value for key, value in told.items()}
        if _FINISH_REASON.fullmatch(reason := texts.get(FINISH_REASON_KEY, "")):
            outcome.finish_reason = reason
        outcome.context_exceeded = outcome.status == 400 and _is_about_context(texts)


def _take_number(metadata: Struct, recorded: decision_pb2.RecordedDecision) -> None:
    """Which decision of which filter worker it is."""
    if MADE_KEY in metadata.fields and (made := _MADE.fullmatch(metadata.fields[MADE_KEY].string_value)):
        recorded.worker, minute, number = made.groups()
        recorded.worker_minute, recorded.worker_number = int(minute), int(number)


def _take_decision(metadata: Struct, recorded: decision_pb2.RecordedDecision) -> bool:
    """Whether there is one that can be read."""
    fields = metadata.fields
    if DECISION_KEY not in fields:
        return False
    decision = recorded.decision
    try:
        # Base64, by msgspec, which is quicker than Python's own.
        decision.MergeFromString(msgspec.convert(fields[DECISION_KEY].string_value, bytes))
    except (msgspec.ValidationError, DecodeError):
        recorded.ClearField("decision")
        return False
    decision.SetInParent()
    return True


def _tokens(value: Value) -> int | None:
    """None when it is no count of tokens."""
    if value.HasField("number_value") and 0 <= (number := value.number_value) < MOST_TOKENS:
        return int(number)
    return None


def _is_about_context(texts: Mapping[str, str]) -> bool:
    return (
        texts.get(ERROR_TYPE_KEY) in CONTEXT_ERROR_TYPES
        or texts.get(ERROR_CODE_KEY) in CONTEXT_ERROR_CODES
        or CONTEXT_ERROR_WORDS.search(texts.get(ERROR_MESSAGE_KEY, "")) is not None
    )


def _seconds(time: Duration | Timestamp) -> float:
    return time.seconds + time.nanos / 1e9


def _address(address: address_pb2.Address) -> str:
    socket = address.socket_address
    host = socket.address
    if not host:
        return ""
    return f"[{host}]:{socket.port_value}" if ":" in host else f"{host}:{socket.port_value}"
