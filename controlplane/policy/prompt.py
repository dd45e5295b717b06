"""Gathers the prompt's text out of a body, whichever API's shape it has.

Text counts once; pictures, sounds and files are counted, not measured, since their encoded bytes are not text.
"""

from __future__ import annotations

from typing import Any

import msgspec

from controlplane.policy.body import (
    Body,
    Call,
    Chat,
    Completion,
    Message,
    Part,
    Responses,
    call_of,
    message_of,
    part_of,
)
from controlplane.policy.text import cut_data_uris

# How deep content may hold content: a tool result's parts in a message's parts.
_MAX_DEPTH = 3
# Messages and parts that are looked at. No conversation has so many, and looking at millions of empty ones, which fit
# into a body, would take seconds.
_MOST_PIECES = 20_000
# The roles of messages that tell what to do with the others.
_INSTRUCTING = ("system", "developer")


class Prompt(msgspec.Struct, gc=False):
    """What was gathered: all texts, those that tell about the task, and what is not text. `calls` are the arguments of
    tool calls in the conversation; `token_ids` counts the tokens of prompts that are given as such. Grows while
    it is read, and is not kept."""

    texts: list[str] = []
    system: list[str] = []
    first_user: str = ""
    last_user: str = ""
    messages: int = 0
    images: int = 0
    calls: list[str] = []
    token_ids: int = 0
    pieces: int = 0
    is_cut: bool = False
    """There were more pieces than are looked at: what was gathered is not the whole prompt."""

    def take(self, pieces: list[Any]) -> list[Any]:
        """Those of the pieces that are still looked at."""
        left = _MOST_PIECES - self.pieces
        if len(pieces) <= left:
            self.pieces += len(pieces)
            return pieces
        self.pieces = _MOST_PIECES
        self.is_cut = True
        return pieces[:left]


def read_prompt(body: Body) -> Prompt:
    """The prompt of a request with this body."""
    prompt = Prompt()
    match body:
        case Chat():
            _read_system(prompt, body.system)
            _read_messages(prompt, body.messages)
        case Responses():
            _read_system(prompt, body.instructions)
            if isinstance(body.input, str):
                _read_message(prompt, "user", body.input)
            else:
                _read_messages(prompt, body.input)
        case Completion():
            _read_completion(prompt, body.prompt)
    return prompt


def _read_system(prompt: Prompt, content: object) -> None:
    if content:
        _read_message(prompt, "system", content)


def _read_messages(prompt: Prompt, messages: object) -> None:
    if not isinstance(messages, list):
        return
    for given in prompt.take(messages):
        message = message_of(given) if isinstance(given, dict) else given
        if isinstance(message, Message):
            _read_message(prompt, message.role, message.content)
            if message.tool_calls is not None:
                _read_tool_calls(prompt, message.tool_calls)
            if message.function_call is not None:
                _add_call(prompt, message.function_call.arguments)
            if message.arguments is not None:
                _add_call(prompt, message.arguments)
            if message.output is not None:
                _read_content(prompt, message.output, 0)


def _read_message(prompt: Prompt, role: object, content: object) -> None:
    prompt.messages += 1
    if isinstance(content, str):
        text = _add_text(prompt, content)
    elif role == "user" or role in _INSTRUCTING:
        before = len(prompt.texts)
        _read_content(prompt, content, 0)
        text = "\n".join(prompt.texts[before:])
    else:
        _read_content(prompt, content, 0)
        return
    if role == "user":
        if text:
            prompt.first_user = prompt.first_user or text
            prompt.last_user = text
    elif role in _INSTRUCTING:
        prompt.system.append(text)


def _read_content(prompt: Prompt, content: object, depth: int) -> None:
    if isinstance(content, str):
        _add_text(prompt, content)
    elif isinstance(content, list) and depth < _MAX_DEPTH:
        for given in prompt.take(content):
            part = part_of(given) if isinstance(given, dict) else given
            if isinstance(part, Part):
                _read_part(prompt, part, depth)
            elif isinstance(part, str):
                _add_text(prompt, part)


def _read_part(prompt: Prompt, part: Part, depth: int) -> None:
    """One part of a content list. A part that has text is text, whatever its type is called."""
    for inner in (part.text, part.refusal, part.thinking, part.content, part.output):
        if inner is not None:
            _read_content(prompt, inner, depth + 1)
            return
    if part.type == "tool_use":
        _add_call(prompt, msgspec.json.encode(part.input).decode())
    elif isinstance(part.type, str):
        prompt.images += 1


def _add_text(prompt: Prompt, given: str) -> str:
    text, uris = cut_data_uris(given)
    prompt.texts.append(text)
    prompt.images += uris
    return text


def _read_tool_calls(prompt: Prompt, calls: list[Any]) -> None:
    """Calls that the model made before."""
    for given in prompt.take(calls):
        call = call_of(given) if isinstance(given, dict) else given
        if isinstance(call, Call) and call.function is not None:
            _add_call(prompt, call.function.arguments)


def _add_call(prompt: Prompt, arguments: str | None) -> None:
    if arguments is not None:
        text, uris = cut_data_uris(arguments)
        prompt.calls.append(text)
        prompt.images += uris


def _read_completion(prompt: Prompt, given: object) -> None:
    if isinstance(given, str):
        _read_message(prompt, "user", given)
    elif isinstance(given, list):
        if given and isinstance(given[0], int):
            prompt.token_ids += len(given)
            given = []
        for item in prompt.take(given):
            if isinstance(item, str):
                _read_message(prompt, "user", item)
            elif isinstance(item, list):
                prompt.token_ids += len(item)
    # A completion has no chat template around it.
    prompt.messages = 0
