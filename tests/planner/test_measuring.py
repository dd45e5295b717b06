"""Whole evaluations, with a system that is played."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.model import FormatTier
from planner.quality.answers import Answer
from planner.quality.asking import Mode
from planner.quality.judging import Judged
from planner.quality.measured import Failure, FailureKind, Measured, Versus
from planner.quality.measuring import Plan, measure


class Played:
    """Answers `full` or `quantized`; remembers what it was asked."""

    def __init__(self, *, broken: FormatTier | None = None) -> None:
        self.asked: list[tuple[int, Mode, FormatTier]] = []
        self.broken = broken
        self.running = self.most_running = 0

    async def send(self, judged: Judged, mode: Mode, tier: FormatTier) -> Answer | Failure:
        self.asked.append((judged.sample.number, mode, tier))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        if tier is self.broken:
            return Failure(FailureKind.REFUSED, tier, "status 503")
        return Answer(tier.value)


async def test_each_request_goes_to_both_tiers_and_to_the_full_one_again_in_both_modes(stories: list[Judged]) -> None:
    played, found = Played(), list[Measured]()
    assert await measure(stories[1:3], played.send, Plan(), found.append) is True
    full, quantized = FormatTier.FULL, FormatTier.QUANTIZED
    one = [(1, mode, tier) for mode in Mode for tier in (full, quantized, full)]
    two = [(2, mode, tier) for mode in Mode for tier in (quantized, full, full)]
    assert played.asked == [*one, *two]
    assert [(c.mode, c.versus, c.pair.same) for c in found[0].comparisons] == [
        (mode, versus, same) for mode in Mode for versus, same in ((Versus.QUANTIZED, False), (Versus.FULL_AGAIN, True))
    ]


async def test_a_request_that_is_greedy_by_itself_is_sent_in_one_mode(programs: list[Judged]) -> None:
    played = Played()
    await measure(programs[:1], played.send, Plan(repetitions=3), lambda _: None)
    assert [mode for _, mode, _ in played.asked] == [Mode.GREEDY] * 3


async def test_repetitions_are_of_requests_as_they_ask_themselves(stories: list[Judged]) -> None:
    played = Played()
    await measure(stories[:1], played.send, Plan(repetitions=2), lambda _: None)
    assert [mode for _, mode, _ in played.asked] == [Mode.GREEDY] * 3 + [Mode.AS_ASKED] * 6


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_no_more_requests_are_measured_at_once_than_planned(stories: list[Judged], concurrency: int) -> None:
    played, found = Played(), list[Measured]()
    await measure(stories, played.send, Plan(concurrency=concurrency), found.append)
    assert (played.most_running, len(found)) == (concurrency, len(stories))


async def test_what_one_tier_did_not_answer_is_a_failure_and_the_rest_is_compared(stories: list[Judged]) -> None:
    found = list[Measured]()
    await measure(stories[:1], Played(broken=FormatTier.QUANTIZED).send, Plan(), found.append)
    assert {c.versus for c in found[0].comparisons} == {Versus.FULL_AGAIN}
    assert [str(failure) for failure in found[0].failures] == ["quantized: refused (status 503)"] * 2


@pytest.mark.parametrize("broken", FormatTier)
async def test_it_gives_up_when_nothing_can_be_compared(stories: list[Judged], broken: FormatTier) -> None:
    found = list[Measured]()
    assert await measure(stories, Played(broken=broken).send, Plan(), found.append) is False
    assert len(found) == 5


async def test_what_was_measured_before_it_is_cancelled_is_kept(stories: list[Judged]) -> None:
    found, third = list[Measured](), asyncio.Event()
    played = Played()

    async def send(judged: Judged, mode: Mode, tier: FormatTier) -> Answer | Failure:
        if len(found) == 2:
            third.set()
            await asyncio.Event().wait()
        return await played.send(judged, mode, tier)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(measure(stories, send, Plan(), found.append))
        await third.wait()
        task.cancel()
    assert len(found) == 2


async def test_texts_are_kept_only_on_demand(stories: list[Judged]) -> None:
    found = list[Measured]()
    await measure(stories[:1], Played().send, Plan(), found.append)
    await measure(stories[:1], Played().send, Plan(keep_texts=True), found.append)
    assert found[0].texts == ()
    assert [(text.source, text.text) for text in found[1].texts[:3]] == [
        ("full", "full"),
        ("quantized", "quantized"),
        ("full_again", "full"),
    ]
