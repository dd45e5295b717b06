"""What is sent of a request."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.model import FormatTier
from controlplane.policy.settings import SessionRules
from planner.quality.asking import Mode, body_to_send, headers_to_send, is_greedy, without_logprobs
from planner.quality.sample import COMPLETIONS, Sample

MESSAGES = [{"role": "user", "content": "Hello"}]
RULES = SessionRules()


def sent(mode: Mode, sample: Sample, max_tokens: int = 64) -> dict[str, Any]:
    return body_to_send(sample, mode, "m", max_tokens=max_tokens, seed=5, rules=RULES)


def test_greedy_is_temperature_0_with_the_seed_and_one_answer() -> None:
    body = {"messages": MESSAGES, "temperature": 0.9, "top_p": 0.9, "presence_penalty": 1, "n": 3, "stop": ["x"]}
    found = sent(Mode.GREEDY, Sample(1, body))
    assert found == {
        "messages": MESSAGES,
        "stop": ["x"],
        "temperature": 0,
        "seed": 5,
        "max_tokens": 64,
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "logprobs": True,
        "top_logprobs": 1,
    }


def test_as_asked_keeps_the_requests_own_sampling_and_sets_no_seed() -> None:
    found = sent(Mode.AS_ASKED, Sample(1, {"messages": MESSAGES, "temperature": 0.9, "top_p": 0.9}))
    assert (found["temperature"], found["top_p"]) == (0.9, 0.9)
    assert "seed" not in found
    assert sent(Mode.AS_ASKED, Sample(1, {"messages": MESSAGES, "seed": 8}))["seed"] == 8


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, {"max_tokens": 64}),
        ({"max_tokens": 10}, {"max_tokens": 10}),
        ({"max_tokens": 1000}, {"max_tokens": 64}),
        ({"max_completion_tokens": 1000}, {"max_completion_tokens": 64}),
        ({"max_completion_tokens": 9}, {"max_completion_tokens": 9}),
    ],
)
def test_the_cap_is_the_lower_of_the_two(own: dict[str, int], expected: dict[str, int]) -> None:
    found = sent(Mode.AS_ASKED, Sample(1, {"messages": MESSAGES, **own}))
    assert {name: value for name, value in found.items() if "max" in name} == expected


def test_a_request_is_sent_in_no_session() -> None:
    body = {"messages": MESSAGES, "session_id": "s", "metadata": {"session_id": "s", "team": "a"}}
    sample = Sample(1, body, headers={"x-session-id": "s", "x-team": "a"})
    found = sent(Mode.AS_ASKED, sample)
    assert "session_id" not in found
    assert found["metadata"] == {"team": "a"}
    assert body["metadata"] == {"session_id": "s", "team": "a"}
    headers = headers_to_send(
        sample, {"authorization": "Bearer k", "x-headrace-format": "full"}, FormatTier.FULL, RULES
    )
    assert headers == {
        "x-team": "a",
        "authorization": "Bearer k",
        "x-headrace-format": "full",
        "x-headrace-debug": "1",
    }


def test_headers_that_are_about_the_message_as_it_was_sent_once_are_left_out() -> None:
    sample = Sample(1, {"messages": MESSAGES}, headers={"host": "h", "content-length": "9", "x-headrace-debug": "0"})
    assert headers_to_send(sample, {}, FormatTier.QUANTIZED, RULES) == {
        "x-headrace-format": "quantized",
        "x-headrace-debug": "1",
    }


def test_completions_ask_for_log_probabilities_in_their_own_way() -> None:
    found = sent(Mode.GREEDY, Sample(1, {"prompt": "Once"}, COMPLETIONS))
    assert found["logprobs"] == 1
    assert not {"logprobs", "top_logprobs"} & set(without_logprobs(found))


@pytest.mark.parametrize(
    ("body", "greedy"),
    [
        ({}, False),
        ({"temperature": 0}, True),
        ({"temperature": 0.0, "top_p": 1}, True),
        ({"temperature": 0.1}, False),
        ({"temperature": 0.9, "top_k": 1}, True),
        ({"temperature": None}, False),
        ({"temperature": "0"}, False),
    ],
)
def test_a_request_is_greedy_by_itself_at_temperature_0_or_top_k_1(body: dict[str, Any], greedy: bool) -> None:
    assert is_greedy(body) is greedy
