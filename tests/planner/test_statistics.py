"""Intervals against published values, and curves against ones worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.quality.statistics import (
    Agreement,
    Estimate,
    Quartiles,
    agreement_curve,
    bootstrap,
    difference,
    geometric_mean,
    mean,
    median_agreement,
    not_below_zero,
    observations_for,
    quartiles,
    rate,
    share,
    student,
)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [  # Newcombe, Statistics in Medicine 17 (1998) 857-872, table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_shares_have_wilsons_interval(successes: int, trials: int, low: float, high: float) -> None:
    found = share(successes, trials)
    assert (found.value, found.n) == (successes / trials, trials)
    assert (found.low, found.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@pytest.mark.parametrize(
    ("one", "other", "low", "high"),
    [  # Newcombe, Statistics in Medicine 17 (1998) 873-890, table II, method 10
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((10, 10), (0, 10), 0.6075, 1.0),
    ],
)
def test_differences_of_shares_have_newcombes_interval(
    one: tuple[int, int], other: tuple[int, int], low: float, high: float
) -> None:
    found = difference(share(*one), share(*other))
    assert found.value == pytest.approx(one[0] / one[1] - other[0] / other[1])
    assert (found.low, found.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_share_lies_in_its_interval_and_that_between_0_and_1(counts: tuple[int, int]) -> None:
    found = share(*counts)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.high - found.low > 0


def test_the_rate_counts_each_step_at_which_a_pair_could_diverge() -> None:
    # 3 that agreed and a 4th that did not; 6 that agreed to the end.
    found = rate([Agreement(3, diverged=True), Agreement(6, diverged=False)])
    assert found is not None
    assert (found.value, found.n) == (0.1, 10)
    assert rate([Agreement(0, diverged=False)]) is None
    assert rate([]) is None


def test_the_curve_is_kaplan_and_meiers() -> None:
    # Freireich's 6-mercaptopurine arm (Gehan 1965): relapses at 6, 6, 6, 7, 10, 13, 16, 22, 23; + marks the censored.
    relapsed = [6, 6, 6, 7, 10, 13, 16, 22, 23]
    censored = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    curve = agreement_curve([Agreement(t, True) for t in relapsed] + [Agreement(t, False) for t in censored])
    assert [steps for steps, _ in curve] == [0, 6, 7, 10, 13, 16, 22, 23]
    assert [round(still, 3) for _, still in curve] == [1, 0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448]
    assert quartiles(curve) == Quartiles(first=13, median=23, third=None)


def test_pairs_that_never_diverge_have_no_median() -> None:
    assert agreement_curve([]) == ((0, 1.0),)
    assert median_agreement([Agreement(9, False), Agreement(4, False)]) == math.inf
    assert median_agreement([Agreement(2, True), Agreement(4, False)]) == 2


@given(st.lists(st.builds(Agreement, st.integers(0, 50), st.booleans()), max_size=40))
def test_a_curve_falls_from_1_and_never_below_0(observations: list[Agreement]) -> None:
    curve = agreement_curve(observations)
    assert curve[0] == (0, 1.0)
    shares = [still for _, still in curve]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] >= 0
    if observations and all(each.diverged for each in observations):
        assert shares[-1] == pytest.approx(0)


def test_the_bootstrap_of_a_mean_is_near_the_normal_interval() -> None:
    dice = Random(7)
    values = [dice.gauss(5, 2) for _ in range(400)]
    found = bootstrap(values, Random(1), fmean)
    assert found is not None
    assert (found.value, found.n) == (fmean(values), 400)
    # 1.96 standard errors of 2 / sqrt(400) each.
    assert found.low == pytest.approx(found.value - 0.196, abs=0.03)
    assert found.high == pytest.approx(found.value + 0.196, abs=0.03)


def test_the_bootstrap_is_the_same_for_the_same_dice_and_says_nothing_of_one_value() -> None:
    values = [1.0, 2.0, 4.0, 8.0]
    assert bootstrap(values, Random(3), fmean) == bootstrap(values, Random(3), fmean)
    assert bootstrap([1.0], Random(3), fmean) is None
    assert bootstrap([], Random(3), fmean) is None


def test_the_geometric_mean_is_of_factors() -> None:
    assert geometric_mean([2.0, 0.5]) == pytest.approx(1)
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2)


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (30, 2.0423), (1000, 1.9623)],
)
def test_students_quantile_is_that_of_the_tables(freedom: int, quantile: float) -> None:
    assert student(freedom) == pytest.approx(quantile, rel=0.00125)


def test_the_mean_of_few_values_has_students_interval() -> None:
    # Student's own data, the gain in sleep by the second drug (Biometrika 6, 1908): 95% interval 0.8977 to 3.7623.
    found = mean([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])
    assert found is not None
    assert (found.value, found.n) == (pytest.approx(2.33), 10)
    assert (found.low, found.high) == (pytest.approx(0.8977, abs=2e-3), pytest.approx(3.7623, abs=2e-3))
    assert mean([1.0]) is None


def test_what_cannot_be_below_0_has_no_interval_below_0() -> None:
    assert not_below_zero(Estimate(1, -1, 3, 2)) == Estimate(1, 0, 3, 2)
    assert not_below_zero(Estimate(1, 0.5, 3, 2)) == Estimate(1, 0.5, 3, 2)
    assert not_below_zero(None) is None


def test_pairs_that_differ_more_than_dice_would_have_them_widen_the_interval_of_the_rate() -> None:
    alike = rate([Agreement(9, diverged=True)] * 10)
    # As many divergences and steps, but half of the pairs diverge at once and half of them late or never.
    apart = rate([Agreement(0, diverged=True)] * 9 + [Agreement(90, diverged=True)])
    assert alike is not None
    assert apart is not None
    assert alike == replace(share(10, 100), n=100)
    assert (apart.value, apart.n) == (alike.value, alike.n)
    # Binomial variance 100 * 0.1 * 0.9 = 9; between pairs (9 * 0.9^2 + 8.1^2) * 10/9 = 81.
    assert (apart.low, apart.high) == pytest.approx((share(10 / 9, 100 / 9).low, share(10 / 9, 100 / 9).high))


def test_an_interval_narrows_with_the_square_root_of_the_observations() -> None:
    assert observations_for(Estimate(5, 3, 7, 40), 40, half_width=1) == 160
    assert observations_for(Estimate(5, 3, 7, 40), 40, half_width=2) == 40
