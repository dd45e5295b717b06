"""From one entry of Envoy's HTTP access log to a request that has ended.

The filter leaves its decision in the request's dynamic metadata, Envoy's usage filters leave the engine's token counts
there, and the access log brings both with the outcome. An error's message may quote the prompt: what it is about is
told here, and nothing of it is kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import msgspec
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct, Value

from controlplane.ledger.ended import NOT_DECIDED, Decided, Ended, Outcome, decided
from controlplane.ledger.mistakes import misroute
from controlplane.ledger.sessions import SessionHistory
from headrace_protos.envoy.config.core.v3 import address_pb2
from headrace_protos.envoy.data.accesslog.v3 import accesslog_pb2

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

_TEXT_KEYS = frozenset({FINISH_REASON_KEY, ERROR_TYPE_KEY, ERROR_CODE_KEY, ERROR_MESSAGE_KEY})
_Time = Literal["time_to_last_rx_byte", "time_to_first_upstream_rx_byte", "time_to_last_upstream_rx_byte"]
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


def ended_request(entry: accesslog_pb2.HTTPAccessLogEntry, sessions: SessionHistory) -> Ended:
    """Never refuses an entry: what is missing or of a wrong type is left unset.

    The session that served it is the one of `sessions` that was in force when Envoy began to send the request there.
    """
    common, response = entry.common_properties, entry.response
    start, metadata = common.start_time, common.metadata.filter_metadata
    seconds, nanos, status = start.seconds, start.nanos, response.response_code.value
    upstream = _address(common.upstream_remote_address)
    node_id = node_session_id = ""
    if upstream:
        sent_at = seconds + nanos / 1e9 + _seconds(common.time_to_first_upstream_tx_byte)
        if (session := sessions.at(upstream, sent_at)) is not None:
            node_id, node_session_id = session.spec.node_id, session.session_id
    usage = _usage(metadata[USAGE_NAMESPACE], status) if USAGE_NAMESPACE in metadata else _NO_USAGE
    outcome = Outcome(
        status=status,
        upstream=upstream,
        cluster=common.upstream_cluster,
        duration_seconds=_seconds(common.duration),
        first_byte_seconds=_told(common, "time_to_first_upstream_rx_byte"),
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        flags=_flags(common),
        attempts=common.upstream_request_attempt_count,
        details=response.response_code_details,
        node_id=node_id,
        node_session_id=node_session_id,
        received_seconds=_told(common, "time_to_last_rx_byte"),
        first_content_seconds=_first_content(common),
        last_byte_seconds=_told(common, "time_to_last_upstream_rx_byte"),
        finish_reason=usage.finish_reason,
        context_exceeded=usage.context_exceeded,
        usage_unreadable=usage.unreadable,
    )
    decision, encoded, made = NOT_DECIDED, None, _UNKNOWN
    if DECISION_NAMESPACE in metadata:
        ours = metadata[DECISION_NAMESPACE].fields
        made = _made(ours)
        decision, encoded = _decision(ours)
    return Ended(
        entry.request.request_id,
        seconds,
        nanos,
        decision,
        encoded,
        outcome,
        *made,
        misroute="" if encoded is None else misroute(decision, outcome) or "",
    )


class _Usage(msgspec.Struct, frozen=True, gc=False):
    """The tokens that the engine counted, and how the answer ended."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    unreadable: bool = False
    finish_reason: str = ""
    context_exceeded: bool = False


_NO_USAGE = _Usage()
_UNKNOWN = ("", 0, 0)


def _told(common: accesslog_pb2.AccessLogCommon, time: _Time) -> float | None:
    return _seconds(getattr(common, time)) if common.HasField(time) else None


def _first_content(common: accesslog_pb2.AccessLogCommon) -> float | None:
    content = common.custom_tags.get(FIRST_CONTENT_TAG, "")
    return int(content) / 1e6 if content.isascii() and content.isdigit() else None


def _flags(common: accesslog_pb2.AccessLogCommon) -> tuple[str, ...]:
    if not common.HasField("response_flags"):
        return ()
    return tuple(field.name for field, _ in common.response_flags.ListFields())


def _usage(told: Struct, status: int) -> _Usage:
    """Usage, where it is, before llama.cpp's timings."""
    fields = told.fields
    if len(fields) == 2 and PROMPT_TOKENS_KEY in fields and COMPLETION_TOKENS_KEY in fields:  # as nearly always
        prompt, completion = _tokens(fields[PROMPT_TOKENS_KEY]), _tokens(fields[COMPLETION_TOKENS_KEY])
        return _Usage(prompt, completion, prompt is None or completion is None)
    tokens = {key: _tokens(fields[key]) for key in _TOKEN_KEYS if key in fields}
    prompt = tokens.get(PROMPT_TOKENS_KEY)
    if PROMPT_TOKENS_KEY not in tokens:
        read, cached = tokens.get(READ_TOKENS_KEY), tokens.get(CACHED_TOKENS_KEY)
        prompt = None if read is None or cached is None else read + cached
    completion = tokens.get(COMPLETION_TOKENS_KEY if COMPLETION_TOKENS_KEY in tokens else PREDICTED_TOKENS_KEY)
    texts = {key: fields[key].string_value for key in _TEXT_KEYS if key in fields}
    reason = texts.get(FINISH_REASON_KEY, "")
    return _Usage(
        prompt,
        completion,
        unreadable=None in tokens.values(),
        finish_reason=reason if _FINISH_REASON.fullmatch(reason) else "",
        context_exceeded=status == 400 and _is_about_context(texts),
    )


def _made(ours: Mapping[str, Value]) -> tuple[str, int, int]:
    """Which decision of which filter worker it is: the worker's name, the Unix minute, and its number."""
    if MADE_KEY in ours and (made := _MADE.fullmatch(ours[MADE_KEY].string_value)):
        worker, minute, number = made.groups()
        return worker, int(minute), int(number)
    return _UNKNOWN


def _decision(ours: Mapping[str, Value]) -> tuple[Decided, bytes | None]:
    """What is looked at of it, and the whole; NOT_DECIDED and None where there is none that can be read."""
    if DECISION_KEY not in ours:
        return NOT_DECIDED, None
    try:
        # Base64, by msgspec, which is quicker than Python's own.
        encoded = msgspec.convert(ours[DECISION_KEY].string_value, bytes)
        return decided(encoded), encoded
    except (msgspec.ValidationError, DecodeError):
        return NOT_DECIDED, None


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


def _seconds(time: Duration) -> float:
    return time.seconds + time.nanos / 1e9


def _address(address: address_pb2.Address) -> str:
    socket = address.socket_address
    host = socket.address
    if not host:
        return ""
    return f"[{host}]:{socket.port_value}" if ":" in host else f"{host}:{socket.port_value}"
