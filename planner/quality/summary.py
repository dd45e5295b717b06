"""Sums measured pairs up: over all requests, by verdict, by category, and by both. Pure; dice are passed in.

The unit is the request: what was measured several times with one is averaged first, so that repetitions do not pass for
more evidence than they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean, median

from controlplane.model import Verdict
from planner.quality.asking import Mode
from planner.quality.measured import Measured, Versus
from planner.quality.pairs import Pair
from planner.quality.statistics import (
    Agreement,
    Estimate,
    Quartiles,
    agreement_curve,
    bootstrap,
    difference,
    geometric_mean,
    mean,
    median_agreement,
    not_below_zero,
    quartiles,
    rate,
    share,
)

# From the one that needs full quality most.
VERDICTS = (Verdict.SENSITIVE, Verdict.NEUTRAL, Verdict.TOLERANT)


@dataclass(frozen=True, slots=True)
class Gap:
    """How other answers differ from the full tier's. None for what the engines do not tell, or for too few requests.

    `changed` is the share of pairs that are not the same to the last character. `divergence` is how often answers
    diverge per step, and `curve` the share that is still the same by step; steps are `unit`s. Differences are as in
    `Pair`: `first_text` is the median, `speed` the geometric mean, all others are means.
    """

    requests: int
    changed: Estimate
    unit: str
    divergence: Estimate | None
    first_divergence: Quartiles
    median_divergence: Estimate | None
    curve: tuple[tuple[int, float], ...]
    prefix_shift: Estimate | None
    prefix_difference: Estimate | None
    answer_difference: Estimate | None
    length_difference: Estimate | None
    first_text: Estimate | None
    speed: Estimate | None


@dataclass(frozen=True, slots=True)
class ModeGap:
    """The gap between the tiers, beside the full tier's gap to itself, its noise. `excess` is what the first has more
    of changed answers, `divergence_excess` of divergences per step, `shift_excess` of `prefix_shift`."""

    quantized: Gap
    noise: Gap | None
    excess: Estimate | None
    divergence_excess: Estimate | None
    shift_excess: Estimate | None


@dataclass(frozen=True, slots=True)
class Group:
    """Requests of a category, of a verdict, of both, or all. Modes without a pair are left out."""

    category: str | None
    verdict: Verdict | None
    requests: int
    gaps: Mapping[Mode, ModeGap]


@dataclass(frozen=True, slots=True)
class Summary:
    overall: Group
    verdicts: tuple[Group, ...]
    categories: tuple[Group, ...]
    cells: tuple[Group, ...]


def summarise(every: Sequence[Measured], dice: Random) -> Summary:
    verdicts = [verdict for verdict in VERDICTS if any(each.judged.verdict is verdict for each in every)]
    categories = sorted({each.judged.category for each in every})
    return Summary(
        overall=_group(every, None, None, dice),
        verdicts=tuple(_group(every, None, verdict, dice) for verdict in verdicts),
        categories=tuple(_group(every, category, None, dice) for category in categories),
        cells=tuple(
            group
            for category in categories
            for verdict in verdicts
            if (group := _group(every, category, verdict, dice)).requests
        ),
    )


def pairs_by_request(every: Iterable[Measured], mode: Mode, versus: Versus) -> list[list[Pair]]:
    """Requests without such a pair are left out. One that is greedy by itself has its greedy pairs in both modes."""
    found = []
    for each in every:
        sent_as = Mode.GREEDY if each.judged.greedy else mode
        pairs = [c.pair for c in each.comparisons if c.mode is sent_as and c.versus is versus]
        if pairs:
            found.append(pairs)
    return found


def gap(requests: Sequence[Sequence[Pair]], dice: Random) -> Gap:
    """Of at least one request, with at least one pair each."""
    pairs = [pair for request in requests for pair in request]
    in_tokens = [pair.tokens for pair in pairs if pair.tokens is not None]
    whole = len(in_tokens) == len(pairs)
    agreements: Sequence[Agreement] = in_tokens if whole else [pair.characters for pair in pairs]
    curve = agreement_curve(agreements)

    def by_request(of: Callable[[Pair], float | None]) -> list[float]:
        return [fmean(values) for request in requests if (values := [v for p in request if (v := of(p)) is not None])]

    return Gap(
        requests=len(requests),
        changed=share(sum(fmean(not pair.same for pair in request) for request in requests), len(requests)),
        unit="tokens" if whole else "characters",
        divergence=rate(agreements),
        first_divergence=quartiles(curve),
        median_divergence=bootstrap(agreements, dice, median_agreement),
        curve=curve,
        prefix_shift=not_below_zero(mean(by_request(lambda pair: pair.prefix_shift))),
        prefix_difference=mean(by_request(lambda pair: pair.prefix_difference)),
        answer_difference=mean(by_request(lambda pair: pair.answer_difference)),
        length_difference=mean(by_request(lambda pair: pair.length_difference)),
        first_text=bootstrap(by_request(lambda pair: pair.first_text_difference), dice, median),
        speed=bootstrap(by_request(lambda pair: pair.speed_ratio), dice, geometric_mean),
    )


def _group(every: Sequence[Measured], category: str | None, verdict: Verdict | None, dice: Random) -> Group:
    chosen = [
        each for each in every if category in {None, each.judged.category} and verdict in {None, each.judged.verdict}
    ]
    found = {mode: _mode_gap(chosen, mode, dice) for mode in Mode}
    return Group(category, verdict, len(chosen), {mode: each for mode, each in found.items() if each is not None})


def _mode_gap(every: Sequence[Measured], mode: Mode, dice: Random) -> ModeGap | None:
    answered = pairs_by_request(every, mode, Versus.QUANTIZED)
    repeated = pairs_by_request(every, mode, Versus.FULL_AGAIN)
    if not answered:
        return None
    quantized = gap(answered, dice)
    noise = gap(repeated, dice) if repeated else None
    comparable = noise if noise is not None and noise.unit == quantized.unit else None
    return ModeGap(
        quantized=quantized,
        noise=noise,
        excess=difference(quantized.changed, noise.changed) if noise else None,
        divergence_excess=_beyond(quantized.divergence, comparable.divergence) if comparable else None,
        shift_excess=_beyond(quantized.prefix_shift, noise.prefix_shift) if noise else None,
    )


def _beyond(found: Estimate | None, noise: Estimate | None) -> Estimate | None:
    return difference(found, noise) if found is not None and noise is not None else None
