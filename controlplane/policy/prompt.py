"""Gathers the prompt's text out of a decoded body, whichever API's shape it has.

Text counts once; pictures, sounds and files are counted, not measured, since their encoded bytes are not text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from controlplane.model import Endpoint
from controlplane.policy.text import cut_data_uris

# How deep content may hold content: a tool result's parts in a message's parts.
_MAX_DEPTH = 3
# Messages and parts that are looked at. No conversation has so many, and looking at millions of empty ones, which fit
# into a body, would take seconds.
_MOST_PIECES = 20_000


class PromptFields(Protocol):
    """The part of a body that holds prompt text; every field may be of any type."""

    messages: Any
    prompt: Any
    input: Any
    instructions: Any
    system: Any


@dataclass(slots=True)
class Prompt:
    """What was gathered: all texts, those that tell about the task, and what is not text. `calls` are the arguments of
    tool calls in the conversation; `token_ids` counts the tokens of prompts that are given as such. Grows while
    it is read, and is not kept."""

    texts: list[str] = field(default_factory=list)
    system: list[str] = field(default_factory=list)
    first_user: str = ""
    last_user: str = ""
    messages: int = 0
    images: int = 0
    calls: list[str] = field(default_factory=list)
    token_ids: int = 0
    pieces: int = 0
    is_cut: bool = False
    """There were more pieces than are looked at: what was gathered is not the whole prompt."""

    def take(self, pieces: list[Any]) -> list[Any]:
        """Those of the pieces that are still looked at."""
        left = _MOST_PIECES - self.pieces
        self.is_cut = self.is_cut or len(pieces) > left
        self.pieces += min(len(pieces), left)
        return pieces if len(pieces) <= left else pieces[:left]


def read_prompt(endpoint: Endpoint, body: PromptFields) -> Prompt:
    """The prompt of a request to `endpoint`."""
    prompt = Prompt()
    match endpoint:
        case Endpoint.CHAT | Endpoint.MESSAGES:
            _read_system(prompt, body.system)
            _read_messages(prompt, body.messages)
        case Endpoint.RESPONSES:
            _read_system(prompt, body.instructions)
            if isinstance(body.input, str):
                _read_message(prompt, "user", body.input)
            else:
                _read_messages(prompt, body.input)
        case _:
            _read_completion(prompt, body.prompt)
    return prompt


def _read_system(prompt: Prompt, content: object) -> None:
    if content:
        _read_message(prompt, "system", content)


def _read_messages(prompt: Prompt, messages: object) -> None:
    if not isinstance(messages, list):
        return
    for message in prompt.take(messages):
        if isinstance(message, dict):
            _read_message(prompt, message.get("role"), message.get("content"))
            _read_calls(prompt, message)


def _read_message(prompt: Prompt, role: object, content: object) -> None:
    prompt.messages += 1
    before = len(prompt.texts)
    _read_content(prompt, content, 0)
    if role in ("user", "system", "developer"):
        text = "\n".join(prompt.texts[before:])
        if role != "user":
            prompt.system.append(text)
        elif text:
            prompt.first_user = prompt.first_user or text
            prompt.last_user = text


def _read_content(prompt: Prompt, content: object, depth: int) -> None:
    if isinstance(content, str):
        text, uris = cut_data_uris(content)
        prompt.texts.append(text)
        prompt.images += uris
    elif isinstance(content, list) and depth < _MAX_DEPTH:
        for part in prompt.take(content):
            if isinstance(part, dict):
                _read_part(prompt, part, depth)
            elif isinstance(part, str):
                _read_content(prompt, part, depth)


def _read_part(prompt: Prompt, part: dict[str, Any], depth: int) -> None:
    """One part of a content list. A part that has text is text, whatever its type is called."""
    for name in ("text", "refusal", "thinking", "content", "output"):
        inner = part.get(name)
        if isinstance(inner, str | list):
            _read_content(prompt, inner, depth + 1)
            return
    kind = part.get("type")
    if kind == "tool_use":
        _add_call(prompt, msgspec.json.encode(part.get("input")).decode())
    elif isinstance(kind, str):
        prompt.images += 1


def _read_calls(prompt: Prompt, message: dict[str, Any]) -> None:
    """Calls that the model made before: in a chat message, or as an item of its own in the responses API."""
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        for call in prompt.take(calls):
            if isinstance(call, dict):
                _read_call(prompt, call.get("function"))
    _read_call(prompt, message.get("function_call"))
    _read_call(prompt, message)
    output = message.get("output")
    if isinstance(output, str | list):
        _read_content(prompt, output, 0)


def _read_call(prompt: Prompt, call: object) -> None:
    arguments = call.get("arguments") if isinstance(call, dict) else None
    if isinstance(arguments, str):
        _add_call(prompt, arguments)


def _add_call(prompt: Prompt, arguments: str) -> None:
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
