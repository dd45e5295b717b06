"""What the measured gap says about the policy's sensitivity rules, category by category: which verdicts it bears out,
and which weight would change those that it contradicts, with what such a change would do to the other requests
measured. Changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

from controlplane.model import Verdict
from controlplane.policy.classify import Classifier, compile_rules
from controlplane.policy.settings import Policy, SensitivityWeights
from planner.quality.asking import Mode
from planner.quality.comparing import Comparison, Finding, compare_groups
from planner.quality.judging import Judged
from planner.quality.summary import Group, Summary

# Weights are tried in such steps.
_STEP = 5


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
    """What is found of the requests of a category with a verdict, in comparison with all of verdict `against`; None
    where there are none.

    `note` says more in words. `rules` are the named contributions that made the verdict, with the words of the policy
    that spoke.
    """

    category: str
    verdict: Verdict
    requests: int
    against: Verdict | None
    comparison: Comparison
    note: str = ""
    rules: tuple[str, ...] = ()
    change: WeightChange | None = None

    @property
    def finding(self) -> Finding:
        return self.comparison.finding


def advise(summary: Summary, judged: Sequence[Judged], policy: Policy) -> tuple[Advice, ...]:
    """Of each category and verdict, those first that speak for a change."""
    classifier = compile_rules(policy.sensitivity)
    order = (Finding.CONTRADICTED, Finding.BORNE_OUT, Finding.OPEN)
    found = [_advise(cell, summary, judged, classifier) for cell in summary.cells]
    return tuple(sorted(found, key=lambda advice: order.index(advice.finding)))


def _advise(cell: Group, summary: Summary, judged: Sequence[Judged], classifier: Classifier) -> Advice:
    assert cell.category is not None
    assert cell.verdict is not None
    against = _opposite(cell.verdict, summary)
    found = Advice(
        category=cell.category,
        verdict=cell.verdict,
        requests=cell.requests,
        against=against.verdict if against is not None else None,
        comparison=_compare(cell, against, summary),
    )
    if found.finding is not Finding.CONTRADICTED:
        return found
    its_own = [each for each in judged if each.category == cell.category and each.verdict is cell.verdict]
    strict = cell.verdict is Verdict.SENSITIVE
    return replace(
        found,
        note="the rules may be too strict here" if strict else f"the rules may be too lax here. {_as_asked(cell)}",
        rules=_rules(its_own, towards_full=strict),
        change=_change(its_own, judged, classifier, raise_score=not strict),
    )


def _compare(cell: Group, other: Group | None, summary: Summary) -> Comparison:
    if other is None:
        missing = "tolerant or neutral" if cell.verdict is Verdict.SENSITIVE else "sensitive"
        why = f"there is no {missing} request to compare with"
        return Comparison((cell.requests, 0), Finding.OPEN, why_open=why)
    more, less = (cell, other) if cell.verdict is Verdict.SENSITIVE else (other, cell)
    return compare_groups(more, less, summary.overall)


def _opposite(verdict: Verdict | None, summary: Summary) -> Group | None:
    """All requests of the verdict that the rules put farthest from it; the sensitive ones for all others."""
    groups = summary.verdicts if verdict is not Verdict.SENSITIVE else summary.verdicts[::-1]
    found = next(iter(groups), None)
    is_other_side = found is not None and (found.verdict is Verdict.SENSITIVE) is not (verdict is Verdict.SENSITIVE)
    return found if is_other_side else None


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
