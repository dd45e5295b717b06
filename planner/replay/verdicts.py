"""Judges a recorded request's sensitivity anew, by the contributions that were recorded in the place of its words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from msgspec import structs

from controlplane.model import Ask, Contribution, Sensitivity, Verdict
from controlplane.policy.classify import verdict_of
from controlplane.policy.settings import SensitivityRules

_TEMPERATURES = frozenset({"greedy", "near_greedy", "hot", "hot_by_default"})
_WORDS = frozenset({"structured_words", "creative_words"})
_READ_FROM_WORDS = ("words", "words_version", "positions", "head_chars", "tail_chars")
# Points are added up in another order, or from a recording of fewer digits.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Recalled:
    """Stands in for the classifier: `recorded` is what was judged by the rules `was`, judged anew by `now`.

    `verdict`, where it is set, is taken for granted.
    """

    recorded: Sensitivity
    was: SensitivityRules
    now: SensitivityRules
    verdict: Verdict | None = None

    def classify(self, _: Ask, expected_output_tokens: int) -> Sensitivity:
        if self.verdict is not None:
            return structs.replace(self.recorded, verdict=self.verdict)
        if self.was == self.now:
            return structs.replace(self.recorded, verdict=verdict_of(self.recorded.score, self.now))
        parts = reweighed(self.recorded, self.was, self.now, expected_output_tokens).parts
        score = round(sum(part.points for part in parts), 6)
        return Sensitivity(verdict_of(score, self.now), score, parts)


@dataclass(frozen=True, slots=True)
class Reweighed:
    """`certain` unless the score hangs on words or settings of the request that were not recorded."""

    parts: tuple[Contribution, ...]
    certain: bool


@dataclass(frozen=True, slots=True)
class _Heat:
    """What the sampling settings come to: one of _TEMPERATURES, or none of them; and whether words may be creative."""

    name: str
    certain: bool = True

    @property
    def is_sampled(self) -> bool:
        return self.name in {"", "hot", "hot_by_default"}


def reweighed(
    recorded: Sensitivity, was: SensitivityRules, now: SensitivityRules, expected_output_tokens: int
) -> Reweighed:
    """The contributions as the rules `now` have them. Those of words keep how strongly they spoke."""
    found = {part.name: part for part in recorded.contributions}
    before, after = _heat_before(found), _heat_after(found, was, now)
    certain = after.certain and all(getattr(was, name) == getattr(now, name) for name in _READ_FROM_WORDS)
    certain = certain and (before.is_sampled or not after.is_sampled)  # creative words were not looked for
    parts = []
    if after.name:
        why = found[after.name].why if after.name in found else ""
        parts.append(Contribution(after.name, getattr(now.weights, after.name), why))
    for name, part in found.items():
        if name in _TEMPERATURES or name == "long_output" or (name == "creative_words" and not after.is_sampled):
            continue
        if name not in _WORDS:
            parts.append(structs.replace(part, points=getattr(now.weights, name, part.points)))
            continue
        weighed, to = _weight(name, before, was), _weight(name, after, now)
        strength = part.points / weighed if weighed else 0.0
        certain = certain and (bool(weighed) or not to)
        parts.append(structs.replace(part, points=part.points if weighed == to else strength * to))
    if expected_output_tokens > now.long_output_tokens:
        parts.append(Contribution("long_output", now.weights.long_output, "many output tokens are expected"))
    return Reweighed(tuple(parts), certain)


def fits(recorded: Sensitivity, rules: SensitivityRules) -> bool:
    """Whether it may have been judged by these rules: by their thresholds, and by their weights as far as one sees."""
    heat = _heat_before({part.name: part for part in recorded.contributions})
    for part in recorded.contributions:
        if part.name in _WORDS:
            most = _weight(part.name, heat, rules)
            within = min(0.0, most) - _ROUNDING <= part.points <= max(0.0, most) + _ROUNDING
        else:
            within = abs(part.points - getattr(rules.weights, part.name, part.points)) <= _ROUNDING
        if not within:
            return False
    return verdict_of(recorded.score, rules) is recorded.verdict


def differ_in_words(was: SensitivityRules, now: SensitivityRules) -> tuple[str, ...]:
    """The settings that say which words are read and how, as far as they differ."""
    return tuple(
        f.name for f in fields(was) if f.name in _READ_FROM_WORDS and getattr(was, f.name) != getattr(now, f.name)
    )


def _weight(name: str, heat: _Heat, rules: SensitivityRules) -> float:
    if name == "structured_words" and heat.name == "hot":
        return rules.weights.structured_words_when_hot
    weight: float = getattr(rules.weights, name)
    return weight


def _heat_before(found: Mapping[str, Contribution]) -> _Heat:
    return _Heat(next((name for name in found if name in _TEMPERATURES), ""))


def _heat_after(found: Mapping[str, Contribution], was: SensitivityRules, now: SensitivityRules) -> _Heat:
    """As the classifier orders them: greedy, narrow, not given, near greedy, hot."""
    before = _heat_before(found)
    match before.name:
        case "greedy" | "hot_by_default" if _narrows_alike(was, now) or before.name == "greedy":
            return before
        case "near_greedy" | "hot":
            setting, value = _said(found[before.name])
            if setting == "temperature":
                return _Heat(_heat_of(value, now), certain=_narrows_alike(was, now))
            narrow = now.narrow_top_p if setting == "top_p" else now.narrow_min_p
            still = value <= narrow if setting == "top_p" else value >= narrow
            return _Heat("near_greedy", certain=still)
        case _:
            least, most = was.near_greedy_temperature, was.hot_temperature
            same = now.near_greedy_temperature <= least and now.hot_temperature >= most
            return _Heat(before.name, certain=same and _narrows_alike(was, now))


def _narrows_alike(was: SensitivityRules, now: SensitivityRules) -> bool:
    return (was.narrow_top_p, was.narrow_min_p) == (now.narrow_top_p, now.narrow_min_p)


def _heat_of(temperature: float, rules: SensitivityRules) -> str:
    if temperature <= rules.near_greedy_temperature:
        return "near_greedy"
    return "hot" if temperature > rules.hot_temperature else ""


def _said(part: Contribution) -> tuple[str, float]:
    """The setting that a contribution rests on, and its value, as its words tell: `temperature is 0.9`."""
    setting, _, value = part.why.partition(" is ")
    try:
        return setting, float(value)
    except ValueError:
        return "", 0.0
