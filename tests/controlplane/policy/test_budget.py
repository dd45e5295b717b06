"""The token budget: what counts, on the safe side, and what text consists of."""

from __future__ import annotations

import json
from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.features import Category, categorise
from controlplane.model import Ask, Budget, EstimateSource
from controlplane.policy.budget import FROM_CLIENT, budget_of, sequence_tokens
from controlplane.policy.estimator import TENANT_GROUPS, Calibration, Calibrations, RatioEstimator, chance, unlearned
from controlplane.policy.priors import PRIOR_MARGIN
from controlplane.policy.settings import EstimationRules
from controlplane.policy.text import count_text, cut_data_uris
from support.asks import make_ask, make_chat

UNLEARNED = unlearned(EstimationRules())
PROSE = "The quick brown fox jumps over the lazy dog, and nobody minds. "
CODE = "def total(items):\n    return sum(item.price * item.count for item in items if item.count > 0)\n"


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("", Category.PROSE),
        (PROSE, Category.PROSE),
        (CODE, Category.CODE),
        (json.dumps({"title": "A day at the sea", "author": "somebody", "pages": 12}), Category.CODE),
        ("今天天气很好,我们去公园散步吧。", Category.CJK),
        ("今日はとても良い天気なので、公園に散歩に行きましょう。", Category.CJK),
        ("오늘은 날씨가 아주 좋아서 공원에 산책하러 갑니다.", Category.CJK),
        ("Сегодня очень хорошая погода, пойдём гулять.", Category.MIXED),
        ("الطقس جميل جدا اليوم فلنذهب إلى الحديقة", Category.MIXED),
        ("2024-01-02 03:04:05 10.0.0.1 200 1532 0.0031\n", Category.OTHER),
        ("iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4" * 3, Category.OTHER),
        ('{"a":[{"b":"c"},{"d":"e"}],"f":{"g":"h"}}', Category.OTHER),
        (PROSE + "今天天气很好", Category.MIXED),
        ("Le café est très fréquenté cet été, même à midi.", Category.MIXED),
    ],
)
def test_the_category_follows_from_the_bytes(text: str, category: Category) -> None:
    """Facts row: categories."""
    assert categorise(count_text(text)) is category


@given(st.text(alphabet=";:,/=+data.base64 png"))
def test_cutting_data_uris_never_makes_a_text_longer(text: str) -> None:
    left, count = cut_data_uris(text)
    assert len(left) <= len(text)
    assert count == 0 or left != text


def budget(ask: Ask, calibrations: Calibrations = UNLEARNED, max_context: int | None = None) -> Budget:
    return budget_of(
        ask.features,
        calibrations,
        "llama",
        0,
        output_cap=ask.output_cap,
        choices=ask.choices,
        max_context=max_context,
    )


def of_ratio(ratio: float, conservative: float, outputs: int = 450, samples: int = 12) -> Calibrations:
    """As if it were learned of prose."""
    calibration = Calibration(RatioEstimator(ratio, conservative), (outputs,) * TENANT_GROUPS, samples)
    return Calibrations({("llama", Category.PROSE): calibration}, UNLEARNED.priors)


def test_the_prompt_is_the_conservative_estimate_and_says_what_it_rests_on() -> None:
    """Facts row: token estimate."""
    found = budget(make_chat(PROSE * 10, max_tokens=100), of_ratio(5.0, 4.0), 8192)
    size = len(PROSE) * 10
    assert (found.likely_prompt_tokens, found.prompt_tokens) == (ceil(size / 5), ceil(size / 4))
    assert (found.output_tokens, found.total) == (100, found.prompt_tokens + 100)
    assert (found.category, found.rests_on, found.samples) == (Category.PROSE, EstimateSource.LEARNED, 12)
    assert found.ratio == pytest.approx(4.0, rel=0.01)


def test_before_anything_is_learned_the_estimate_is_the_priors() -> None:
    found = budget(make_chat(PROSE * 10))
    assert (found.rests_on, found.samples, found.output_from) == (EstimateSource.PRIOR, 0, "prior")
    likely = found.likely_prompt_tokens
    assert found.prompt_tokens == pytest.approx(likely * (1 + (PRIOR_MARGIN - 1) * chance(likely)), abs=2)


def test_what_is_learned_of_one_category_says_nothing_of_another() -> None:
    assert budget(make_chat("天" * 1000), of_ratio(5.0, 4.0)) == budget(make_chat("天" * 1000))


def test_an_estimate_that_an_operator_keeps_says_so() -> None:
    pinned = replace(of_ratio(5.0, 4.0), pinned=frozenset({"llama"}))
    assert budget(make_chat(PROSE), pinned).rests_on is EstimateSource.PINNED


def test_characters_beyond_ascii_count_and_not_their_bytes() -> None:
    assert 500 <= budget(make_chat("天" * 1000)).prompt_tokens <= 1500


def test_tools_and_pictures_count() -> None:
    """Facts row: production code (framing and pictures count)."""
    plain = budget(make_chat("Hi"))
    tool = {"type": "function", "function": {"name": "f", "description": "x" * 400}}
    tools = budget(make_chat("Hi", tools=[tool]))
    assert tools.prompt_tokens - plain.prompt_tokens > 100
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    seen = budget(make_ask({"messages": [{"role": "user", "content": [picture]}]}))
    assert 1000 <= seen.prompt_tokens <= 2000


@pytest.mark.parametrize(
    ("fields", "output", "source"),
    [
        ({}, 450, "learned"),
        ({"n": 3}, 1350, "learned"),
        ({"max_tokens": 7}, 7, FROM_CLIENT),
        ({"max_tokens": 7, "n": 3}, 21, FROM_CLIENT),
        ({"max_completion_tokens": 5, "max_tokens": 7}, 5, FROM_CLIENT),
        ({"max_tokens": 100_000}, 100_000, FROM_CLIENT),
    ],
)
def test_the_output_is_the_clients_cap_or_what_is_learned_and_says_which(
    fields: dict[str, Any], output: int, source: str
) -> None:
    """Facts row: token estimate (prompt and output)."""
    found = budget(make_chat("Hi", **fields), of_ratio(5.0, 4.0), 8192)
    assert (found.output_tokens, found.output_from) == (output, source)


def test_what_is_expected_is_never_more_than_the_largest_context_leaves() -> None:
    found = budget(make_chat("word " * 700), max_context=1100)
    assert found.prompt_tokens + found.output_tokens == 1100
    full = budget(make_chat("word " * 7000), max_context=1100)
    assert full.output_tokens == 1


def test_choices_share_the_prompt_and_each_needs_its_own_output() -> None:
    found = budget(make_chat("Hi", max_tokens=100, n=8))
    assert found.total == found.prompt_tokens + 800
    assert sequence_tokens(found, 8) == found.prompt_tokens + 100


def test_no_prompt_is_too_large_to_be_told() -> None:
    found = budget(make_ask({"prompt": [1], "max_tokens": 2**31 - 1, "n": 1024}, "/v1/completions"))
    assert found.output_tokens == 2**32 - 1
