"""Messages read and written as bytes are what protobuf makes of them, whatever they are."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct, Value
from hypothesis import given
from hypothesis import strategies as st

from controlplane.model import HttpRequest
from ext_proc import raw, wire
from ext_proc.answer import Answer, Reply, Route
from ext_proc.exchange import Exchange, TooLarge
from headrace_protos.envoy.config.core.v3 import base_pb2
from headrace_protos.envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from support.filter import body_message, headers_message

LIMIT = 300

TEXTS = st.text(max_size=8) | st.sampled_from(
    ["x" * 127, "x" * 128, "é" * 300, ":path", "content-length", "x-request-id", "99"]
)
BYTES = st.binary(max_size=40) | st.sampled_from([b"", b"\xff", b"y" * 127, b"y" * 128, b"z" * 20_000])
HEADER_VALUES = st.builds(
    lambda key, value, raw_value: base_pb2.HeaderValue(key=key, value=value, raw_value=raw_value),
    TEXTS | st.sampled_from(["headrace-wish-debug", "x-headrace-wish-debug"]),
    st.just("") | TEXTS,
    BYTES,
)
HTTP_HEADERS = st.builds(
    lambda headers, end, attributes: ext_proc.HttpHeaders(
        headers=base_pb2.HeaderMap(headers=headers), end_of_stream=end, attributes=attributes
    ),
    st.lists(HEADER_VALUES, max_size=6),
    st.booleans(),
    st.sampled_from([{}, {}, {"a": Struct(fields={"b": Value(string_value="c")})}]),
)
HTTP_BODIES = st.builds(
    lambda body, end, compressed, ended: ext_proc.HttpBody(
        body=body, end_of_stream=end, grpc_message_compressed=compressed, end_of_stream_without_message=ended
    ),
    BYTES,
    st.booleans(),
    st.sampled_from([False, False, True]),
    st.sampled_from([False, False, True]),
)
REQUESTS = (
    st.builds(lambda part: ext_proc.ProcessingRequest(request_headers=part), HTTP_HEADERS)
    | st.builds(lambda part: ext_proc.ProcessingRequest(request_body=part), HTTP_BODIES)
    | st.builds(lambda part: ext_proc.ProcessingRequest(response_headers=part), HTTP_HEADERS)
    | st.builds(lambda part: ext_proc.ProcessingRequest(response_body=part), HTTP_BODIES)
    | st.just(ext_proc.ProcessingRequest(request_trailers=ext_proc.HttpTrailers()))
)
EXTRAS = st.sampled_from(
    [
        ext_proc.ProcessingRequest(),
        ext_proc.ProcessingRequest(observability_mode=True),
        ext_proc.ProcessingRequest(protocol_config={"request_body_mode": 2}),
        ext_proc.ProcessingRequest(attributes={"a": Struct(fields={"b": Value(string_value="c")})}),
        ext_proc.ProcessingRequest(metadata_context=base_pb2.Metadata()),
    ]
)


@st.composite
def message_bytes(draw: st.DrawFn) -> bytes:
    """A message as some writer may put it: parts merged by joining, in any order, unknown fields, cut or broken."""
    parts = draw(st.lists(REQUESTS | EXTRAS, min_size=1, max_size=3))
    data = b"".join(part.SerializeToString() for part in parts)
    match draw(st.sampled_from(["whole", "whole", "cut", "changed", "unknown"])):
        case "cut":
            return data[: draw(st.integers(0, len(data)))]
        case "changed" if data:
            at = draw(st.integers(0, min(len(data) - 1, 60)))
            return data[:at] + bytes((draw(st.integers(0, 255)),)) + data[at + 1 :]
        case "unknown":
            return data + b"\xa2\x06\x01x"
    return data


def by_protobuf(exchange: Exchange, message: bytes) -> HttpRequest | TooLarge | None:
    return wire.take(exchange, ext_proc.ProcessingRequest.FromString(message))


def outcome(take: object, exchange: Exchange, message: bytes) -> HttpRequest | TooLarge | type[DecodeError] | None:
    try:
        return take(exchange, message)  # type: ignore[operator, no-any-return]
    except DecodeError:
        return DecodeError


@given(st.lists(message_bytes() | st.binary(max_size=30), min_size=1, max_size=4))
def test_any_sequence_of_messages_makes_the_same_request_either_way(sequence: list[bytes]) -> None:
    ours, theirs = Exchange(LIMIT), Exchange(LIMIT)
    reader = raw.Reader()
    for message in sequence:
        expected = outcome(by_protobuf, theirs, message)
        for _ in range(2):  # the second time out of what is remembered
            assert outcome(reader.take, Exchange(LIMIT), message) == outcome(by_protobuf, Exchange(LIMIT), message)
        assert outcome(reader.take, ours, message) == expected


# What Envoy sends, and the bytes of a header that differs with each request, also where they are none.
CHANGING = b"\n\x13\n\x0econtent-length\x1a\x0142"
NAMES = st.sampled_from([":path", "content-length", "x-request-id", "traceparent", "x-session-id"]) | TEXTS
VALUES = BYTES | st.sampled_from([b"1", b"42", b"9" * 127, b"9" * 200, CHANGING, CHANGING + b"2", b"x" + CHANGING[:-1]])


@given(st.lists(st.tuples(NAMES, VALUES), max_size=8), st.integers(0, 300), st.integers(0, 255), st.booleans())
def test_headers_that_change_are_told_from_bytes_that_look_like_them(
    headers: list[tuple[str, bytes]], at: int, byte: int, changed: bool
) -> None:
    values = [base_pb2.HeaderValue(key=name, raw_value=value) for name, value in headers]
    part = ext_proc.HttpHeaders(headers=base_pb2.HeaderMap(headers=values), end_of_stream=True)
    data = bytearray(ext_proc.ProcessingRequest(request_headers=part).SerializeToString())
    if changed and at < len(data):
        data[at] = byte
    reader = raw.Reader()
    expected = outcome(by_protobuf, Exchange(LIMIT), bytes(data))
    for _ in range(2):
        assert outcome(reader.take, Exchange(LIMIT), bytes(data)) == expected


METADATA = st.dictionaries(
    TEXTS, TEXTS | st.sampled_from(["", "d" * 63, "d" * 64, "d" * 130, "d" * 20_000]), max_size=6
)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple)
ANSWERS = st.builds(
    lambda cluster, metadata, body, off, headers: Route(cluster, metadata, body, tuple(off), headers),
    TEXTS,
    METADATA,
    st.none() | BYTES,
    st.lists(TEXTS, max_size=2),
    PAIRS,
) | st.builds(
    lambda status, headers, body, metadata: Reply(status, headers, body, metadata, "headrace_x"),
    st.sampled_from([200, 413, 429, 503]),
    PAIRS,
    BYTES,
    METADATA,
)


@given(ANSWERS)
def test_any_answer_is_the_same_message_either_way(answer: Answer) -> None:
    for _ in range(2):
        assert ext_proc.ProcessingResponse.FromString(raw.response(answer)) == wire.response(answer)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw, "_MOST_HEADERS", 10)
    monkeypatch.setattr(raw, "_MOST_RUNS", 7)
    reader = raw.Reader()
    for n in range(50):
        message = headers_message({"x": str(n), "long": "y" * 300}, end=True)
        request = reader.take(Exchange(LIMIT), message.SerializeToString())
        assert isinstance(request, HttpRequest)
        assert request.headers["x"] == str(n)
        assert len(reader._headers) <= 10
        assert len(reader._runs) <= 7


def test_the_usual_messages_are_read_without_protobuf(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = headers_message()
    sent.protocol_config.send_body_without_waiting_for_header_response = True
    body = body_message(b"{}" * 5000, end=True).SerializeToString()
    reader = raw.Reader()
    for _ in range(2):
        exchange = Exchange(1 << 20)
        assert reader.take(exchange, sent.SerializeToString()) is None
        request = reader.take(exchange, body)
        assert isinstance(request, HttpRequest)
        assert request.body == b"{}" * 5000
        monkeypatch.setattr(wire, "take", None)
