"""Shares, rates and means with 95% intervals, and how long pairs of answers stay the same. Dice are passed in."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import TypeVar

# The normal distribution's quantile that leaves 2.5% above it.
Z = 1.959963984540054
DRAWS = 2000

Observation = TypeVar("Observation")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95% interval, from `n` observations."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """How long two answers were the same, in `steps`, and whether they then `diverged` or just ended."""

    steps: int
    diverged: bool


@dataclass(frozen=True, slots=True)
class Quartiles:
    """After how many steps a quarter, half and three quarters of the pairs have diverged; None where they have not."""

    first: int | None
    median: int | None
    third: int | None


def share(successes: float, trials: int) -> Estimate:
    """Wilson's score interval (https://doi.org/10.2307/2276774). `trials` is 1 or more; successes may be fractions,
    where each trial is a mean."""
    p = successes / trials
    spread = Z * math.sqrt(p * (1 - p) / trials + Z * Z / (4 * trials * trials))
    centre = p + Z * Z / (2 * trials)
    scale = 1 + Z * Z / trials
    low, high = (centre - spread) / scale, (centre + spread) / scale
    return Estimate(p, min(max(low, 0.0), p), max(min(high, 1.0), p), trials)


def difference(one: Estimate, other: Estimate) -> Estimate:
    """`one` minus `other`, both with intervals of Wilson's, by Newcombe's hybrid score interval: his method 10
    (https://pubmed.ncbi.nlm.nih.gov/9595617/). He has it for independent samples; of pairs that go together it is
    wider than it need be."""
    value = one.value - other.value
    low = value - math.hypot(one.value - one.low, other.high - other.value)
    high = value + math.hypot(one.high - one.value, other.value - other.low)
    return Estimate(value, low, high, min(one.n, other.n))


def rate(observations: Sequence[Agreement]) -> Estimate | None:
    """How often pairs diverge, per step at which they could: so answers that ended early do not count as good ones.

    The interval takes steps to be alike. None where no pair had a step.
    """
    diverged = sum(each.diverged for each in observations)
    steps = sum(each.steps for each in observations) + diverged
    return share(diverged, steps) if steps else None


def bootstrap(
    values: Sequence[Observation], dice: Random, of: Callable[[Sequence[Observation]], float], draws: int = DRAWS
) -> Estimate | None:
    """The percentile bootstrap's interval. None for fewer than two values, which say nothing about their spread."""
    if len(values) < 2:
        return None
    drawn = sorted(of(dice.choices(values, k=len(values))) for _ in range(draws))
    value = of(values)
    low, high = drawn[int(0.025 * draws)], drawn[math.ceil(0.975 * draws) - 1]
    return Estimate(value, min(low, value), max(high, value), len(values))


def agreement_curve(observations: Sequence[Agreement]) -> tuple[tuple[int, float], ...]:
    """Kaplan and Meier's estimate: the share of pairs that are still the same after so many steps.

    Points where it falls, in order, from (0, 1.0). A pair whose answers ended alike counts for as long as it was seen.
    """
    seen = Counter(each.steps for each in observations)
    diverged = Counter(each.steps for each in observations if each.diverged)
    curve = [(0, 1.0)]
    still = 1.0
    at_risk = len(observations)
    for steps in sorted(seen):
        if diverged[steps]:
            still *= 1 - diverged[steps] / at_risk
            curve.append((steps, still))
        at_risk -= seen[steps]
    return tuple(curve)


def median_agreement(observations: Sequence[Agreement]) -> float:
    """After how many steps half of the pairs have diverged; infinite where they have not, as far as seen."""
    median = quartiles(agreement_curve(observations)).median
    return math.inf if median is None else float(median)


def quartiles(curve: Sequence[tuple[int, float]]) -> Quartiles:
    """Read off an agreement curve."""

    def reached(left: float) -> int | None:
        return next((steps for steps, still in curve if still <= left + 1e-9), None)

    return Quartiles(reached(0.75), reached(0.5), reached(0.25))


def geometric_mean(values: Sequence[float]) -> float:
    """Of values above 0: the mean that fits factors."""
    return math.exp(fmean(math.log(value) for value in values))
