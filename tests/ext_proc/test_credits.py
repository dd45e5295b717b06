"""What a worker may still send: its share, less what it has sent since the nodes reported."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.fleet import FRESH_SECONDS
from ext_proc.credits import ON_THE_WAY_SECONDS, Credits, Share
from ext_proc.refill import CAREFUL, LONGEST_QUIET_SECONDS, QUIET_SECONDS

A, B = "a/full", "b/full"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def new(*shares: Share) -> tuple[Credits, Clock]:
    clock = Clock()
    balance = Credits(clock)
    balance.take(shares)
    return balance, clock


def saturate(balance: Credits, clock: Clock, *, rate: int, seconds: int = 10) -> None:
    """So many seconds in which a report each 1/8 s tells of `rate` new places a second, all of them taken at once; at
    the end no credit is left, and news has just come."""
    shipped = 0
    for step in range(1, seconds * 8 + 1):
        clock.now += 1 / 8
        more = step * rate // 8 - shipped
        shipped += more
        balance.take([Share((A,), more, 0.0)])
        for _ in range(more):
            balance.spend(A)


def spend_all(balance: Credits, clock: Clock, seconds: int) -> int:
    """How many are sent by one who sends whenever he may, over so many seconds."""
    sent = 0
    for _ in range(seconds * 10):
        clock.now += 0.1
        while balance.is_left(A) and sent < 10_000:
            balance.spend(A)
            sent += 1
    return sent


def test_what_is_sent_is_spent_until_the_nodes_have_reported_it() -> None:
    balance, clock = new(Share((A,), 3, 0.0))
    balance.spend(A)
    balance.spend(A)
    assert balance.left(A) == 1
    clock.now += 0.5
    balance.take([Share((A,), 4, 0.5)])  # one has finished since; the report is the same
    assert balance.left(A) == 2
    balance.spend(A)
    clock.now += 0.5
    balance.take([Share((A,), 2, 0.05)])  # a new report, made after all of these were sent
    assert balance.left(A) == 2


def test_what_was_sent_just_before_a_report_is_not_yet_in_it() -> None:
    balance, clock = new(Share((A,), 2, 0.0))
    balance.spend(A)
    clock.now += ON_THE_WAY_SECONDS / 2
    balance.take([Share((A,), 2, 0.0)])
    assert balance.left(A) == 1


def test_nothing_known_is_no_limit() -> None:
    balance, clock = new(Share((A,), 0, 4.0), Share((B,), None, 0.0))
    assert (balance.left(A), balance.left(B), balance.left("c")) == (0, math.inf, math.inf)
    clock.now += 1.5
    assert balance.left(A) == math.inf  # reported too long ago


def test_one_room_of_two_pools_is_spent_once() -> None:
    balance, _ = new(Share((A, B), 2, 0.0))
    balance.spend(A)
    balance.spend(B)
    assert (balance.left(A), balance.left(B)) == (0, 0)


def test_a_pool_of_two_rooms_spends_where_there_is_most() -> None:
    balance, _ = new(Share((A,), 1, 0.0), Share((A, B), 3, 0.0))
    assert balance.left(A) == 4
    balance.spend(A)
    balance.spend(A)
    assert (balance.left(A), balance.left(B)) == (2, 1)


def test_what_was_not_sent_is_given_back() -> None:
    balance, _ = new(Share((A,), 1, 0.0))
    spent = balance.spend(A)
    balance.refund(spent)
    balance.refund(spent)
    assert balance.left(A) == 1
    balance.refund(balance.spend("of no room"))


def test_while_nothing_is_known_what_is_sent_is_remembered() -> None:
    balance, clock = new(Share((A,), 1, 0.0))
    balance.take([Share((A,), None, 0.0)])
    assert balance.left(A) == math.inf
    balance.spend(A)
    clock.now += 0.5
    balance.take([Share((A,), 3, 0.5)])
    assert balance.left(A) == 2
    balance.take([])
    assert balance.left(A) == math.inf


def test_a_room_that_was_short_goes_on_at_its_pace_while_no_news_comes() -> None:
    balance, clock = new()
    saturate(balance, clock, rate=8)
    clock.now += QUIET_SECONDS
    assert balance.left(A) == 0
    clock.now += 0.01
    assert balance.left(A) == pytest.approx(CAREFUL * 8 * QUIET_SECONDS)
    assert spend_all(balance, clock, 10) == pytest.approx(CAREFUL * 8 * (QUIET_SECONDS + 10), abs=1)


def test_what_nobody_takes_is_not_saved_up() -> None:
    balance, clock = new()
    saturate(balance, clock, rate=8)
    clock.now += 30
    assert balance.left(A) == pytest.approx(CAREFUL * 8 * QUIET_SECONDS)


def test_after_too_long_without_news_nothing_limits() -> None:
    balance, clock = new()
    saturate(balance, clock, rate=8)
    clock.now += LONGEST_QUIET_SECONDS - 0.01
    assert balance.left(A) < math.inf
    clock.now += 0.02
    assert balance.left(A) == math.inf
    assert balance.is_left(A)


def test_a_room_that_was_not_used_up_limits_nobody_when_its_news_is_old() -> None:
    balance, clock = new()
    for _ in range(100):
        balance.take([Share((A,), 3, 0.0)])
        balance.spend(A)
        clock.now += 0.2
    clock.now += FRESH_SECONDS
    assert balance.left(A) == math.inf


def test_a_room_that_gave_too_few_credits_to_know_a_pace_limits_nobody_when_its_news_is_old() -> None:
    balance, clock = new()
    for _ in range(20):
        balance.take([Share((A,), 0, 0.0)])
        clock.now += 1.0
    clock.now += FRESH_SECONDS
    assert balance.left(A) == math.inf


def test_news_that_a_share_is_not_known_is_no_news_of_a_room_that_was_short() -> None:
    balance, clock = new()
    saturate(balance, clock, rate=8)
    clock.now += 2.0
    balance.take([Share((A,), None, 0.0)])  # of a control plane that has just started
    assert balance.left(A) == pytest.approx(CAREFUL * 8 * QUIET_SECONDS)
    balance.take([Share((A,), 3, 0.0)])
    assert balance.left(A) == 3


def test_a_credit_that_was_not_used_is_given_back_while_no_news_comes() -> None:
    balance, clock = new()
    saturate(balance, clock, rate=8)
    clock.now += 2.0
    before = balance.left(A)
    balance.refund(balance.spend(A))
    assert balance.left(A) == before


OPERATIONS = st.lists(
    st.tuples(st.just("spend"), st.sampled_from([A, B, "c"]))
    | st.tuples(st.just("take"), st.lists(st.none() | st.integers(0, 3), min_size=3, max_size=3))
    | st.tuples(st.just("refund"), st.none())
    | st.tuples(st.just("wait"), st.sampled_from([0.05, 0.5, FRESH_SECONDS + 1]))
    | st.tuples(st.just("saturate"), st.integers(1, 9)),
    max_size=30,
)


@given(OPERATIONS)
def test_what_is_said_of_all_clusters_at_once_is_true_of_each(operations: list[tuple[str, Any]]) -> None:
    balance, clock = new()
    spent = [balance.spend(A)]
    fresh_until = math.inf
    refills = False
    for operation, value in operations:
        match operation:
            case "spend":
                spent.append(balance.spend(value))
            case "refund":
                balance.refund(spent[len(spent) // 2])
            case "saturate":
                saturate(balance, clock, rate=value)
                refills = True
            case "wait":
                clock.now += value
            case "take":
                balance.take(Share(rooms, free, 0.0) for rooms, free in zip(((A,), (A, B), (B,)), value, strict=True))
                fresh_until = clock.now + FRESH_SECONDS
        are_left = all(balance.left(cluster) >= 1 for cluster in (A, B, "c"))
        assert all(balance.is_left(cluster) == (balance.left(cluster) >= 1) for cluster in (A, B, "c"))
        if clock.now <= fresh_until and not refills:
            assert balance.are_left_everywhere == are_left
        else:
            assert are_left or not balance.are_left_everywhere
