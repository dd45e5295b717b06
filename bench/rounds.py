"""Rounds in which every contestant has its turn, so that what a machine does over the time meets all of them alike.

Nobody else may be at work: before each turn it is waited until the machine is quiet, a turn in which others took more
than a little is repeated, and the engine alone is measured before and after each round; a round in which that is not
what it is in most others does not count.
"""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from loading import Measured

BUSIEST = 0.12
TRIES = 3
CONTROL_TOLERANCE = 0.2


@dataclass(frozen=True, slots=True)
class Round:
    """`controls` are the engine's own requests a second, before and after."""

    controls: tuple[float, float]
    measured: tuple[Measured, ...]


async def run_rounds(
    wanted: int,
    turns: Sequence[Callable[[int], Awaitable[Measured]]],
    control: Callable[[], Awaitable[float]],
    quiet: Callable[[], float],
    tell: Callable[[str], None],
) -> list[Round]:
    """Rounds until `wanted` of them are steady, at most twice as many. Turns are given the number of the round; `quiet`
    waits for a quiet machine and gives the share that others take."""
    rounds: list[Round] = []
    while len(steady(rounds)) < wanted and len(rounds) < 2 * wanted:
        number = len(rounds)
        before = await control()
        # Each round begins with another contestant.
        order = [*turns[number % len(turns) :], *turns[: number % len(turns)]]
        measured = [await _undisturbed(turn, number, quiet, tell) for turn in order]
        rounds.append(Round((before, await control()), tuple(measured)))
        tell(f"  round {number + 1}: " + ", ".join(f"{m.contestant} {m.per_second:,.0f}/s" for m in measured))
    return rounds


def steady(rounds: Sequence[Round]) -> list[Round]:
    """Those in which the machine was as fast as it mostly was."""
    if not rounds:
        return []
    usual = statistics.median(control for each in rounds for control in each.controls)
    return [
        each for each in rounds if all(abs(control - usual) <= CONTROL_TOLERANCE * usual for control in each.controls)
    ]


def disturbed(rounds: Sequence[Round]) -> int:
    """How many turns had others at work in each of their tries."""
    return sum(measured.foreign > BUSIEST for each in rounds for measured in each.measured)


async def _undisturbed(
    turn: Callable[[int], Awaitable[Measured]], number: int, quiet: Callable[[], float], tell: Callable[[str], None]
) -> Measured:
    tries: list[Measured] = []
    while len(tries) < TRIES:
        share = quiet()
        if share > BUSIEST:
            tell(f"  the machine is busy: others take {share:.0%} of it")
        tries.append(await turn(number))
        if tries[-1].foreign <= BUSIEST:
            break
    return min(tries, key=lambda measured: measured.foreign)
