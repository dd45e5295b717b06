"""Requests as a file holds them."""

from __future__ import annotations

import json

import pytest

from controlplane.errors import ConfigurationError
from planner.quality.prompts import PROMPTS
from planner.quality.sample import CHAT, COMPLETIONS, Sample, choose, read_samples

HELLO = {"messages": [{"role": "user", "content": "Hello"}]}


def lines(*values: object) -> str:
    return "\n".join(json.dumps(value) for value in values)


def test_a_line_is_a_body_with_what_is_said_about_it_beside_it() -> None:
    text = lines({**HELLO, "model": "m", "category": " chat ", "headers": {"X-Team": "a"}}, {"prompt": "Once"})
    assert read_samples(text, "f") == (
        Sample(1, {**HELLO, "model": "m"}, CHAT, "chat", {"x-team": "a"}),
        Sample(2, {"prompt": "Once"}, COMPLETIONS),
    )


def test_empty_lines_count_as_lines_only() -> None:
    assert [sample.number for sample in read_samples("\n" + lines(HELLO) + "\n\n" + lines(HELLO) + "\n", "f")] == [2, 4]


def test_every_line_that_is_wrong_is_named_with_what_to_do() -> None:
    text = lines({**HELLO, "category": 3}, [1], {"model": "m"}, {**HELLO, "path": "/v1/messages"}, HELLO) + "\n{"
    with pytest.raises(ConfigurationError) as caught:
        read_samples(text, "f.jsonl")
    assert [fault.split(": ")[0] for fault in caught.value.faults] == [f"f.jsonl:{n}" for n in (1, 2, 3, 4, 6)]
    assert caught.value.faults[2] == "f.jsonl:3: has no messages, which a request to /v1/chat/completions needs"


def test_a_file_without_a_request_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="holds no request"):
        read_samples("\n", "f")


def test_a_choice_is_the_same_for_one_seed_and_holds_nothing_twice() -> None:
    some = choose(PROMPTS, 10, seed=3)
    assert some == choose(PROMPTS, 10, seed=3)
    assert some != choose(PROMPTS, 10, seed=4)
    assert len({sample.number for sample in some}) == 10
    assert sorted(sample.number for sample in choose(PROMPTS, None, 1)) == list(range(1, len(PROMPTS) + 1))
    assert len(choose(PROMPTS, 1000, 1)) == len(PROMPTS)


def test_our_own_prompts_are_of_six_categories_with_six_or_more_each() -> None:
    counts = {category: sum(p.category == category for p in PROMPTS) for category in {p.category for p in PROMPTS}}
    assert set(counts) == {"code", "math", "extraction", "reasoning", "writing", "chat"}
    assert min(counts.values()) >= 6
    assert len({json.dumps(p.body) for p in PROMPTS}) == len(PROMPTS)
