"""Two answers, compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.quality.answers import Answer
from planner.quality.pairs import compare
from planner.quality.statistics import Agreement


def answer(tokens: str, *logprobs: float, rate: float = 10.0) -> Answer:
    """One token for each letter."""
    given = tuple(logprobs) or (-1.0,) * len(tokens)
    return Answer(tokens, tuple(tokens), given, len(tokens), 0.5, 0.5 + (len(tokens) - 1) / rate, 9.0)


def test_answers_that_diverge_are_compared_up_to_there_and_as_a_whole() -> None:
    pair = compare(answer("abcd", -0.1, -0.2, -0.3, -0.4), answer("abxyz", -0.3, -0.1, -1.0, -1.0, -1.1))
    assert pair.same is False
    assert pair.tokens == Agreement(2, diverged=True)
    assert pair.characters == Agreement(2, diverged=True)
    assert pair.prefix_shift == pytest.approx((0.2 + 0.1) / 2)
    assert pair.prefix_difference == pytest.approx((-0.2 + 0.1) / 2)
    assert pair.answer_difference == pytest.approx(-0.7 - -0.25)
    assert pair.length_difference == 1


def test_the_same_answer_does_not_diverge() -> None:
    pair = compare(answer("abcdefghij"), answer("abcdefghij", rate=20.0))
    assert pair.same is True
    assert pair.tokens == Agreement(10, diverged=False)
    assert pair.prefix_shift == 0
    assert pair.speed_ratio == pytest.approx(2.0)
    assert pair.first_text_difference == 0


def test_an_answer_that_goes_on_where_the_other_one_ends_diverges_there() -> None:
    assert compare(answer("abc"), answer("abcd")).tokens == Agreement(3, diverged=True)


def test_answers_that_differ_in_the_first_token_have_no_common_tokens_to_compare() -> None:
    pair = compare(answer("abc"), answer("xbc"))
    assert pair.tokens == Agreement(0, diverged=True)
    assert (pair.prefix_shift, pair.prefix_difference) == (None, None)


def test_without_tokens_characters_are_compared_and_nothing_is_said_of_probabilities() -> None:
    pair = compare(Answer("héllo"), Answer("hélas"))
    assert pair.characters == Agreement(3, diverged=True)
    assert (pair.tokens, pair.answer_difference, pair.length_difference, pair.speed_ratio) == (None, None, None, None)
    assert compare(Answer(""), Answer("")).characters == Agreement(0, diverged=False)


texts = st.text("ab", max_size=12)


@given(texts, texts)
def test_turning_a_pair_round_changes_signs_only(one: str, other: str) -> None:
    there, back = compare(answer(one), answer(other)), compare(answer(other), answer(one))
    assert (there.same, there.tokens, there.characters) == (back.same, back.tokens, back.characters)
    assert there.length_difference == -(back.length_difference or 0)
    assert there.same == (one == other)
