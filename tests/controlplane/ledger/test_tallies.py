"""What is counted of decisions, whatever becomes of the writing."""

from __future__ import annotations

from controlplane.ledger.store import Tally
from controlplane.ledger.tallies import KEPT_MINUTES, Tallies
from support.ledger import recorded, row


def test_a_batch_that_is_written_again_counts_once() -> None:
    tallies = Tallies(9)
    first, second = row(worker=("w", 5, 1)), row(worker=("w", 5, 2))
    assert tallies.due([first]) == [Tally(5, "w", 9, made=1, written=1, lost=0)]
    # Nobody could say whether it was; it comes again, with more.
    due = tallies.due([first, second])
    assert due == [Tally(5, "w", 9, made=2, written=2, lost=0)]
    tallies.done(due)
    assert tallies.due([row(worker=("w", 5, 3))]) == [Tally(5, "w", 9, made=3, written=3, lost=0)]


def test_what_is_told_while_a_batch_is_written_is_written_with_the_next() -> None:
    tallies = Tallies(9)
    tallies.told("w", 5, 4)
    due = tallies.due([row(worker=("w", 5, 1))])
    tallies.told("w", 5, 6)
    tallies.lost(recorded(worker=("w", 5, 2)))
    tallies.done(due)
    assert tallies.changed
    due = tallies.due([])
    assert due == [Tally(5, "w", 9, made=6, written=1, lost=1)]
    tallies.done(due)
    assert not tallies.changed


def test_what_was_told_before_changes_nothing() -> None:
    tallies = Tallies(9)
    tallies.told("w", 5, 4)
    tallies.done(tallies.due([]))
    tallies.told("w", 5, 4)
    tallies.told("w", 5, 3)  # as of a report that was overtaken
    assert not tallies.changed


def test_decisions_of_no_known_worker_are_not_counted() -> None:
    tallies = Tallies(9)
    tallies.lost(recorded())
    assert tallies.due([row()]) == []


def test_minutes_of_which_nothing_more_is_heard_are_forgotten() -> None:
    tallies = Tallies(9)
    tallies.told("w", 5, 4)
    tallies.forget(5 + KEPT_MINUTES)
    assert tallies.due([])
    tallies.forget(6 + KEPT_MINUTES)
    assert not tallies.changed
    assert tallies.due([]) == []
