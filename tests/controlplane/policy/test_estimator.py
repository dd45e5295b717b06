"""Estimates that filters hold, and the budget that follows from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.features import FEATURES, Category, Features
from controlplane.policy.estimator import (
    TENANT_GROUPS,
    Calibration,
    Calibrations,
    Estimate,
    LinearEstimator,
    RatioEstimator,
    chance,
    group_of,
    prior_ratio,
)
from controlplane.policy.text import count_text

PROSE = "The quick brown fox jumps over the lazy dog, and nobody minds. " * 20


def linear(**tokens: float) -> LinearEstimator:
    return LinearEstimator(tuple(tokens.get(name, 0.0) for name in FEATURES), (1.1,) * TENANT_GROUPS)


def test_the_linear_estimate_adds_up_what_each_part_costs() -> None:
    features = Features(count_text("ab 12"), messages=2, images=1, token_ids=7)
    estimate = linear(request=3, messages=4, images=100, letters=0.5, digits=2).estimate(features, 0)
    assert estimate.central == 3 + 8 + 100 + 1 + 4 + 7
    assert estimate.conservative == pytest.approx(123 * (1 + 0.1 * chance(123)))


def test_each_tenant_group_has_its_own_margin() -> None:
    estimator = LinearEstimator(margins=tuple(1 + group / 10 for group in range(TENANT_GROUPS)))
    estimates = [estimator.estimate(Features(count_text(PROSE)), group) for group in range(TENANT_GROUPS)]
    assert len({estimate.central for estimate in estimates}) == 1
    one = estimates[3]
    assert one.conservative == pytest.approx(one.central * (1 + 0.3 * chance(one.central)))


def test_a_long_text_averages_chance_out() -> None:
    assert chance(256) == pytest.approx(2**0.5)
    assert chance(1_000_000) == pytest.approx(1.0, abs=0.001)


def test_the_ratio_estimate_divides_bytes() -> None:
    """Facts row: token estimate (the conservative ratio is the lower one)."""
    estimate = RatioEstimator(4.0, 2.0).estimate(Features(count_text("x" * 100), token_ids=5), 0)
    assert estimate == Estimate(30, 55)


@given(st.text(), st.integers(0, 5), st.integers(0, 3))
def test_an_estimate_is_never_below_one_token(text: str, messages: int, images: int) -> None:
    features = Features(count_text(text), messages=messages, images=images)
    for estimator in (LinearEstimator(), linear(letters=-5), prior_ratio(features.category)):
        estimate = estimator.estimate(features, 0)
        assert 1 <= estimate.central <= estimate.conservative


def test_what_is_not_learned_has_a_prior() -> None:
    """Facts row: cold start."""
    learned = Calibration(RatioEstimator(5.0, 4.0))
    calibrations = Calibrations({("llama", Category.PROSE): learned})
    assert calibrations.of("llama", Category.PROSE) is learned
    assert calibrations.of("llama", Category.CJK).prompt == LinearEstimator()


def test_a_tenant_is_always_in_the_same_group() -> None:
    groups = [group_of(f"tenant-{number}") for number in range(200)]
    assert groups == [group_of(f"tenant-{number}") for number in range(200)]
    assert set(groups) == set(range(TENANT_GROUPS))
