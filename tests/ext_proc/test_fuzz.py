"""Whatever a client sends: one answer, never of the filter's own fault, and always one that Envoy can use."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.model import Endpoint, HttpRequest, Refusal
from controlplane.policy.ask import parse
from controlplane.policy.body import Chat, Completion, Responses
from ext_proc import wire
from ext_proc.answer import Reply
from ext_proc.exchange import Exchange, TooLarge
from headrace_protos.envoy.service.ext_proc.v3 import external_processor_pb2 as messages
from support.asks import make_table
from support.filter import (
    TRANSPORTS,
    AnyTransport,
    Client,
    body_message,
    headers_message,
    metadata_of,
    new_router,
    not_extended,
    running_filter,
)

# Envoy refuses header values with these (RFC 9110, field values).
ILLEGAL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
FUZZED_MAX_BODY = 4096
MOST_METADATA_BYTES = 16 * 1024

PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
    "/v1/models",
    "/v1/audio/speech",
)
NAMES = ("llama", "llama-awq", "llama-alias", "no\r\nsuch: model", "m" * 300, "\ud800", "\u2028\u6a21\u578b", "")
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**31 - 1, 2**63, -(2**63) - 1, 2**64, 10**400, -1, 0, 1, 1024, 5000])
    | st.floats()
    | st.text()
    | st.sampled_from(NAMES)
    | st.sampled_from(["\udc00", "0", "1e999", "NaN", "data:image/png;base64,AAAA", "user", "text", "none"])
)
PARTS = st.sampled_from(
    ["role", "content", "type", "text", "input", "output", "function", "arguments", "tool_calls", "effort", "format"]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(PARTS | st.text(max_size=4), inner, max_size=4)
        | st.fixed_dictionaries({"role": st.sampled_from(["user", "system", "tool"]), "content": inner}).map(
            lambda message: [message]
        )
    ),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    [*Chat.__struct_fields__, *Responses.__struct_fields__, *Completion.__struct_fields__, "stop", "logit_bias"]
)
OBJECTS = st.builds(
    lambda known, model: {**known, "model": model},
    st.dictionaries(FIELDS, VALUES, max_size=8),
    st.sampled_from(NAMES) | VALUES,
)


def _encoded(value: object, ascii_: bool) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=ascii_).encode()
    except UnicodeEncodeError:  # lone surrogates are JSON only when escaped
        return json.dumps(value).encode()


def _nested(pair: tuple[int, str]) -> bytes:
    depth, field = pair
    return b'{"model":"llama","%s":%s1%s}' % (field.encode(), b'{"content":[' * depth, b"]}" * depth)


JSON_BODIES = st.builds(_encoded, OBJECTS, st.booleans())
BODIES = (
    JSON_BODIES
    | JSON_BODIES.map(lambda body: body[:-1])
    | st.builds(_encoded, VALUES, st.booleans())
    | st.binary(max_size=200)
    | st.builds(lambda value, to: json.dumps(value).encode(to), OBJECTS, st.sampled_from(["utf-16-le", "utf-32-be"]))
    | st.tuples(st.sampled_from([10, 400, 490, 500, 3000]), FIELDS).map(_nested)
    | st.tuples(st.binary(max_size=20), JSON_BODIES).map(lambda pair: pair[1].replace(b"llama", b"ll" + pair[0]))
)
HEADERS = st.dictionaries(
    st.sampled_from(
        ["x-session-id", "session_id", "content-length", "content-encoding", "content-type", "headrace-wish-debug"]
    )
    | st.text(max_size=10),
    st.sampled_from(["1", "true", "gzip", "identity", "a\r\nx-headrace-pool: b", "9" * 400, "s" * 5000])
    | st.text(max_size=20),
    max_size=4,
)
METHODS = st.sampled_from(["POST", "POST", "POST", "GET", "PUT", "OPTIONS"]) | st.text(max_size=8)


def assert_usable(answer: messages.ProcessingResponse) -> None:
    """One answer of a kind that fits the request's headers, with legal headers and bounded, readable metadata."""
    kind = answer.WhichOneof("response")
    if kind == "immediate_response":
        assert 200 <= answer.immediate_response.status.code < 500, answer
        options = answer.immediate_response.headers.set_headers
        assert json.loads(answer.immediate_response.body)
        assert len(answer.immediate_response.body) < 4096
        assert re.fullmatch("[a-z_]+", answer.immediate_response.details)
    else:
        assert kind == "request_headers", answer
        options = answer.request_headers.response.header_mutation.set_headers
        assert [option.header.key for option in options] == ["x-headrace-pool"]
    for option in options:
        assert not option.header.value
        assert option.header.raw_value
        assert not ILLEGAL.search(option.header.raw_value), option
    # Envoy makes response headers of these.
    for key, value in metadata_of(answer).items():
        assert value.isascii(), key
        assert not ILLEGAL.search(value.encode()), key
    assert answer.dynamic_metadata.ByteSize() < MOST_METADATA_BYTES


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(METHODS, st.sampled_from(PATHS) | st.text(max_size=30), HEADERS, BODIES)
def test_any_request_gets_an_answer_that_is_no_fault_of_the_filter(
    method: str, path: str, headers: dict[str, str], body: bytes
) -> None:
    answer = asyncio.run(new_router().answer(HttpRequest(method, path, headers, body), not_extended))
    assert_usable(wire.response(answer))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(PATHS[:5]), HEADERS, JSON_BODIES | st.tuples(st.just(400), FIELDS).map(_nested))
def test_any_json_object_is_read_on_every_endpoint(path: str, headers: dict[str, str], body: bytes) -> None:
    headers.pop("content-encoding", None)
    asked = parse(HttpRequest("POST", path, headers, body), make_table().policy)
    assert not isinstance(asked, Refusal), asked


@given(st.sampled_from(PATHS), st.integers(0, 2**40))
def test_too_large_requests_get_an_answer_on_every_endpoint(path: str, limit: int) -> None:
    answer = asyncio.run(new_router().answer(TooLarge(HttpRequest("POST", path, {}, b""), limit), not_extended))
    assert isinstance(answer, Reply)
    assert answer.status == 413
    assert_usable(wire.response(answer))


@pytest.fixture(scope="module")
def runner() -> Any:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def clients(runner: asyncio.Runner) -> Any:
    """Of a filter on each transport that outlives the examples of a test, in a loop of its own."""
    stacks = [_client(kind) for kind in TRANSPORTS]
    yield [runner.run(_next(stack)) for stack in stacks]
    for stack in stacks:
        runner.run(_last(stack))


async def _client(kind: AnyTransport) -> AsyncIterator[Client]:
    async with running_filter(max_body_bytes=FUZZED_MAX_BODY, kind=kind) as client:
        yield client


def _next(stack: AsyncIterator[Client]) -> Coroutine[Any, Any, Client]:
    return stack.__anext__()  # type: ignore[return-value]


async def _last(stack: AsyncIterator[Client]) -> None:
    await anext(stack, None)


def _headers(headers: dict[str, str], method: str, path: str, end: bool) -> messages.ProcessingRequest:
    return headers_message(headers, method=method, path=path, end=end)


MESSAGES = (
    st.builds(
        lambda h, m, p, e: headers_message(h, method=m, path=p, end=e),
        HEADERS,
        METHODS,
        st.sampled_from(PATHS),
        st.booleans(),
    )
    | st.builds(lambda data, end: body_message(data, end=end), BODIES, st.booleans())
    | st.builds(lambda data, end: body_message(data, end=end), st.just(b"x" * 3000), st.booleans())
    | st.sampled_from(
        [
            messages.ProcessingRequest(),
            messages.ProcessingRequest(request_trailers=messages.HttpTrailers()),
            messages.ProcessingRequest(response_headers=messages.HttpHeaders(end_of_stream=True)),
            messages.ProcessingRequest(response_body=messages.HttpBody(body=b"x", end_of_stream=True)),
            messages.ProcessingRequest(response_trailers=messages.HttpTrailers()),
        ]
    )
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sequence=st.lists(MESSAGES, max_size=6))
def test_any_sequence_of_messages_gets_one_answer_once_the_request_is_whole_and_a_clean_end(
    runner: asyncio.Runner, clients: list[Client], sequence: list[messages.ProcessingRequest]
) -> None:
    exchange = Exchange(FUZZED_MAX_BODY)
    taken = [wire.take(exchange, message) is not None for message in sequence]
    # gRPC's client cannot write to a stream that the server has ended.
    sent = sequence[: taken.index(True) + 1] if True in taken else sequence
    answers, others = [runner.run(client.send(*sent)) for client in clients]
    assert answers == others
    assert len(answers) == taken.count(True) <= 1
    for answer in answers:
        assert_usable(answer)


def test_endpoints_are_all_tried() -> None:
    assert len(PATHS) == len(Endpoint)
