"""Parsing: lenient with what engines accept, clear about what none could read."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.model import Ask, Endpoint, HttpRequest, Refusal
from controlplane.policy.ask import endpoint_of, parse
from controlplane.policy.body import Chat, Completion, Responses
from controlplane.policy.settings import REQUEST_ID_HEADERS, Policy, SessionRules
from controlplane.policy.text import count_text
from support.asks import make_ask, make_chat, make_request

POLICY = Policy()


def refusal(request: HttpRequest) -> Refusal:
    result = parse(request, POLICY)
    assert isinstance(result, Refusal), result
    return result


@pytest.mark.parametrize(
    ("method", "path", "endpoint"),
    [
        ("POST", "/v1/chat/completions", Endpoint.CHAT),
        ("POST", "/v1/chat/completions/", Endpoint.CHAT),
        ("POST", "/openai/v1/chat/completions?api-version=1", Endpoint.CHAT),
        ("POST", "/v1/completions", Endpoint.COMPLETIONS),
        ("POST", "/v1/responses", Endpoint.RESPONSES),
        ("POST", "/anthropic/v1/messages", Endpoint.MESSAGES),
        ("POST", "/v1/embeddings", Endpoint.EMBEDDINGS),
        ("GET", "/v1/models", Endpoint.MODELS),
        ("GET", "/proxy/v1/models?limit=5", Endpoint.MODELS),
        ("POST", "/v1/models", Endpoint.OTHER),
        ("GET", "/v1/chat/completions", Endpoint.OTHER),
        ("POST", "/v1/audio/transcriptions", Endpoint.OTHER),
        ("POST", "/v1/messages/count_tokens", Endpoint.OTHER),
        ("GET", "", Endpoint.OTHER),
    ],
)
def test_the_end_of_the_path_names_the_api(method: str, path: str, endpoint: Endpoint) -> None:
    assert endpoint_of(method, path) is endpoint


def test_a_chat_tells_what_routing_needs() -> None:
    ask = make_ask(
        {
            "model": "llama",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "One?"},
                {"role": "assistant", "content": "1"},
                {"role": "user", "content": [{"type": "text", "text": "Two?"}]},
            ],
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 1,
            "min_p": 0.1,
            "seed": 7,
            "n": 2,
            "max_tokens": 50,
            "stream": True,
        }
    )
    assert (ask.endpoint, ask.model) == (Endpoint.CHAT, "llama")
    assert (ask.system, ask.first_user, ask.last_user) == ("Be brief.", "One?", "Two?")
    assert (ask.temperature, ask.top_p, ask.top_k, ask.min_p, ask.seed) == (0.5, 0.9, 1, 0.1, 7)
    assert (ask.choices, ask.output_cap, ask.stream, ask.features.messages) == (2, 50, True, 4)
    assert ask.features.text.total == len("Be brief.\nOne?\n1\nTwo?")


def test_every_api_gives_its_system_prompt_and_its_user_turn() -> None:
    for ask in (
        make_chat("Hello", system="Be kind."),
        make_ask({"instructions": "Be kind.", "input": "Hello"}, "/v1/responses"),
        make_ask(
            {
                "instructions": "Be kind.",
                "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}],
            },
            "/v1/responses",
        ),
        make_ask({"system": "Be kind.", "messages": [{"role": "user", "content": "Hello"}]}, "/v1/messages"),
        make_ask(
            {
                "system": [{"type": "text", "text": "Be kind."}],
                "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
            },
            "/v1/messages",
        ),
    ):
        assert (ask.system, ask.last_user) == ("Be kind.", "Hello")
    assert make_ask({"prompt": "Hello"}, "/v1/completions").last_user == "Hello"


def test_a_completion_may_be_given_as_token_ids_or_as_several_prompts() -> None:
    assert make_ask({"prompt": list(range(100))}, "/v1/completions").features.token_ids == 100
    assert make_ask({"prompt": [[1, 2], [3]]}, "/v1/completions").features.token_ids == 3
    assert make_ask({"prompt": ["ab", "cd"]}, "/v1/completions").features.text.total == len("ab\ncd")


@pytest.mark.parametrize(
    "content", [None, 5, True, {}, [], [None], [[["deep"]]], "", [{"type": 5}], [{"text": 5}], [{"image_url": None}]]
)
def test_content_of_any_shape_is_taken(content: Any) -> None:
    ask = make_ask({"model": "llama", "messages": [{"role": "user", "content": content}, None, 7, "text"]})
    assert ask.model == "llama"


def test_pictures_are_counted_and_their_bytes_are_not_text() -> None:
    """Facts row: production code (bytes of pictures are not text)."""
    uri = "data:image/png;base64," + "iVBORw0KGgo" * 1000
    ask = make_ask(
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is this?"},
                        {"type": "image_url", "image_url": {"url": uri}},
                        {"type": "image", "source": {"type": "base64", "data": "AAAA" * 1000}},
                    ],
                }
            ]
        }
    )
    assert (ask.features.images, ask.features.text.total) == (2, len("What is this?"))
    inline = make_chat(f"Look: ![picture]({uri}) and say.")
    assert (inline.features.images, inline.features.text.total) == (1, len("Look: ![picture]( ) and say."))


def test_tools_calls_and_schemas_are_counted() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    features = make_ask({"messages": [], "tools": [tool, tool]}).features
    assert (features.tools, features.text) == (2, count_text(json.dumps([tool, tool])))
    called = make_ask({"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "x" * 90}}]}]})
    assert (called.features.calls, called.features.text.letters) == (1, 90)
    used = {"role": "assistant", "content": [{"type": "tool_use", "input": {"city": "Ulm"}}]}
    features = make_ask({"messages": [used]}, "/v1/messages").features
    assert (features.calls, features.text) == (1, count_text('{"city":"Ulm"}'))
    assert make_ask({"messages": [], "functions": [{"name": "f"}]}).features.tools == 1
    schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}
    formed = make_ask({"messages": [], "response_format": schema}).features
    assert (formed.schema_bytes, formed.text.total) == (len(json.dumps(schema)), 0)
    odd: Any
    for odd in (None, 5, "tools", {}):
        assert make_ask({"messages": [], "tools": odd}).features.tools == 0


def test_pictures_in_arguments_and_tools_are_no_text() -> None:
    uri = "data:image/png;base64," + "A" * 5000
    call = {"function": {"arguments": json.dumps({"picture": uri})}}
    tool = {"type": "function", "function": {"name": "f", "description": uri}}
    features = make_ask({"messages": [{"role": "assistant", "tool_calls": [call]}], "tools": [tool]}).features
    assert features.images == 2
    assert features.text.total < 200


@pytest.mark.parametrize(
    ("path", "fields", "structured"),
    [
        ("/v1/chat/completions", {"response_format": {"type": "json_object"}}, True),
        ("/v1/chat/completions", {"response_format": {"type": "json_schema", "json_schema": {}}}, True),
        ("/v1/chat/completions", {"response_format": {"type": "text"}}, False),
        ("/v1/chat/completions", {"response_format": "json"}, False),
        ("/v1/chat/completions", {"response_format": None}, False),
        ("/v1/chat/completions", {"response_format": {"type": []}}, False),
        ("/v1/responses", {"text": {"format": {"type": {}}}}, False),
        ("/v1/chat/completions", {"guided_json": {"type": "object"}}, True),
        ("/v1/chat/completions", {"guided_regex": "[0-9]+"}, True),
        ("/v1/chat/completions", {"structured_outputs": {"choice": ["a"]}}, True),
        ("/v1/chat/completions", {"guided_json": None}, False),
        ("/v1/responses", {"text": {"format": {"type": "json_schema"}}}, True),
        ("/v1/responses", {"text": {"verbosity": "low"}}, False),
    ],
)
def test_a_prescribed_form_is_noticed(path: str, fields: dict[str, Any], structured: bool) -> None:
    assert make_ask(fields, path).structured_output is structured


@pytest.mark.parametrize(
    ("fields", "reasoning"),
    [
        ({"reasoning_effort": "high"}, True),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": 3}, False),
        ({"reasoning": {"effort": "low"}}, True),
        ({"thinking": {"type": "enabled", "budget_tokens": 1000}}, True),
        ({"thinking": {"type": "disabled"}}, False),
        ({"chat_template_kwargs": {"enable_thinking": True}}, True),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False),
    ],
)
def test_reasoning_is_noticed(fields: dict[str, Any], reasoning: bool) -> None:
    assert make_ask(fields).reasoning is reasoning


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"logprobs": True}, True),
        ({"logprobs": False}, False),
        ({"logprobs": 5}, True),
        ({"top_logprobs": 2}, True),
        ({"top_logprobs": 0}, False),
        ({"logprobs": None}, False),
    ],
)
def test_logprobs_are_noticed(fields: dict[str, Any], asked: bool) -> None:
    assert make_ask(fields).logprobs is asked


@pytest.mark.parametrize(
    ("fields", "cap"),
    [
        ({"max_tokens": 100}, 100),
        ({"max_completion_tokens": 50, "max_tokens": 100}, 50),
        ({"max_output_tokens": 70}, 70),
        ({"max_tokens": "100"}, 100),
        ({"max_tokens": 100.0}, 100),
        ({"max_tokens": None}, None),
        ({"max_tokens": -1}, None),
        ({"max_tokens": 0}, None),
        ({"max_tokens": True}, None),
        ({"max_tokens": "many"}, None),
        ({"max_tokens": [5]}, None),
        ({"max_tokens": 10**30}, 2**31 - 1),
    ],
)
def test_the_first_usable_output_cap_counts(fields: dict[str, Any], cap: int | None) -> None:
    assert make_ask(fields).output_cap == cap


@pytest.mark.parametrize(
    ("value", "temperature"),
    [(0, 0.0), ("0.5", 0.5), (False, None), ("hot", None), ({}, None), ([0], None)],
)
def test_a_temperature_of_a_wrong_type_is_absent(value: Any, temperature: float | None) -> None:
    ask = make_ask({"temperature": value, "model": "llama"})
    assert ask.model == "llama"
    assert ask.temperature == temperature


def test_what_python_reads_as_json_is_read() -> None:
    def read(body: bytes) -> Ask:
        return make_ask(body)

    assert read(b'{"model":"a","temperature":NaN}').temperature is None
    assert read(b'{"model":"a","temperature":-Infinity}').temperature is None
    assert read(b'{"model":"a","temperature":1e999}').temperature is None
    assert read(b'{"model":"a","seed":' + b"9" * 5000 + b"}").seed == 2**63 - 1
    assert read(b'{"model":"a","x":"\\ud800","messages":[{"role":"user","content":"\\udfff!"}]}').last_user == "?!"
    assert read(b'\xef\xbb\xbf{"model":"a"}').model == "a"
    assert read(b'{"model":"a","response_format":{"type":"json_object","x":NaN}}').structured_output


def test_of_equal_keys_the_last_counts() -> None:
    assert make_ask(b'{"model":"a","temperature":1,"model":"b","temperature":0}').model == "b"
    assert make_ask(b'{"temperature":1,"temperature":0}').temperature == 0


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "line 1, column 1"),
        (b'{"model": "a",\n "temperature": }', "line 2, column 17"),
        (b"{'model': 1}", "line 1, column 2"),
        (b'{"model":"a"} tail', "column 15"),
        (b"[1, 2]", "not an array"),
        (b"null", "not null"),
        (b'"text"', "not a string"),
        (b"12", "not a number"),
        (b"true", "not a boolean"),
        (b'{"model":"\xff"}', "byte 10 is not valid UTF-8"),
        (b'{"other":"\xed\xa0\x80"}', "byte 10 is not valid UTF-8"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b'{"tools":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    ],
)
def test_what_no_engine_could_read_is_refused_with_the_place(body: bytes, says: str) -> None:
    answer = refusal(make_request(body))
    assert (answer.status, answer.type, answer.code) == (400, "invalid_request_error", "invalid_json")
    assert says in answer.message


def test_a_body_of_more_objects_than_can_be_read_in_time_is_refused_and_long_text_is_not() -> None:
    chat = b'{"model":"a","messages":[{"role":"user","content":"%s"}],"n":[%s]}'
    answer = refusal(make_request(chat % (b"x", b"[]," * 400_000 + b"1")))
    assert (answer.status, answer.code) == (400, "invalid_json")
    assert "more than 200000 objects and arrays" in answer.message
    assert isinstance(parse(make_request(chat % (b"f(x[0]) = 1; " * 190_000, b"1")), Policy()), Ask)


@pytest.mark.parametrize("depth", [100, 300, 900, 990])
def test_deep_nesting_is_read_or_refused_but_never_breaks(depth: int) -> None:
    nest = b"[" * depth + b"]" * depth
    for body in (
        b'{"messages":[{"role":"user","content":' + nest + b"}]}",
        b'{"messages":[{"role":"user","content":[{"type":"tool_use","input":' + nest + b"}]}]}",
        b'{"tools":' + nest + b"}",
        b'{"response_format":' + nest + b"}",
    ):
        result = parse(make_request(body), POLICY)
        assert isinstance(result, Ask) or result.status == 400


def test_a_refusal_shows_nothing_of_the_prompt() -> None:
    answer = refusal(make_request(b'{"messages": "my secret is 1234", oops}'))
    assert "secret" not in answer.message


def test_a_compressed_body_is_refused_and_identity_is_not() -> None:
    assert refusal(make_request(b"\x1f\x8b", headers={"content-encoding": "gzip"})).status == 415
    assert make_ask({"model": "a"}, headers={"content-encoding": "identity"}).model == "a"


def test_unknown_endpoints_pass_with_the_model_if_the_body_names_one() -> None:
    assert make_ask({"model": "a", "text": "x"}, "/v1/rerank").model == "a"
    for body in (b"", b"--boundary\r\nmodel", b"{broken", b"\xff", b'{"model": 5}', b"{" * 100_000):
        ask = make_ask(body, "/v1/audio/transcriptions")
        assert (ask.endpoint, ask.model) == (Endpoint.OTHER, None)


def test_sessions_come_from_headers_first_then_from_the_body() -> None:
    body = {"metadata": {"session_id": "from-body"}}
    assert make_ask(body, headers={"x-session-id": "a", "session_id": "b"}).session == "a"
    assert make_ask(body, headers={"session_id": "b"}).session == "b"
    assert make_ask(body).session == "from-body"
    assert make_ask({"metadata": {"session_id": 5}}).session is None
    assert make_ask({"metadata": "session_id"}).session is None
    assert make_ask({"user": "someone"}).session is None
    by_user = Policy(sessions=SessionRules(body_fields=("user",)))
    assert make_ask({"user": "someone"}, policy=by_user).session == "someone"


@pytest.mark.parametrize("name", SessionRules().headers)
def test_each_of_the_usual_headers_names_a_session(name: str) -> None:
    assert make_ask({}, headers={name: "s"}).session == "s"
    assert make_ask(b"not read", "/v1/audio/transcriptions", headers={name: "s"}).session == "s"
    assert make_ask({"session_id": "b"}, headers={name: ""}).session == "b"


def test_a_header_may_be_configured_in_any_case() -> None:
    rules = Policy(sessions=SessionRules(headers=("X-Chat-Id",)))
    assert make_ask({}, headers={"x-chat-id": "s"}, policy=rules).session == "s"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"])
def test_body_fields_name_a_session_whatever_the_api(path: str) -> None:
    by_user = Policy(sessions=SessionRules(body_fields=(*SessionRules().body_fields, "user")))
    for body in ({"metadata": {"session_id": "s"}}, {"session_params": {"session_id": "s"}}, {"session_id": "s"}):
        assert make_ask({"messages": [], **body}, path).session == "s"
        assert make_ask({"messages": [], "user": "u", **body}, path, policy=by_user).session == "s"
    assert make_ask({"messages": [], "user": "u"}, path).session is None
    assert make_ask({"messages": [], "user": "u"}, path, policy=by_user).session == "u"


def test_a_request_id_is_never_a_session() -> None:
    headers = dict.fromkeys(REQUEST_ID_HEADERS, "1")
    careless = Policy(sessions=SessionRules(headers=(*REQUEST_ID_HEADERS, "X-Request-ID")))
    assert make_ask({}, headers=headers).session is None
    assert make_ask({}, headers=headers, policy=careless).session is None


def test_a_long_session_id_is_shortened_and_stays_distinct() -> None:
    first, second = (make_ask({}, headers={"x-session-id": "x" * 5000 + end}).session for end in "ab")
    assert first is not None
    assert second is not None
    assert first != second
    assert len(first) < 100


def test_long_texts_are_read_at_both_ends_only() -> None:
    ask = make_chat("begin " + "x" * 100_000 + " end")
    assert ask.last_user.startswith("begin")
    assert ask.last_user.endswith("end")
    assert len(ask.last_user) < 1000
    assert ask.features.text.total == 100_000 + len("begin  end")


def test_debug_is_asked_for_by_header() -> None:
    assert make_ask({}, headers={"x-headrace-debug": "1"}).debug
    assert not make_ask({}, headers={"x-headrace-debug": "0"}).debug


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["user", "text", "system"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from([*Chat.__struct_fields__, *Responses.__struct_fields__, *Completion.__struct_fields__])
MESSAGES = st.lists(
    st.dictionaries(
        st.sampled_from(["role", "content", "tool_calls", "function_call", "arguments", "output"]), JSON, max_size=5
    ),
    max_size=4,
)
PATHS = st.sampled_from(
    [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/embeddings",
        "/v1/models",
        "/x",
        "",
    ]
)
HEADERS = st.dictionaries(
    st.sampled_from(["content-encoding", "content-type", "x-session-id", "session-id", "x-headrace-debug"]), st.text()
)


@settings(max_examples=200, deadline=None)
@given(
    body=st.dictionaries(FIELDS, JSON | MESSAGES, max_size=12),
    path=PATHS,
    headers=HEADERS,
    method=st.sampled_from(["POST", "GET", "PUT", ""]),
)
def test_any_json_object_is_read_or_refused_without_a_5xx(
    body: dict[str, Any], path: str, headers: dict[str, str], method: str
) -> None:
    data = json.dumps(body).encode()
    result = parse(HttpRequest(method, path, headers, data), POLICY)
    if isinstance(result, Refusal):
        assert result.status == 415
    else:
        assert result.temperature is None or math.isfinite(result.temperature)
        assert result.choices >= 1
        assert result.output_cap is None or result.output_cap > 0


@settings(max_examples=200, deadline=None)
@given(body=st.binary(max_size=200), path=PATHS, headers=HEADERS)
def test_any_bytes_are_read_or_refused_without_a_5xx(body: bytes, path: str, headers: dict[str, str]) -> None:
    result = parse(HttpRequest("POST", path, headers, body), POLICY)
    assert isinstance(result, Ask) or result.status in {400, 415}


@settings(max_examples=100, deadline=None)
@given(cut=st.integers(0, 200), junk=st.binary(max_size=3))
def test_a_damaged_body_is_read_or_refused_without_a_5xx(cut: int, junk: bytes) -> None:
    whole = json.dumps({"model": "a", "messages": [{"role": "user", "content": "Grüße, 你好"}], "tools": [{}]}).encode()
    damaged = whole[:cut] + junk + whole[cut + len(junk) :]
    result = parse(make_request(damaged), POLICY)
    assert isinstance(result, Ask) or result.status == 400


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{}] * 25_000},
        {"messages": [{"role": "user", "content": [{}] * 25_000}]},
        {"messages": [{"role": "assistant", "tool_calls": [{}] * 25_000}]},
        {"prompt": [[1]] * 25_000},
        {"prompt": ["a"] * 25_000},
    ],
)
def test_more_pieces_than_are_looked_at_are_measured_by_the_raw_body(body: dict[str, Any]) -> None:
    path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
    request = make_request({"model": "llama", **body}, path)
    ask = parse(request, POLICY)
    assert isinstance(ask, Ask)
    assert ask.features.is_cut
    assert ask.features.text.total == len(request.body)
    assert ask.features.messages <= 20_000


def test_a_conversation_of_thousands_of_messages_is_read_whole() -> None:
    messages = [{"role": "user", "content": "ab"}] * 19_000
    ask = make_ask({"model": "llama", "messages": messages})
    assert (ask.features.messages, ask.features.text.total) == (19_000, 19_000 * 3 - 1)
