"""Which differences between groups count, from gaps of known size."""

from __future__ import annotations

from random import Random

import pytest

from controlplane.model import Verdict
from planner.quality.comparing import (
    Comparison,
    Finding,
    Measure,
    Separation,
    any_gap,
    combine,
    judge_difference,
    separate,
)
from planner.quality.conclusion import conclude, say
from planner.quality.judging import Judged
from planner.quality.measured import Measured
from planner.quality.statistics import Agreement, Estimate, difference, rate
from planner.quality.summary import summarise
from support.evaluation import judged, measured


def separations(*every: list[Measured]) -> tuple[Separation, ...]:
    return separate(summarise([each for group in every for each in group], Random(1)))


def concluded(*every: list[Measured]) -> str:
    summary = summarise([each for group in every for each in group], Random(1))
    return conclude(summary, separate(summary))


def diverging(requests: list[Judged], steps: int, *, share: float = 1.0, shift: float = 0.05) -> list[Measured]:
    """Answers that are the same for about so many steps, some of which diverge then; the full tier's own never do."""
    return [
        measured(each, steps + n % 3, diverged=n < share * len(requests), prefix_shift=shift + 0.001 * (n % 3))
        for n, each in enumerate(requests)
    ]


@pytest.mark.parametrize(
    ("low", "high", "finding"),
    [
        (0.1, 2.0, Finding.BORNE_OUT),
        (-0.1, 2.0, Finding.OPEN),
        (0.0, 2.0, Finding.OPEN),
        (-2.0, 0.0, Finding.OPEN),
        (-2.0, -0.1, Finding.CONTRADICTED),
    ],
)
def test_only_a_difference_whose_interval_leaves_0_out_is_told_apart(low: float, high: float, finding: Finding) -> None:
    assert judge_difference(Estimate((low + high) / 2, low, high, 9)) is finding


@pytest.mark.parametrize(
    ("findings", "finding"),
    [
        ((Finding.OPEN, Finding.OPEN), Finding.OPEN),
        ((Finding.BORNE_OUT, Finding.OPEN), Finding.BORNE_OUT),
        ((Finding.OPEN, Finding.CONTRADICTED), Finding.CONTRADICTED),
        ((Finding.BORNE_OUT, Finding.CONTRADICTED), Finding.OPEN),
        ((), Finding.OPEN),
    ],
)
def test_measures_that_contradict_each_other_tell_nothing(findings: tuple[Finding, ...], finding: Finding) -> None:
    assert combine(findings) is finding


def test_overlapping_intervals_are_open_and_say_how_many_requests_would_tell(
    programs: list[Judged], stories: list[Judged]
) -> None:
    """Tolerant requests that change a little more than the sensitive ones were once called borne out."""
    (found,) = separations(diverging(programs, 12), diverging(stories, 9))
    comparison = found.comparison
    assert (found.more, found.less, comparison.requests) == (Verdict.SENSITIVE, Verdict.TOLERANT, (10, 10))
    assert comparison.finding is Finding.OPEN
    divergences = comparison.contrasts[0]
    assert (divergences.measure, divergences.finding) == (Measure.DIVERGENCES, Finding.OPEN)
    assert divergences.difference.low < 0 < divergences.difference.high
    width = divergences.difference.high - divergences.difference.low
    assert divergences.worth_knowing == pytest.approx((20 / 248) / 2)
    assert divergences.requests_needed == pytest.approx(20 * (width / 2 / divergences.worth_knowing) ** 2, abs=1)
    text = say(divergences, 20, "sensitive", "tolerant")
    assert "cannot be told apart; about" in text
    assert f"about {divergences.requests_needed} requests instead of 20 would tell it to within ±4.0" in text


def test_a_difference_the_other_way_round_is_a_contradiction_and_is_said(
    programs: list[Judged], stories: list[Judged]
) -> None:
    every = diverging(programs, 12, shift=0.03), diverging(stories, 12, shift=0.049)
    (found,) = separations(*every)
    assert found.comparison.finding is Finding.CONTRADICTED
    (shift,) = found.comparison.by(Finding.CONTRADICTED)
    assert shift.measure is Measure.SHIFT
    assert "sensitive 0.031, tolerant 0.050, difference -0.019 (" in say(shift, 20, "sensitive", "tolerant")
    assert say(shift, 20, "sensitive", "tolerant").endswith("the other way round")
    assert concluded(*every) == (
        "On this model the verdicts do not hold: sensitive requests change less than tolerant ones, by their "
        "log-probability shift"
    )


def test_a_difference_as_the_rules_have_it_is_borne_out(programs: list[Judged], stories: list[Judged]) -> None:
    every = diverging(programs, 3), diverging(stories, 44, share=0.2)
    (found,) = separations(*every)
    assert found.comparison.finding is Finding.BORNE_OUT
    assert say(found.comparison.contrasts[0], 20, "sensitive", "tolerant").endswith("as the rules say")
    assert concluded(*every) == (
        "On this model the verdicts hold: sensitive requests change more than tolerant ones, by their divergences"
    )


def test_the_two_measures_may_contradict_each_other(programs: list[Judged], stories: list[Judged]) -> None:
    every = diverging(programs, 3, shift=0.03), diverging(stories, 44, share=0.2, shift=0.049)
    assert separations(*every)[0].comparison.finding is Finding.OPEN
    assert "the two measures contradict each other" in concluded(*every)


def test_the_noise_of_each_group_is_taken_off(programs: list[Judged], stories: list[Judged]) -> None:
    """An engine that answers otherwise each time anyway is no evidence."""
    noisy = [measured(each, 48, diverged=True, noise_diverged=True) for each in programs]
    (found,) = separations(noisy, [measured(each, 48, diverged=False) for each in stories])
    assert found.comparison.finding is Finding.OPEN
    assert found.comparison.contrasts[0].more.value == 0


def test_answers_that_never_change_tell_that_nothing_does(programs: list[Judged], stories: list[Judged]) -> None:
    every = [measured(each, 48, diverged=False) for each in (*programs, *stories)]
    assert "nothing here that could be told from noise" in concluded(every)
    assert not any_gap(summarise(every, Random(1)).overall)
    (contrast,) = separations(every)[0].comparison.contrasts
    assert (contrast.worth_knowing, contrast.requests_needed) == (None, None)
    assert say(contrast, 20, "a", "b").endswith("cannot be told apart")


def test_alike_to_a_useful_width_is_said_to_be_so(programs: list[Judged], stories: list[Judged]) -> None:
    (found,) = separations(diverging(programs, 9), diverging(stories, 9))
    shift = found.comparison.contrasts[1]
    assert say(shift, 20, "a", "b").endswith("cannot be told apart, though known to within ±0.025")


def test_few_requests_are_not_compared(programs: list[Judged], stories: list[Judged]) -> None:
    every = diverging(programs, 3), diverging(stories[:4], 44)
    (found,) = separations(*every)
    assert found.comparison == Comparison(
        (10, 4), Finding.OPEN, why_open="10 against 4 requests; fewer than 5 are too few to judge by"
    )
    assert (
        concluded(*every)
        == "Whether the verdicts hold on this model is open: too few requests (10 sensitive, 4 tolerant)"
    )


def test_every_two_verdicts_are_compared_the_two_farthest_apart_first(
    programs: list[Judged], stories: list[Judged]
) -> None:
    plain = [judged(f"What is a {each.sample.number}?", 0.5, "other") for each in stories]
    assert {each.verdict for each in plain} == {Verdict.NEUTRAL}
    found = separations(diverging(programs, 9), diverging(plain, 9), diverging(stories, 9))
    assert [(each.more.value, each.less.value) for each in found] == [
        ("sensitive", "tolerant"),
        ("sensitive", "neutral"),
        ("neutral", "tolerant"),
    ]


def test_one_verdict_alone_has_nothing_to_be_compared_with(programs: list[Judged]) -> None:
    assert separations(diverging(programs, 9)) == ()
    assert "judged sensitive: there are none to compare them with" in concluded(diverging(programs, 9))


@pytest.mark.parametrize("requests", [(5, 5), (7, 20), (22, 13)])
def test_groups_that_do_not_differ_are_told_apart_in_one_of_twenty_at_most(requests: tuple[int, int]) -> None:
    """Also where requests of a group are far from alike, and groups are small: what the intervals promise."""
    dice = Random(1)
    longest = 32

    def excess(count: int) -> Estimate:
        observed = []
        for _ in range(count):
            chance = dice.choice((0.005, 0.02, 0.12))
            steps = next((step for step in range(longest) if dice.random() < chance), longest)
            observed.append(Agreement(steps, diverged=steps < longest))
        found, noise = rate(observed), rate([Agreement(longest, diverged=False)] * count)
        assert found is not None
        assert noise is not None
        return difference(found, noise)

    rounds = 500
    findings = [judge_difference(difference(excess(requests[0]), excess(requests[1]))) for _ in range(rounds)]
    assert sum(each is not Finding.OPEN for each in findings) <= 0.05 * rounds
