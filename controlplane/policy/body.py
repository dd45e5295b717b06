"""The shapes of request bodies: those fields of each API that are looked at. What else a body holds is passed over.

Nearly all prompts have the types that the APIs' documents say, and are read straight into messages and parts. One that
has others is read again, as values of any type, of which messages and parts are made one by one as they are looked at.
"""

from __future__ import annotations

from typing import Any

import msgspec

from controlplane.model import Endpoint

ABSENT = msgspec.Raw(b"null")


class Part(msgspec.Struct, gc=False):
    """One part of a message's content; `input` is that of a call of a tool."""

    type: Any = None
    text: str | list[Part | str | None] | None = None
    refusal: str | list[Part | str | None] | None = None
    thinking: str | list[Part | str | None] | None = None
    content: str | list[Part | str | None] | None = None
    output: str | list[Part | str | None] | None = None
    input: Any = None


Content = str | list[Part | str | None] | None


class Called(msgspec.Struct, gc=False):
    arguments: str | None = None


class Call(msgspec.Struct, gc=False):
    function: Called | None = None


class Message(msgspec.Struct, gc=False):
    """A message of a chat, or an item of the responses API, which may be a call or its output."""

    role: Any = None
    content: Content = None
    tool_calls: list[Call | None] | None = None
    function_call: Called | None = None
    arguments: str | None = None
    output: Content = None


class Unusual(msgspec.Struct):
    """The fields that most requests leave out. Any type is let in; those of which little is looked at stay raw."""

    # sampling
    top_k: Any = None
    min_p: Any = None
    seed: Any = None
    n: Any = None
    best_of: Any = None
    logprobs: Any = None
    top_logprobs: Any = None
    prompt_logprobs: Any = None
    # output
    min_tokens: Any = None
    response_format: msgspec.Raw = ABSENT
    text: msgspec.Raw = ABSENT
    output_format: msgspec.Raw = ABSENT
    structured_outputs: msgspec.Raw = ABSENT
    guided_json: msgspec.Raw = ABSENT
    guided_regex: msgspec.Raw = ABSENT
    guided_choice: msgspec.Raw = ABSENT
    guided_grammar: msgspec.Raw = ABSENT
    json_schema: msgspec.Raw = ABSENT
    grammar: msgspec.Raw = ABSENT
    regex: msgspec.Raw = ABSENT
    ebnf: msgspec.Raw = ABSENT
    # reasoning
    reasoning_effort: Any = None
    reasoning: Any = None
    thinking: Any = None
    chat_template_kwargs: Any = None


_UNUSUAL_FIELDS = len(Unusual.__struct_fields__)
_NONE_OF_THEM = msgspec.structs.astuple(Unusual())


class Body(Unusual):
    """What all APIs have in common."""

    model: Any = None
    stream: Any = None
    temperature: Any = None
    top_p: Any = None
    max_completion_tokens: Any = None
    max_tokens: Any = None
    max_output_tokens: Any = None
    tools: msgspec.Raw = ABSENT
    functions: msgspec.Raw = ABSENT
    # sessions: the roots of SESSION_FIELD_ROOTS
    metadata: Any = None
    session_params: Any = None
    session_id: Any = None
    conversation_id: Any = None
    conversation: Any = None
    user: Any = None
    prompt_cache_key: Any = None

    @property
    def is_usual(self) -> bool:
        """Whether it has none of the unusual fields, which are its first."""
        return msgspec.structs.astuple(self)[:_UNUSUAL_FIELDS] == _NONE_OF_THEM


class Chat(Body):
    """A chat, or a request of the messages API, which gives its system prompt apart."""

    system: Any = None
    messages: Any = None


class Responses(Body):
    instructions: Any = None
    input: Any = None


class Completion(Body):
    prompt: Any = None


class _TypedChat(Chat):
    system: Content = None
    messages: list[Message | None] | None = None


class _TypedResponses(Responses):
    instructions: Content = None
    input: str | list[Message | None] | None = None


class _Named(msgspec.Struct):
    model: Any = None


_NAMED = msgspec.json.Decoder(_Named)
_OF_ANY_TYPE: dict[Endpoint, msgspec.json.Decoder[Body]] = {
    Endpoint.CHAT: msgspec.json.Decoder(Chat),
    Endpoint.MESSAGES: msgspec.json.Decoder(Chat),
    Endpoint.RESPONSES: msgspec.json.Decoder(Responses),
    Endpoint.COMPLETIONS: msgspec.json.Decoder(Completion),
    Endpoint.EMBEDDINGS: msgspec.json.Decoder(Body),
}
_TYPED: dict[Endpoint, msgspec.json.Decoder[Body]] = {
    **_OF_ANY_TYPE,
    Endpoint.CHAT: msgspec.json.Decoder(_TypedChat),
    Endpoint.MESSAGES: msgspec.json.Decoder(_TypedChat),
    Endpoint.RESPONSES: msgspec.json.Decoder(_TypedResponses),
}


def read_body(endpoint: Endpoint, data: bytes) -> Body:
    """The body of a request to an API that is looked into.

    Raises `MsgspecError` or `RecursionError` if it is no JSON object that can be read.
    """
    try:
        return _TYPED[endpoint].decode(data)
    except msgspec.ValidationError:
        return read_any_body(endpoint, data)


def read_any_body(endpoint: Endpoint, data: bytes) -> Body:
    """As `read_body`, with values of any type in place of messages, parts and calls."""
    return _OF_ANY_TYPE[endpoint].decode(data)


def model_of(data: bytes) -> object:
    """The model that a body of an unknown API names, which may be no JSON."""
    if data[:64].lstrip()[:1] != b"{":
        return None
    try:
        return _NAMED.decode(data).model
    except (msgspec.MsgspecError, RecursionError):
        return None


def message_of(fields: dict[str, Any]) -> Message:
    calls = fields.get("tool_calls")
    arguments = fields.get("arguments")
    return Message(
        role=fields.get("role"),
        content=_content_of(fields.get("content")),
        tool_calls=calls if isinstance(calls, list) else None,
        function_call=called_of(fields.get("function_call")),
        arguments=arguments if isinstance(arguments, str) else None,
        output=_content_of(fields.get("output")),
    )


def part_of(fields: dict[str, Any]) -> Part:
    return Part(
        type=fields.get("type"),
        text=_content_of(fields.get("text")),
        refusal=_content_of(fields.get("refusal")),
        thinking=_content_of(fields.get("thinking")),
        content=_content_of(fields.get("content")),
        output=_content_of(fields.get("output")),
        input=fields.get("input"),
    )


def call_of(fields: dict[str, Any]) -> Call:
    return Call(called_of(fields.get("function")))


def called_of(value: object) -> Called | None:
    arguments = value.get("arguments") if isinstance(value, dict) else None
    return Called(arguments) if isinstance(arguments, str) else None


def _content_of(value: object) -> Content:
    return value if isinstance(value, str | list) else None
