"""A worker's decisions have numbers, and it tells how many there are until somebody has heard."""

from __future__ import annotations

from controlplane.model import HttpRequest
from ext_proc.answer import Answer, Reply
from ext_proc.exchange import TooLarge
from ext_proc.names import KEY_MADE
from ext_proc.numbering import MOST_MINUTES, TOLD_AGAIN_MINUTES, Numbering
from ext_proc.waiting import Extend
from support.filter import not_extended


class Clock:
    def __init__(self) -> None:
        self.minute = 100

    def __call__(self) -> float:
        return self.minute * 60.0 + 7


def test_decisions_are_numbered_within_each_minute() -> None:
    clock = Clock()
    numbering = Numbering(clock, "w")
    assert [numbering.next(), numbering.next()] == ["w 100 1", "w 100 2"]
    clock.minute = 101
    assert numbering.next() == "w 101 1"
    clock.minute = 100  # set back
    assert numbering.next() == "w 101 2"
    assert numbering.to_tell() == {100: 2, 101: 2}


def test_no_two_workers_have_one_name() -> None:
    assert Numbering(Clock()).name != Numbering(Clock()).name


async def test_each_answer_says_which_decision_it_is() -> None:
    async def answer(request: HttpRequest | TooLarge, extend: Extend) -> Answer:
        return Reply(200, (), b"", {"reason": "x"}, "")

    numbered = Numbering(Clock(), "w").numbered(answer)
    request = HttpRequest("POST", "/", {}, b"")
    assert [(await numbered(request, not_extended)).metadata for _ in range(2)] == [
        {"reason": "x", KEY_MADE: "w 100 1"},
        {"reason": "x", KEY_MADE: "w 100 2"},
    ]


def test_what_was_told_is_told_for_a_while_longer_and_then_forgotten() -> None:
    clock = Clock()
    numbering = Numbering(clock, "w")
    numbering.next()
    numbering.told(numbering.to_tell())
    clock.minute += TOLD_AGAIN_MINUTES
    numbering.next()
    assert numbering.to_tell() == {100: 1, 110: 1}
    numbering.told(numbering.to_tell())
    clock.minute += 1
    numbering.next()
    assert numbering.to_tell() == {110: 1, 111: 1}


def test_what_nobody_has_heard_is_kept_but_not_for_ever() -> None:
    clock = Clock()
    numbering = Numbering(clock, "w")
    numbering.next()
    clock.minute += MOST_MINUTES
    numbering.next()
    assert set(numbering.to_tell()) == {100, 100 + MOST_MINUTES}
    clock.minute += 1
    numbering.next()
    assert set(numbering.to_tell()) == {100 + MOST_MINUTES, 101 + MOST_MINUTES}
