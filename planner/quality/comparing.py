"""Whether groups of requests differ as the verdicts say: those that the rules call more sensitive should change more.

Pure. Two measures are compared, of greedy answers, in which dice hide nothing, and beyond the full tier's noise: how
often answers diverge, and how far the log-probability of their tokens is moved.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from controlplane.model import Verdict
from planner.quality.asking import Mode
from planner.quality.statistics import Estimate, difference, observations_for
from planner.quality.summary import Group, ModeGap, Summary

# Groups of fewer requests are not compared.
LEAST_REQUESTS = 5
# A difference of this share of the gap of all requests is worth knowing of.
WORTH_KNOWING = 0.5


class Finding(StrEnum):
    """`open` is all that is not told apart: a difference whose interval holds 0 is neither there nor absent."""

    BORNE_OUT = "borne out"
    CONTRADICTED = "contradicted"
    OPEN = "open"


class Measure(StrEnum):
    DIVERGENCES = "divergences"
    SHIFT = "log-probability shift"


@dataclass(frozen=True, slots=True)
class Contrast:
    """One measure of two groups: what the one has of it that should have more, and the other, each beyond its noise.

    `unit` is that of the steps at which answers can diverge. About `requests_needed` requests, of both groups together,
    would narrow the interval of the difference to `worth_knowing` on either side; None where all requests have no gap.
    """

    measure: Measure
    unit: str
    more: Estimate
    less: Estimate
    difference: Estimate
    finding: Finding
    worth_knowing: float | None
    requests_needed: int | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two groups, of `requests` each, the one first that should change more. `why_open` says so where nothing could be
    compared."""

    requests: tuple[int, int]
    finding: Finding
    contrasts: tuple[Contrast, ...] = ()
    why_open: str = ""

    def by(self, finding: Finding) -> tuple[Contrast, ...]:
        return tuple(each for each in self.contrasts if each.finding is finding)


@dataclass(frozen=True, slots=True)
class Separation:
    """Whether requests judged `more` sensitive change more than those judged `less` so."""

    more: Verdict
    less: Verdict
    comparison: Comparison


def separate(summary: Summary) -> tuple[Separation, ...]:
    """Each two of the verdicts that there are, the two that are farthest apart first."""
    groups = [(group.verdict, group) for group in summary.verdicts if group.verdict is not None]
    pairs = [(one, other) for place, one in enumerate(groups) for other in groups[:place:-1]]
    return tuple(
        Separation(more, less, compare_groups(one, other, summary.overall)) for (more, one), (less, other) in pairs
    )


def compare_groups(more: Group, less: Group, overall: Group) -> Comparison:
    requests = (_measured(more), _measured(less))
    if min(requests) < LEAST_REQUESTS:
        few = f"{requests[0]} against {requests[1]} requests; fewer than {LEAST_REQUESTS} are too few to judge by"
        return Comparison(requests, Finding.OPEN, why_open=few)
    contrasts = tuple(
        found for measure in Measure if (found := _contrast(measure, more, less, overall, sum(requests))) is not None
    )
    if not contrasts:
        return Comparison(requests, Finding.OPEN, why_open="nothing was measured of both beside their noise")
    return Comparison(requests, combine(each.finding for each in contrasts), contrasts)


def judge_difference(found: Estimate) -> Finding:
    """Of what should be above 0."""
    if found.low > 0:
        return Finding.BORNE_OUT
    return Finding.CONTRADICTED if found.high < 0 else Finding.OPEN


def combine(findings: Iterable[Finding]) -> Finding:
    """One that is told apart decides, unless another one is told apart the other way round."""
    told = set(findings) - {Finding.OPEN}
    return told.pop() if len(told) == 1 else Finding.OPEN


def _contrast(measure: Measure, more: Group, less: Group, overall: Group, requests: int) -> Contrast | None:
    one, other, every = (_beyond_noise(measure, group) for group in (more, less, overall))
    units = {gap.quantized.unit for group in (more, less, overall) if (gap := group.gaps.get(Mode.GREEDY)) is not None}
    # Shifts are of tokens in any case; divergences per token and per character are not alike.
    if one is None or other is None or (measure is Measure.DIVERGENCES and len(units) != 1):
        return None
    found = difference(one, other)
    worth_knowing = WORTH_KNOWING * every.value if every is not None and every.value > 0 else None
    return Contrast(
        measure=measure,
        unit=min(units),
        more=one,
        less=other,
        difference=found,
        finding=judge_difference(found),
        worth_knowing=worth_knowing,
        requests_needed=observations_for(found, requests, worth_knowing) if worth_knowing else None,
    )


def _beyond_noise(measure: Measure, group: Group) -> Estimate | None:
    gap = group.gaps.get(Mode.GREEDY)
    if gap is None:
        return None
    return gap.divergence_excess if measure is Measure.DIVERGENCES else gap.shift_excess


def _measured(group: Group) -> int:
    gap: ModeGap | None = group.gaps.get(Mode.GREEDY)
    return gap.quantized.requests if gap is not None else 0


def any_gap(overall: Group) -> bool:
    """Whether quantization changes anything measurable at all."""
    found = (_beyond_noise(measure, overall) for measure in Measure)
    return any(each is not None and each.low > 0 for each in found)
