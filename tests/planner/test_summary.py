"""Sums over requests, by category and verdict."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from controlplane.model import Verdict
from planner.quality.asking import Mode
from planner.quality.judging import Judged
from planner.quality.measured import Comparison, Measured, Versus
from planner.quality.statistics import Quartiles
from planner.quality.summary import gap, pairs_by_request, summarise
from support.evaluation import judged, measured, pair


def test_a_gap_counts_changed_answers_and_the_steps_until_they_changed() -> None:
    found = gap(
        [
            [pair(4, diverged=True, prefix_shift=0.2, length_difference=2)],
            [pair(9, diverged=False, prefix_shift=0.1, length_difference=0)],
            [pair(8, diverged=True, prefix_shift=0.3, length_difference=4)],
        ],
        Random(1),
    )
    assert (found.requests, found.unit) == (3, "tokens")
    assert found.changed.value == pytest.approx(2 / 3)
    assert found.divergence is not None
    assert (found.divergence.value, found.divergence.n) == (pytest.approx(2 / 23), 23)
    assert found.curve == ((0, 1.0), (4, pytest.approx(2 / 3)), (8, pytest.approx(1 / 3)))
    assert found.first_divergence == Quartiles(4, 8, None)
    assert found.prefix_shift is not None
    assert found.prefix_shift.value == pytest.approx(0.2)
    assert found.length_difference is not None
    assert found.length_difference.value == 2
    assert found.speed is None


def test_repetitions_are_averaged_within_their_request_before_anything_else() -> None:
    often = [pair(1, diverged=True, length_difference=9)] * 3 + [pair(5, diverged=False, length_difference=5)]
    found = gap([often, [pair(5, diverged=False, length_difference=0)]], Random(1))
    assert (found.requests, found.changed.n) == (2, 2)
    assert found.changed.value == pytest.approx((0.75 + 0) / 2)
    assert found.length_difference is not None
    assert (found.length_difference.value, found.length_difference.n) == (4, 2)


def test_characters_are_counted_where_any_engine_gave_no_tokens() -> None:
    from dataclasses import replace

    found = gap([[pair(4, diverged=True)], [replace(pair(9, diverged=True), tokens=None)]], Random(1))
    assert found.unit == "characters"


def test_a_request_that_is_greedy_by_itself_counts_in_both_modes(programs: list[Judged], stories: list[Judged]) -> None:
    every = [measured(programs[0], 3, diverged=True), measured(stories[0], 3, diverged=True)]
    assert len(pairs_by_request(every, Mode.GREEDY, Versus.QUANTIZED)) == 2
    assert len(pairs_by_request(every, Mode.AS_ASKED, Versus.QUANTIZED)) == 1


def test_groups_are_by_verdict_by_category_and_by_both(programs: list[Judged], stories: list[Judged]) -> None:
    odd = judged("Tell me a story about debts.", 0.9, "code")
    every = [measured(each, 3, diverged=True) for each in (*programs[:3], *stories[:2], odd)]
    found = summarise(every, Random(1))
    assert found.overall.requests == 6
    assert [(group.verdict, group.requests) for group in found.verdicts] == [
        (Verdict.SENSITIVE, 3),
        (Verdict.TOLERANT, 3),
    ]
    assert [(group.category, group.requests) for group in found.categories] == [("code", 4), ("writing", 2)]
    assert [(group.category, group.verdict, group.requests) for group in found.cells] == [
        ("code", Verdict.SENSITIVE, 3),
        ("code", Verdict.TOLERANT, 1),
        ("writing", Verdict.TOLERANT, 2),
    ]


def test_the_gap_is_told_beside_the_full_tiers_own_noise(programs: list[Judged]) -> None:
    every = [measured(each, 5, diverged=True, noise_diverged=n < 2) for n, each in enumerate(programs)]
    found = summarise(every, Random(1)).overall.gaps[Mode.GREEDY]
    assert found.noise is not None
    assert (found.quantized.changed.value, found.noise.changed.value) == (1.0, 0.2)
    assert found.excess is not None
    assert found.excess.value == pytest.approx(0.8)
    assert found.excess.low == pytest.approx(0.3840, abs=5e-5)
    assert found.divergence_excess is not None
    assert found.divergence_excess.value == pytest.approx(10 / 60 - 2 / (48 * 10 + 2))


def test_requests_that_nobody_answered_are_in_no_gap(programs: list[Judged]) -> None:
    found = summarise([Measured(programs[0], (), ())], Random(1))
    assert (found.overall.requests, dict(found.overall.gaps)) == (1, {})
    assert summarise([], Random(1)).overall.requests == 0


def test_a_sum_is_the_same_for_the_same_dice(stories: list[Judged]) -> None:
    every = [measured(each, n, diverged=True, prefix_shift=n / 10) for n, each in enumerate(stories)]
    assert summarise(every, Random(4)) == summarise(every, Random(4))


def test_what_was_sampled_is_kept_apart_from_what_was_greedy(stories: list[Judged]) -> None:
    def one(mode: Mode, versus: Versus, **more: Any) -> Comparison:
        return Comparison(mode, versus, pair(3, diverged=True, **more))

    comparisons = (
        one(Mode.GREEDY, Versus.QUANTIZED, answer_difference=-1),
        one(Mode.AS_ASKED, Versus.QUANTIZED, answer_difference=-3),
    )
    found = summarise([Measured(each, comparisons, ()) for each in stories[:2]], Random(1)).overall
    values = {mode: each.quantized.answer_difference for mode, each in found.gaps.items()}
    assert {mode: each.value for mode, each in values.items() if each} == {Mode.GREEDY: -1, Mode.AS_ASKED: -3}
    assert found.gaps[Mode.AS_ASKED].noise is None
