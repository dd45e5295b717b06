"""In which order contestants have their turns, and which turns and rounds count."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from loading import Measured
from rounds import BUSIEST, run_rounds, steady


def measured(contestant: str, per_second: float = 100.0, foreign: float = 0.0) -> Measured:
    return Measured(contestant, 100, 0, per_second, (1.0, 2.0, 3.0), (), (), {"it": 0.1}, {"it": 50.0}, foreign)


def quiet() -> float:
    return 0.0


def silent(_: str) -> None:
    pass


def turn(name: str, had: list[tuple[str, int]], foreign: Iterator[float]) -> Callable[[int], Awaitable[Measured]]:
    async def taken(number: int) -> Measured:
        had.append((name, number))
        return measured(name, foreign=next(foreign, 0.0))

    return taken


async def usual() -> float:
    return 1000.0


async def test_every_contestant_has_a_turn_in_each_round_and_each_round_begins_with_another() -> None:
    had: list[tuple[str, int]] = []
    turns = [turn(name, had, iter(())) for name in ("a", "b")]
    await run_rounds(3, turns, usual, quiet, silent)
    assert had == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)]


async def test_a_turn_with_others_at_work_is_repeated_and_the_quietest_counts() -> None:
    had: list[tuple[str, int]] = []
    busy = BUSIEST + 0.1
    [only] = await run_rounds(1, [turn("a", had, iter((busy + 0.2, busy, busy + 0.1)))], usual, quiet, silent)
    assert len(had) == 3
    assert [each.foreign for each in only.measured] == [busy]


async def test_a_round_in_which_the_machine_was_slow_is_made_up_for() -> None:
    controls = iter((1000.0, 1000.0, 1000.0, 500.0))

    async def control() -> float:
        return next(controls, 1000.0)

    rounds = await run_rounds(2, [turn("a", [], iter(()))], control, quiet, silent)
    assert len(rounds) == 3
    assert len(steady(rounds)) == 2
