"""Bodies: what is read straight into messages and parts is what the same values of any type give."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.model import Endpoint
from controlplane.policy.body import Chat, Message, Part, read_any_body, read_body
from controlplane.policy.prompt import read_prompt

TEXTS = st.text(max_size=6) | st.sampled_from(["", 'Say "hi"\n', "你好", "data:image/png;base64,AAAA"])
ODD = st.none() | st.booleans() | st.integers(-9, 9) | st.lists(st.integers(0, 9), max_size=2) | st.just({"a": {}})
CALLED = st.fixed_dictionaries({}, optional={"arguments": TEXTS | ODD, "name": TEXTS})
CALLS = st.lists(st.fixed_dictionaries({}, optional={"function": CALLED | ODD, "id": TEXTS}) | ODD, max_size=3)


def contents(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return TEXTS | st.lists(parts | TEXTS, max_size=3)


def parts_of(content: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    texts = dict.fromkeys(("text", "refusal", "thinking", "content", "output"), content | ODD)
    kinds = st.sampled_from(["text", "image_url", "tool_use", 7])
    return st.fixed_dictionaries({}, optional={"type": kinds, "input": ODD, "image_url": ODD, **texts})


CONTENT = contents(parts_of(contents(parts_of(contents(parts_of(TEXTS))))) | ODD) | ODD
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "role": st.sampled_from(["system", "developer", "user", "assistant", "tool", 5]),
            "content": CONTENT,
            "tool_calls": CALLS | ODD,
            "function_call": CALLED | ODD,
            "arguments": TEXTS | ODD,
            "output": CONTENT,
            "name": ODD,
        },
    )
    | ODD,
    max_size=4,
)
BODIES = st.one_of(
    st.tuples(
        st.sampled_from([Endpoint.CHAT, Endpoint.MESSAGES]),
        st.fixed_dictionaries({"messages": MESSAGES | ODD}, optional={"system": CONTENT}),
    ),
    st.tuples(
        st.just(Endpoint.RESPONSES),
        st.fixed_dictionaries({"input": MESSAGES | CONTENT}, optional={"instructions": CONTENT}),
    ),
)


@settings(max_examples=500, deadline=None)
@given(BODIES, st.booleans())
def test_the_types_of_the_values_change_nothing_of_what_is_read(given: tuple[Endpoint, Any], ascii_only: bool) -> None:
    endpoint, value = given
    data = json.dumps(value, ensure_ascii=ascii_only).encode(errors="replace")
    typed, of_any_type = read_prompt(read_body(endpoint, data)), read_prompt(read_any_body(endpoint, data))
    assert typed == of_any_type


def read(value: Any) -> Chat:
    body = read_body(Endpoint.CHAT, json.dumps(value).encode())
    assert isinstance(body, Chat)
    return body


def test_a_prompt_of_the_usual_types_is_read_into_messages_and_parts() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    content = [{"type": "text", "text": "What is this?"}, picture]
    body = read({"messages": [{"role": "user", "content": content, "name": "Ann"}]})
    parts: list[Part | str | None] = [Part("text", "What is this?"), Part("image_url")]
    assert body.messages == [Message("user", parts)]


def test_what_no_rule_needs_is_not_decoded() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, picture]}]
    data = json.dumps({"model": "llama", "messages": messages, "documents": ["B" * 1_000_000]}).encode()
    tracemalloc.start()
    try:
        read_body(Endpoint.CHAT, data)
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "odd",
    [{"tool_calls": {}}, {"content": 5}, {"arguments": {"city": "Ulm"}}, {"function_call": "f"}, {"content": [[]]}],
)
def test_a_field_of_an_odd_type_hides_nothing_else(odd: dict[str, Any]) -> None:
    prompt = read_prompt(read({"messages": [{"role": "user", "content": "One?"}, {"role": "assistant", **odd}]}))
    assert (prompt.last_user, prompt.messages) == ("One?", 2)


def test_a_body_without_unusual_fields_is_known_as_such() -> None:
    usual = {"model": "llama", "messages": [], "temperature": 1, "max_tokens": 5, "stream": True, "user": "a"}
    assert read(usual).is_usual
    for unusual in ({"seed": 1}, {"response_format": {}}, {"reasoning": {}}, {"n": 2}):
        assert not read({**usual, **unusual}).is_usual
