"""Shares, rates and means with 95% intervals, and how long pairs of answers stay the same. Dice are passed in."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean, stdev
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


def share(successes: float, trials: float) -> Estimate:
    """Wilson's score interval (https://doi.org/10.2307/2276774). `trials` is above 0; successes may be fractions,
    where each trial is a mean."""
    p = successes / trials
    spread = Z * math.sqrt(p * (1 - p) / trials + Z * Z / (4 * trials * trials))
    centre = p + Z * Z / (2 * trials)
    scale = 1 + Z * Z / trials
    low, high = (centre - spread) / scale, (centre + spread) / scale
    return Estimate(p, min(max(low, 0.0), p), max(min(high, 1.0), p), math.floor(trials))


def difference(one: Estimate, other: Estimate) -> Estimate:
    """`one` minus `other`, from their own intervals: for Wilson's this is Newcombe's method 10
    (https://pubmed.ncbi.nlm.nih.gov/9595617/), for others its generalisation (Zou and Donner, Statistics in Medicine
    27, 2008, 1693-1702). Both are for independent samples; of pairs that go together it is wider than it need be."""
    value = one.value - other.value
    low = value - math.hypot(one.value - one.low, other.high - other.value)
    high = value + math.hypot(one.high - one.value, other.value - other.low)
    return Estimate(value, low, high, min(one.n, other.n))


def rate(observations: Sequence[Agreement]) -> Estimate | None:
    """How often pairs diverge, per step at which they could: so answers that ended early do not count as good ones.

    Steps of one pair are no more alike than they are found to be: where pairs differ more than dice would have them,
    the interval is that of as many fewer steps (an effective sample size: Korn and Graubard, Survey Methodology 24,
    1998, 193-201). None where no pair had a step.
    """
    diverged = sum(each.diverged for each in observations)
    steps = sum(each.steps for each in observations) + diverged
    if not steps:
        return None
    fewer = _design_effect(observations, diverged / steps)
    return replace(share(diverged / fewer, steps / fewer), n=steps)


def _design_effect(observations: Sequence[Agreement], found: float) -> float:
    """By how much the variance of the rate between pairs exceeds the binomial one, at least 1."""
    pairs = len(observations)
    if pairs < 2 or not 0 < found < 1:
        return 1.0
    trials = [each.steps + each.diverged for each in observations]
    between = sum((each.diverged - found * seen) ** 2 for each, seen in zip(observations, trials, strict=True))
    return max(1.0, between * pairs / (pairs - 1) / (sum(trials) * found * (1 - found)))


def mean(values: Sequence[float]) -> Estimate | None:
    """With Student's interval. None for fewer than two values, which say nothing about their spread."""
    if len(values) < 2:
        return None
    centre = fmean(values)
    spread = student(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Estimate(centre, centre - spread, centre + spread, len(values))


def not_below_zero(found: Estimate | None) -> Estimate | None:
    """The estimate of what cannot be below 0, with its interval cut off there."""
    return replace(found, low=max(found.low, 0.0)) if found is not None else None


def student(freedom: int) -> float:
    """The quantile of Student's distribution that leaves 2.5% above it, to 1 in 800: exact for 1 and 2 degrees of
    freedom, else by Cornish's and Fisher's expansion (Abramowitz and Stegun 26.7.5)."""
    if freedom == 1:
        return math.tan(0.475 * math.pi)
    if freedom == 2:
        return 0.95 * math.sqrt(2 / (4 * 0.975 * 0.025))
    x = Z
    terms: tuple[float, ...] = (
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return x + sum(term / float(freedom**power) for power, term in enumerate(terms, 1))


def observations_for(found: Estimate, observations: int, half_width: float) -> int:
    """About how many observations would narrow an interval, found with so many, to `half_width` (above 0) on either
    side: it narrows with their square root."""
    return math.ceil(observations * ((found.high - found.low) / (2 * half_width)) ** 2)


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
