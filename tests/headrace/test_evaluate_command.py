"""What `headrace evaluate` says beside its report."""

from __future__ import annotations

import pytest

from headrace.commands.evaluate import time_left, why_none
from planner.quality.judging import Judged, SetAside
from planner.quality.measuring import Plan, answers
from support.evaluation import judged


@pytest.mark.parametrize(
    ("elapsed", "done", "told"),
    [
        (70, 0, "waiting for the first answer"),
        (60, 1, "about 185 min left"),
        (60, 60, "about 2 min left"),
        (60, 120, "about 33 s left"),
        (60, 186, "about 0 s left"),
    ],
)
def test_how_long_it_takes_is_told_from_the_first_answer_on(elapsed: float, done: int, told: str) -> None:
    """However slow the answers are: a bar that forgets those of half a minute ago told it of fast engines only."""
    assert time_left(elapsed, done, 186) == told


def test_answers_are_counted_before_they_are_asked_for() -> None:
    greedy: Judged = judged("Write a Python function.", 0, "code")
    hot: Judged = judged("Tell me a story.", 0.9, "writing")
    # Full, quantized, and full again: greedily, and where that is something else as asked.
    assert answers([greedy, hot], Plan(repetitions=1)) == 3 + 6
    assert answers([greedy, hot], Plan(repetitions=4)) == 3 + 15


def test_requests_that_cannot_be_sent_for_one_reason_make_one_error() -> None:
    assert why_none([SetAside(1, "no such model"), SetAside(2, "no such model")]) == (
        "none of the 2 requests can be evaluated: no such model"
    )
    assert why_none([SetAside(1, "too long"), SetAside(2, "no such model"), SetAside(3, "too long")]) == (
        "none of the 3 requests can be evaluated:\n  2 of them: too long\n  1 of them: no such model"
    )
    assert why_none([]) == "ended before a request was sent"
