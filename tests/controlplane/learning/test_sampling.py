"""Of many like requests a sample is learned from, and nobody's takes the place of another group's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.learning.sampling import BURST, PER_SECOND, Sampling
from controlplane.policy.estimator import group_of
from support.usage import MODEL, TENANTS

NOW = 1_790_000_000.0


def take(sampling: Sampling, count: int, now: float = NOW, tenant: str = TENANTS[0], category: str = "prose") -> int:
    """How many of so many at once are taken."""
    return sum(sampling.take(MODEL, category, tenant, now) > 0 for _ in range(count))


def test_all_are_taken_as_long_as_they_are_few() -> None:
    sampling = Sampling()
    stands_for = [sampling.take(MODEL, "prose", TENANTS[0], NOW + second / PER_SECOND) for second in range(5000)]
    assert set(stands_for) == {1}


def test_of_many_at_once_the_first_are_taken_and_then_so_many_a_second() -> None:
    sampling = Sampling()
    assert take(sampling, 10_000) == BURST
    assert [take(sampling, 500, NOW + second) for second in range(1, 5)] == [PER_SECOND] * 4
    assert take(sampling, 10_000, NOW + 1e9) == BURST


def test_a_tenant_that_floods_takes_no_other_groups_place() -> None:
    sampling = Sampling()
    flooding, other = TENANTS[0], next(tenant for tenant in TENANTS if group_of(tenant) != group_of(TENANTS[0]))
    assert take(sampling, 50_000, tenant=flooding) == BURST
    assert take(sampling, 10, tenant=other) == 10
    assert take(sampling, 10, tenant=flooding, category="code") == 10


def test_a_category_that_does_not_exist_is_none_of_its_own() -> None:
    sampling = Sampling()
    assert sum(take(sampling, 1, category=f"made up {number}") for number in range(5000)) == BURST


@given(st.lists(st.floats(0, 10), min_size=1, max_size=300))
def test_together_those_that_are_taken_stand_for_all_up_to_the_last_of_them(gaps: list[float]) -> None:
    sampling = Sampling()
    take(sampling, int(BURST))
    now, stood_for, last = NOW, 0, 0
    for number, gap in enumerate(gaps, start=1):
        now += gap / 10
        if stands_for := sampling.take(MODEL, "prose", TENANTS[0], now):
            stood_for, last = stood_for + stands_for, number
    assert stood_for == last


def test_a_clock_that_goes_back_takes_nothing_away() -> None:
    sampling = Sampling()
    assert take(sampling, 10) == 10
    assert take(sampling, 10, NOW - 1e6) == 10
