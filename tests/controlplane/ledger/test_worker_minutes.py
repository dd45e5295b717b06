"""What is counted of decisions, whatever becomes of the writing."""

from __future__ import annotations

from controlplane.ledger.store import Tally
from controlplane.ledger.worker_minutes import KEPT_MINUTES, WorkerMinutes
from support.ledger import recorded, row


def test_a_batch_that_is_written_again_counts_once() -> None:
    minutes = WorkerMinutes(9)
    first, second = row(worker=("w", 5, 1)), row(worker=("w", 5, 2))
    assert minutes.due([first]) == [Tally(5, "w", 9, made=1, written=1, lost=0)]
    # Nobody could say whether it was; it comes again, with more.
    due = minutes.due([first, second])
    assert due == [Tally(5, "w", 9, made=2, written=2, lost=0)]
    minutes.done(due)
    assert minutes.due([row(worker=("w", 5, 3))]) == [Tally(5, "w", 9, made=3, written=3, lost=0)]


def test_what_is_told_while_a_batch_is_written_is_written_with_the_next() -> None:
    minutes = WorkerMinutes(9)
    minutes.told("w", 5, 4)
    due = minutes.due([row(worker=("w", 5, 1))])
    minutes.told("w", 5, 6)
    minutes.lost(recorded(worker=("w", 5, 2)))
    minutes.done(due)
    assert minutes.changed
    due = minutes.due([])
    assert due == [Tally(5, "w", 9, made=6, written=1, lost=1)]
    minutes.done(due)
    assert not minutes.changed


def test_what_was_told_before_changes_nothing() -> None:
    minutes = WorkerMinutes(9)
    minutes.told("w", 5, 4)
    minutes.done(minutes.due([]))
    minutes.told("w", 5, 4)
    minutes.told("w", 5, 3)  # as of a report that was overtaken
    assert not minutes.changed


def test_decisions_of_no_known_worker_are_not_counted() -> None:
    minutes = WorkerMinutes(9)
    minutes.lost(recorded())
    assert minutes.due([row()]) == []


def test_minutes_of_which_nothing_more_is_heard_are_forgotten() -> None:
    minutes = WorkerMinutes(9)
    minutes.told("w", 5, 4)
    minutes.forget(5 + KEPT_MINUTES)
    assert minutes.due([])
    minutes.forget(6 + KEPT_MINUTES)
    assert not minutes.changed
    assert minutes.due([]) == []
