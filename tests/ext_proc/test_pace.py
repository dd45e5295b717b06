"""How fast a line moves, and who of it is ahead of a newcomer."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from controlplane.model import QosTier
from ext_proc.pace import LEAST, REMEMBERED, Pace, ahead_of

A, B = "a", "b"
TIER = QosTier.STANDARD


def paced(turns: Iterable[float], cluster: str = A, pace: Pace | None = None) -> Pace:
    """After these turns of a tier, of which one more still waits."""
    pace = pace or Pace()
    pace.joined(TIER, [cluster])
    for now in turns:
        pace.went(TIER, cluster, now)
    return pace


def test_the_pace_is_turns_in_a_second_since_the_first_that_is_remembered() -> None:
    pace = paced(range(LEAST))
    assert pace.per_second(TIER, [A], LEAST - 1) == 1.0
    assert pace.per_second(TIER, [A], 2 * (LEAST - 1)) == 0.5


def test_only_the_last_turns_count() -> None:
    pace = paced([*range(100), *(99 + step / 10 for step in range(1, REMEMBERED + 1))])
    assert pace.per_second(TIER, [A], 99 + REMEMBERED / 10) == pytest.approx(10.0)


def test_few_turns_tell_nothing_nor_do_those_of_other_tiers_and_clusters() -> None:
    assert paced(range(LEAST - 1)).per_second(TIER, [A], 100.0) is None
    pace = paced(range(LEAST))
    assert pace.per_second(QosTier.GUARANTEED, [A], 100.0) is None
    assert pace.per_second(TIER, [B], 100.0) is None


def test_clusters_add_up() -> None:
    pace = paced(range(LEAST), B, paced(range(LEAST)))
    assert pace.per_second(TIER, [A, B], LEAST - 1) == 2.0


def test_who_leaves_last_takes_the_pace_with_him() -> None:
    pace = paced(range(LEAST))
    pace.joined(TIER, [A, B])
    pace.left(TIER, [A])
    assert pace.per_second(TIER, [A], LEAST) is not None
    pace.left(TIER, [A, B])
    assert pace.per_second(TIER, [A], LEAST) is None


@pytest.mark.parametrize(
    ("tenant", "fair", "ahead"),
    [
        ("one", False, 7),
        ("new", False, 7),
        ("one", True, 5 + 2),  # both of the other: it has more itself
        ("two", True, 2 + 3),  # as many of the other as it then has
        ("new", True, 1 + 1),
    ],
)
def test_who_is_ahead(tenant: str, fair: bool, ahead: int) -> None:
    assert ahead_of(tenant, ["one"] * 5 + ["two"] * 2, fair=fair) == ahead
