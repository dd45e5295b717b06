"""Quantiles of streams that merge and fade."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.learning.histogram import Histogram


def histogram(values: list[float]) -> Histogram:
    found = Histogram()
    for value in values:
        found.add(value)
    return found


@given(st.lists(st.floats(1, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_exact_to_a_hundredth(values: list[float], share: float) -> None:
    found = histogram(values).quantile(share)
    ordered = sorted(values)
    assert found is not None
    # Rounding of share * count may take the neighbour.
    exact = len(ordered) * share
    near = {ordered[min(len(ordered) - 1, max(0, place))] for place in (int(exact) - 1, int(exact))}
    assert any(found == pytest.approx(value, rel=0.011) for value in near)


@given(st.lists(st.floats(1, 1e6)), st.lists(st.floats(1, 1e6)))
def test_the_sum_of_parts_is_the_whole(one: list[float], other: list[float]) -> None:
    merged = histogram(one)
    merged.merge(histogram(other))
    assert merged == histogram(one + other)


def test_an_empty_one_knows_nothing() -> None:
    assert Histogram().quantile(0.5) is None
    assert Histogram().share_up_to(10) == 0


def test_shares_count_what_is_at_a_value_or_below() -> None:
    assert histogram([10, 20, 30, 40]).share_up_to(30) == 0.75


def test_what_has_faded_leaves_nothing_behind() -> None:
    found = histogram([1, 2, 3])
    found.scale(1e-9)
    assert found == Histogram()


def test_it_is_a_plain_value_in_json() -> None:
    found = histogram([1, 5, 1e6, 1e-300])
    assert msgspec.json.decode(msgspec.json.encode(found), type=Histogram) == found
