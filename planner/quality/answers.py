"""An answer read event by event out of a stream of chat or completions chunks, with the time at which each came."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

# Fewer tokens tell nothing about the rate.
_LEAST_TIMED_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Answer:
    """`tokens` and `logprobs` are as long as each other, and empty where the engine gave none. Times are in seconds
    since the request was sent: of the first text, the last one, and the end."""

    text: str
    tokens: tuple[str, ...] = ()
    logprobs: tuple[float, ...] = ()
    output_tokens: int | None = None
    first_text: float | None = None
    last_text: float | None = None
    end: float = 0.0

    @property
    def tokens_per_second(self) -> float | None:
        """Of decoding alone, from the first text to the last one."""
        count = self.output_tokens or len(self.tokens)
        if self.first_text is None or self.last_text is None or count < _LEAST_TIMED_TOKENS:
            return None
        seconds = self.last_text - self.first_text
        return (count - 1) / seconds if seconds > 0 else None


class AnswerError(Exception):
    """The stream is none, breaks off, or carries an error. The message holds nothing of the answer."""


@dataclass(slots=True)
class AnswerReader:
    """Takes the data of each server-sent event; `finish` gives the whole answer."""

    _text: list[str] = field(default_factory=list)
    _tokens: list[str] = field(default_factory=list)
    _logprobs: list[float] = field(default_factory=list)
    _output_tokens: int | None = None
    _first_text: float | None = None
    _last_text: float | None = None
    _ended: bool = False

    def take(self, data: str, at: float) -> None:
        """`at` is in seconds since the request was sent. Raises AnswerError."""
        if data == "[DONE]":
            self._ended = True
            return
        try:
            chunk = json.loads(data)
            if "error" in chunk:
                raise AnswerError("the engine broke its answer off with an error")
            usage = chunk.get("usage") or {}
            self._output_tokens = usage.get("completion_tokens", self._output_tokens)
            for choice in chunk.get("choices", ()):
                self._take_choice(choice, at)
        except (ValueError, TypeError, AttributeError, KeyError):
            raise AnswerError("the stream holds something else than completion chunks") from None

    def finish(self, at: float) -> Answer:
        """Raises AnswerError for a stream that was cut."""
        if not self._ended:
            raise AnswerError("the stream ended before its answer did")
        return Answer(
            text="".join(self._text),
            tokens=tuple(self._tokens),
            logprobs=tuple(self._logprobs),
            output_tokens=self._output_tokens,
            first_text=self._first_text,
            last_text=self._last_text,
            end=at,
        )

    def _take_choice(self, choice: dict[str, Any], at: float) -> None:
        text = choice.get("text") or "".join(_texts(choice.get("delta") or {}))
        if text:
            self._text.append(text)
            self._first_text = at if self._first_text is None else self._first_text
            self._last_text = at
        given = choice.get("logprobs") or {}
        for token in given.get("content") or ():
            self._tokens.append(token["token"])
            self._logprobs.append(float(token["logprob"]))
        # The older form, of completions.
        for token, logprob in zip(given.get("tokens") or (), given.get("token_logprobs") or (), strict=True):
            self._tokens.append(token)
            self._logprobs.append(float(logprob))


def _texts(delta: dict[str, Any]) -> list[str]:
    """All that the model wrote: what it thought, what it said, and the calls that it makes."""
    calls = [call.get("function") or {} for call in delta.get("tool_calls") or ()]
    return [
        delta.get("reasoning_content") or delta.get("reasoning") or "",
        delta.get("content") or "",
        *(part for call in calls for part in (call.get("name") or "", call.get("arguments") or "")),
    ]
