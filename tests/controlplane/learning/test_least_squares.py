"""Least squares by sums: it finds what is there, and adds up."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.learning.least_squares import Sums, solve

WIDTH = 4
TRUTH = (0.5, -0.25, 2.0, 0.0)


def rows(count: int, seed: int = 1) -> list[list[float]]:
    dice = random.Random(seed)
    return [[dice.uniform(0, 1) if dice.random() < 0.8 else 0.0 for _ in range(WIDTH)] for _ in range(count)]


def value(row: list[float]) -> float:
    return sum(factor * part for factor, part in zip(TRUTH, row, strict=True))


def sums(given_rows: list[list[float]]) -> Sums:
    found = Sums.empty(WIDTH)
    for row in given_rows:
        found.add(row, value(row), 1.0)
    return found


def test_it_finds_the_truth() -> None:
    found = solve(sums(rows(50)), [1e-9] * WIDTH)
    assert found == pytest.approx(TRUTH, abs=1e-6)
    assert sums(rows(50)).mean_square(found) == pytest.approx(0, abs=1e-9)


def test_without_data_it_stays_at_the_prior() -> None:
    assert solve(Sums.empty(WIDTH), [1.0] * WIDTH) == [0.0] * WIDTH


def test_a_column_that_never_occurs_stays_at_the_prior() -> None:
    some = [[row[0], row[1], 0.0, row[3]] for row in rows(50)]
    assert solve(sums(some), [1e-6] * WIDTH)[2] == 0.0


@given(st.integers(0, 40), st.integers(0, 40))
def test_the_sum_of_parts_is_the_whole(one: int, other: int) -> None:
    all_rows = rows(one + other)
    merged = sums(all_rows[:one])
    merged.merge(sums(all_rows[one:]))
    whole = sums(all_rows)
    assert merged.cross == pytest.approx(whole.cross)
    assert merged.moments == pytest.approx(whole.moments)
    assert (merged.weight, merged.squares) == pytest.approx((whole.weight, whole.squares))


@given(st.lists(st.floats(-3, 3), min_size=WIDTH, max_size=WIDTH))
def test_the_mean_square_is_that_of_the_samples(solution: list[float]) -> None:
    some = rows(20)
    expected = sum((value(row) - sum(a * b for a, b in zip(row, solution, strict=True))) ** 2 for row in some) / 20
    assert sums(some).mean_square(solution) == pytest.approx(expected, abs=1e-9)


def test_columns_that_say_the_same_are_no_trouble() -> None:
    same = Sums.empty(2)
    for _ in range(1000):
        same.add([1e6, 1e6], 1e6, 1.0)
    one, other = solve(same, [1e-9, 1e-9])
    assert one + other == pytest.approx(1.0)
