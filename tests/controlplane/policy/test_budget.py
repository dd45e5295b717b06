"""The token budget: what counts, on the safe side, and what text consists of."""

from __future__ import annotations

import json
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.model import Category
from controlplane.policy.budget import FROM_CLIENT, FROM_DEFAULT, estimate, sequence_tokens
from controlplane.policy.settings import BudgetRules, Ratios
from controlplane.policy.text import categorise, count_classes, cut_data_uris
from support.asks import make_ask, make_chat

RULES = BudgetRules()
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
    assert categorise(count_classes(text)) is category


@given(st.text())
def test_every_byte_is_in_one_class(text: str) -> None:
    classes = count_classes(text)
    parts = (
        classes.letters,
        classes.digits,
        classes.punctuation,
        classes.blanks,
        classes.newlines,
        classes.cjk,
        classes.other,
    )
    assert all(part >= 0 for part in parts)
    assert sum(parts) == classes.total == len(text.encode(errors="replace"))


@given(st.text(alphabet=";:,/=+data.base64 png"))
def test_cutting_data_uris_never_makes_a_text_longer(text: str) -> None:
    left, count = cut_data_uris(text)
    assert len(left) <= len(text)
    assert count == 0 or left != text


def test_the_prompt_is_bytes_by_the_ratio_of_the_category_and_framing() -> None:
    budget = estimate(make_chat(PROSE * 10, max_tokens=100), RULES, 8192)
    expected = ceil(len(PROSE) * 10 / RULES.bytes_per_token.prose) + RULES.tokens_per_message
    assert (budget.prompt_tokens, budget.output_tokens, budget.total) == (expected, 100, expected + 100)
    assert (budget.category, budget.ratio) == (Category.PROSE, RULES.bytes_per_token.prose)


def test_bytes_count_and_not_characters() -> None:
    chinese = estimate(make_chat("天" * 1000), RULES, None)
    assert chinese.prompt_tokens >= 1000


def test_tools_and_pictures_count() -> None:
    plain = estimate(make_chat("Hi"), RULES, None)
    tool = {"type": "function", "function": {"name": "f", "description": "x" * 400}}
    tools = estimate(make_chat("Hi", tools=[tool]), RULES, None)
    size = len(json.dumps([tool]))
    assert tools.prompt_tokens - plain.prompt_tokens == ceil(size / RULES.tool_bytes_per_token) + RULES.tokens_per_tool
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    seen = estimate(make_ask({"messages": [{"role": "user", "content": [picture]}]}), RULES, None)
    assert seen.prompt_tokens == RULES.tokens_per_image + RULES.tokens_per_message


@pytest.mark.parametrize(
    ("fields", "output", "source"),
    [
        ({}, RULES.default_output_tokens, FROM_DEFAULT),
        ({"max_tokens": 7}, 7, FROM_CLIENT),
        ({"max_tokens": 7, "n": 3}, 21, FROM_CLIENT),
        ({"max_completion_tokens": 5, "max_tokens": 7}, 5, FROM_CLIENT),
        ({"max_tokens": 100_000}, 100_000, FROM_CLIENT),
    ],
)
def test_the_output_is_the_clients_cap_or_a_default_and_says_which(
    fields: dict[str, Any], output: int, source: str
) -> None:
    budget = estimate(make_chat("Hi", **fields), RULES, 8192)
    assert (budget.output_tokens, budget.output_from) == (output, source)


def test_a_default_never_asks_for_more_than_the_largest_context_leaves() -> None:
    budget = estimate(make_chat("word " * 700), RULES, 1100)
    assert budget.prompt_tokens + budget.output_tokens == 1100
    full = estimate(make_chat("word " * 7000), RULES, 1100)
    assert full.output_tokens == 1


def test_choices_share_the_prompt_and_each_needs_its_own_output() -> None:
    budget = estimate(make_chat("Hi", max_tokens=100, n=8), RULES, None)
    assert budget.total == budget.prompt_tokens + 800
    assert sequence_tokens(budget, 8) == budget.prompt_tokens + 100


def test_ratios_are_configuration() -> None:
    halved = BudgetRules(bytes_per_token=Ratios(prose=1.0), tokens_per_message=0)
    assert estimate(make_chat("word " * 20), halved, None).prompt_tokens == 100
