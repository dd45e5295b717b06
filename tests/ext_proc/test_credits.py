"""What a worker may still send: its share, less what it has sent since the nodes reported."""

from __future__ import annotations

import math

from ext_proc.credits import ON_THE_WAY_SECONDS, Credits, Share

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
    balance.forget()
    assert balance.left(A) == math.inf
    balance.spend(A)
    clock.now += 0.5
    balance.take([Share((A,), 3, 0.5)])
    assert balance.left(A) == 2
    balance.take([])
    assert balance.left(A) == math.inf
