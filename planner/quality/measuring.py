"""Runs an evaluation: each request to both tiers, and to the full one again, with bounded concurrency."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass

from controlplane.model import FormatTier
from planner.quality.answers import Answer
from planner.quality.asking import Mode
from planner.quality.judging import Judged
from planner.quality.measured import Comparison, Failure, Measured, Text, Versus
from planner.quality.pairs import compare

# After so many requests in a row of which nothing could be compared, something is wrong that will stay wrong.
_FRUITLESS = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """`repetitions` is how often a request is sent as it asks itself; greedily it is sent once."""

    repetitions: int = 1
    concurrency: int = 1
    keep_texts: bool = False


Send = Callable[[Judged, Mode, FormatTier], Awaitable[Answer | Failure]]


def rounds(judged: Judged, plan: Plan) -> Iterator[tuple[Mode, int]]:
    """Modes and repetitions in which a request is sent. One that is greedy by itself has no other mode."""
    yield Mode.GREEDY, 0
    if not judged.greedy:
        for repetition in range(plan.repetitions):
            yield Mode.AS_ASKED, repetition


def answers(requests: Iterable[Judged], plan: Plan) -> int:
    """How many answers the requests are sent for: in each round the full tier's, the quantized one's, the full one's
    again."""
    return sum(3 for judged in requests for _ in rounds(judged, plan))


async def measure(requests: Iterable[Judged], send: Send, plan: Plan, done: Callable[[Measured], None]) -> bool:
    """Hands each request's result to `done` as it comes. False when it gave up, since nothing could be compared."""
    waiting = iter(requests)
    fruitless = 0

    async def work() -> None:
        nonlocal fruitless
        for judged in waiting:
            if fruitless >= _FRUITLESS:
                return
            measured = await _measure_one(judged, send, plan)
            fruitless = 0 if measured.compared else fruitless + 1
            done(measured)

    async with asyncio.TaskGroup() as group:
        for _ in range(plan.concurrency):
            group.create_task(work())
    return fruitless < _FRUITLESS


async def _measure_one(judged: Judged, send: Send, plan: Plan) -> Measured:
    comparisons: list[Comparison] = []
    failures: list[Failure] = []
    texts: list[Text] = []
    # Whichever is asked first finds the machine as the request before left it, so that they take turns.
    tiers = tuple(FormatTier) if judged.sample.number % 2 else tuple(reversed(FormatTier))
    for mode, repetition in rounds(judged, plan):
        by_tier = {tier: await send(judged, mode, tier) for tier in tiers}
        full = by_tier[FormatTier.FULL]
        others = {
            Versus.QUANTIZED: by_tier[FormatTier.QUANTIZED],
            Versus.FULL_AGAIN: await send(judged, mode, FormatTier.FULL),
        }
        for source, answer in (("full", full), *others.items()):
            if isinstance(answer, Failure):
                failures.append(answer)
            elif plan.keep_texts:
                texts.append(Text(mode, repetition, source, answer.text))
        if isinstance(full, Answer):
            comparisons.extend(
                Comparison(mode, versus, compare(full, other))
                for versus, other in others.items()
                if isinstance(other, Answer)
            )
    return Measured(judged, tuple(comparisons), tuple(failures), tuple(texts))
