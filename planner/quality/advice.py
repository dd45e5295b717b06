"""What the measured gap says about the policy's sensitivity rules: which verdicts it bears out, and which weight would
change those that it does not, with what such a change would do to the other requests measured. Changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum

from controlplane.model import Verdict
from controlplane.policy.classify import Classifier, compile_rules
from controlplane.policy.settings import Policy, SensitivityWeights
from planner.quality.asking import Mode
from planner.quality.judging import Judged
from planner.quality.statistics import Estimate, difference
from planner.quality.summary import Group, Summary

# Fewer requests of one category and verdict are not judged.
LEAST_REQUESTS = 5
# Weights are tried in such steps.
_STEP = 5


class Finding(StrEnum):
    BORNE_OUT = "borne out"
    TOO_LAX = "too lax"
    TOO_STRICT = "too strict"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class WeightChange:
    """A setting, what it is and what it might be; `moved` of the `requests` judged as before would get another verdict,
    and so would `others` of other categories or verdicts, by category."""

    setting: str
    current: float
    proposed: float
    requests: int
    moved: int
    others: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Advice:
    """What is found of the requests of a category with a verdict; `why` gives the numbers. `rules` are the named
    contributions that made the verdict, with the words of the policy that spoke."""

    category: str
    verdict: Verdict
    requests: int
    finding: Finding
    why: str
    rules: tuple[str, ...] = ()
    change: WeightChange | None = None


def advise(summary: Summary, judged: Sequence[Judged], policy: Policy) -> tuple[Advice, ...]:
    """Of each category and verdict, those first that speak for a change."""
    classifier = compile_rules(policy.sensitivity)
    order = (Finding.TOO_LAX, Finding.TOO_STRICT, Finding.BORNE_OUT, Finding.OPEN)
    found = [_advise(cell, summary, judged, classifier) for cell in summary.cells]
    return tuple(sorted(found, key=lambda advice: order.index(advice.finding)))


def _advise(cell: Group, summary: Summary, judged: Sequence[Judged], classifier: Classifier) -> Advice:
    assert cell.category is not None
    assert cell.verdict is not None
    finding, why = judge_cell(cell, summary)
    its_own = [each for each in judged if each.category == cell.category and each.verdict is cell.verdict]
    lax = finding is Finding.TOO_LAX
    changes = finding in {Finding.TOO_LAX, Finding.TOO_STRICT}
    return Advice(
        category=cell.category,
        verdict=cell.verdict,
        requests=cell.requests,
        finding=finding,
        why=why,
        rules=_rules(its_own, towards_full=not lax) if changes else (),
        change=_change(its_own, judged, classifier, raise_score=lax) if changes else None,
    )


def judge_cell(cell: Group, summary: Summary) -> tuple[Finding, str]:
    """By greedy answers, in which dice hide nothing: how often they diverge per step, beyond the full tier's noise."""
    greedy = cell.gaps.get(Mode.GREEDY)
    if greedy is None or greedy.divergence_excess is None or greedy.quantized.divergence is None:
        return Finding.OPEN, "nothing was measured"
    excess, own, unit = greedy.divergence_excess, greedy.quantized.divergence, greedy.quantized.unit
    gap = f"{_per_hundred(excess)} more divergences per 100 {unit} than noise"
    if cell.requests < LEAST_REQUESTS:
        return Finding.OPEN, f"{gap}; fewer than {LEAST_REQUESTS} requests are too few to judge by"
    reference = _reference(cell, summary, unit)
    if cell.verdict is Verdict.SENSITIVE:
        return _judge_sensitive(gap, excess, own, reference)
    return _judge_other(gap, excess, own, reference, cell)


def _judge_sensitive(gap: str, excess: Estimate, own: Estimate, reference: Estimate | None) -> tuple[Finding, str]:
    if excess.low > 0:
        return Finding.BORNE_OUT, gap
    if reference is not None and difference(reference, own).low > 0:
        return Finding.TOO_STRICT, f"no measurable gap: {gap}; all requests together have {_per_hundred(reference)}"
    return Finding.OPEN, f"no measurable gap so far: {gap}; more requests would tell"


def _judge_other(
    gap: str, excess: Estimate, own: Estimate, reference: Estimate | None, cell: Group
) -> tuple[Finding, str]:
    if excess.low <= 0:
        return Finding.BORNE_OUT, f"no measurable gap: {gap}"
    if reference is None:
        return Finding.OPEN, f"{gap}; there is no sensitive request to compare with"
    if difference(own, reference).low > 0:
        return Finding.TOO_LAX, f"{gap}; sensitive ones have {_per_hundred(reference)}. {_as_asked(cell)}"
    return Finding.BORNE_OUT, f"{gap}, not measurably above the sensitive ones' {_per_hundred(reference)}"


def _reference(cell: Group, summary: Summary, unit: str) -> Estimate | None:
    """How often the answers diverge that the cell's are compared with: those of the sensitive requests, or for a
    sensitive cell those of all."""
    groups: Iterable[Group] = summary.verdicts
    if cell.verdict is Verdict.SENSITIVE:
        greedy = summary.overall.gaps.get(Mode.GREEDY)
    else:
        greedy = next((group.gaps.get(Mode.GREEDY) for group in groups if group.verdict is Verdict.SENSITIVE), None)
    return greedy.quantized.divergence if greedy is not None and greedy.quantized.unit == unit else None


def _as_asked(cell: Group) -> str:
    """Whether the gap is seen in answers at the requests' own temperature."""
    own = cell.gaps.get(Mode.AS_ASKED)
    if own is None:
        return "At their own temperature nothing was measured"
    told = (own.quantized.answer_difference, own.quantized.length_difference)
    seen = any(each is not None and (each.low > 0 or each.high < 0) for each in told)
    if seen:
        return "At their own temperature it shows too, in log-probability or length"
    return "At their own temperature, sampling hides it in log-probability and length: look at answers first"


# --- which rule, and how far ---------------------------------------------------------------------------------------


def _rules(its_own: Sequence[Judged], *, towards_full: bool) -> tuple[str, ...]:
    """The contributions that made the verdict, by how many of the requests have them."""
    counts = Counter(
        (part.name, part.why) for each in its_own for part in each.contributions if (part.points > 0) is towards_full
    )
    by_name: dict[str, list[str]] = {}
    for (name, why), count in counts.most_common():
        by_name.setdefault(name, []).append(f"{why} ({count})")
    return tuple(f"{name}: {'; '.join(reasons[:4])}" for name, reasons in by_name.items())


def _change(
    its_own: Sequence[Judged], every: Sequence[Judged], classifier: Classifier, *, raise_score: bool
) -> WeightChange | None:
    """The smallest step of one weight by which most of the requests get another verdict; of several weights the one
    that moves the fewest other requests. None where no weight does."""
    outside = [each for each in every if not any(each is own for own in its_own)]
    before = {id(each): _verdict(each, classifier) for each in every}
    found: list[WeightChange] = []
    for name, current in _weights_of(its_own, classifier, negative=raise_score):
        for proposed in _steps(current):
            weights = replace(classifier.rules.weights, **{name: proposed})
            tried = Classifier(replace(classifier.rules, weights=weights), classifier.vocabulary)
            moved = sum(_verdict(each, tried) is not before[id(each)] for each in its_own)
            if 2 * moved > len(its_own):
                others = Counter(each.category for each in outside if _verdict(each, tried) is not before[id(each)])
                setting = f"policy.sensitivity.weights.{name}"
                found.append(WeightChange(setting, current, proposed, len(its_own), moved, tuple(others.most_common())))
                break
    return min(found, key=lambda change: sum(count for _, count in change.others), default=None)


def _verdict(judged: Judged, classifier: Classifier) -> Verdict:
    return classifier.classify(judged.ask, judged.output_tokens).verdict


def _weights_of(its_own: Sequence[Judged], classifier: Classifier, *, negative: bool) -> Iterator[tuple[str, float]]:
    named = {part.name for each in its_own for part in each.contributions if (part.points < 0) is negative}
    for field in fields(SensitivityWeights):
        if field.name in named:
            yield field.name, getattr(classifier.rules.weights, field.name)


def _steps(current: float) -> Iterator[float]:
    """From the weight towards 0."""
    sign = 1 if current > 0 else -1
    left = abs(current) - _STEP
    while left > 0:
        yield sign * left
        left -= _STEP
    yield 0.0


def _per_hundred(estimate: Estimate) -> str:
    return f"{100 * estimate.value:.1f} ({100 * estimate.low:.1f} to {100 * estimate.high:.1f})"
