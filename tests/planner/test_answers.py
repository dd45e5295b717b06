"""Answers out of streams, in the shapes that llama.cpp and vLLM send."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.quality.answers import Answer, AnswerError, AnswerReader


def chunk(**choice: Any) -> str:
    return json.dumps({"choices": [{"index": 0, **choice}]})


def read(*events: str, done: bool = True) -> Answer:
    reader = AnswerReader()
    for place, data in enumerate((*events, *(["[DONE]"] if done else [])), 1):
        reader.take(data, place / 10)
    return reader.finish(9.0)


def test_a_chat_answer_is_put_together_with_its_tokens_and_times() -> None:
    answer = read(
        chunk(delta={"role": "assistant", "content": None}),
        chunk(delta={"content": "Hel"}, logprobs={"content": [{"token": "Hel", "logprob": -0.5}]}),
        chunk(delta={"content": "lo"}, logprobs={"content": [{"token": "lo", "logprob": -0.25}]}),
        chunk(delta={}, finish_reason="stop"),
        json.dumps({"choices": [], "usage": {"completion_tokens": 3}}),
    )
    assert answer == Answer("Hello", ("Hel", "lo"), (-0.5, -0.25), 3, 0.2, 0.3, 9.0)


def test_a_completion_has_its_log_probabilities_in_the_older_form_or_the_newer() -> None:
    older = read(chunk(text="Once", logprobs={"tokens": ["On", "ce"], "token_logprobs": [-1, -2]}))
    newer = read(chunk(text="Once", logprobs={"content": [{"token": "Once", "logprob": -3}]}), chunk(text=""))
    assert (older.text, older.tokens, older.logprobs) == ("Once", ("On", "ce"), (-1.0, -2.0))
    assert (newer.text, newer.tokens, newer.logprobs) == ("Once", ("Once",), (-3.0,))


def test_calls_of_tools_and_reasoning_are_text_too() -> None:
    call = {"index": 0, "function": {"name": "get_weather", "arguments": '{"city":'}}
    more = {"index": 0, "function": {"arguments": '"Porto"}'}}
    answer = read(
        chunk(delta={"reasoning_content": "Hm. "}),
        chunk(delta={"tool_calls": [call]}),
        chunk(delta={"tool_calls": [more]}),
    )
    assert answer.text == 'Hm. get_weather{"city":"Porto"}'
    assert answer.tokens == ()


def test_an_engine_without_log_probabilities_gives_text_alone() -> None:
    answer = read(chunk(delta={"content": "Hi"}, logprobs=None), json.dumps({"choices": [], "usage": None}))
    assert (answer.text, answer.tokens, answer.output_tokens) == ("Hi", (), None)


@pytest.mark.parametrize(
    "event", ['{"error": {"message": "secret"}}', "secret", "[1]", '{"choices": [7]}', '{"choices": 3}']
)
def test_what_is_no_answer_is_an_error_that_quotes_nothing(event: str) -> None:
    with pytest.raises(AnswerError) as caught:
        read(event)
    assert "secret" not in str(caught.value)


def test_a_stream_that_was_cut_is_an_error() -> None:
    with pytest.raises(AnswerError, match="ended before"):
        read(chunk(delta={"content": "Hi"}), done=False)


def test_the_rate_is_of_decoding_alone_and_of_enough_tokens() -> None:
    assert Answer("x", output_tokens=11, first_text=2.0, last_text=4.0).tokens_per_second == 5.0
    assert Answer("x", output_tokens=7, first_text=2.0, last_text=4.0).tokens_per_second is None
    assert Answer("x", output_tokens=11, first_text=2.0, last_text=2.0).tokens_per_second is None
    assert Answer("", output_tokens=11).tokens_per_second is None
