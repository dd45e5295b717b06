"""What usage reports tell of a model's tokens, as sums that replicas add up without counting anything twice.

Each replica of the control plane folds the reports that it receives into statistics of its own and publishes them;
the truth is the sum of all replicas' (`merge`). Older reports weigh less: half after each half-life, counted from the
time of the newest. The statistics hold counts and sums only, nothing of any text, and are plain values in JSON.

Kept apart by model, category and tenant group, so that `calibration` can see to it that nobody teaches too much.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from controlplane.features import FEATURES, Features
from controlplane.learning.histogram import Histogram
from controlplane.learning.least_squares import Sums
from controlplane.policy.estimator import MOST_BYTES_PER_TOKEN, Calibrations, Estimate, chance, group_of
from controlplane.policy.priors import PRIOR_COEFFICIENTS, PRIOR_RATIOS, PRIORS_VERSION
from controlplane.policy.settings import EstimationRules

# Rows are weighted so that errors count as shares of the tokens; of requests of few tokens a little less.
SMALL_TOKENS = 32.0
ERROR_STEP = 0.005
# A margin is about the estimate as it is now, so errors from while it was learned fade fast: with each sample those
# before lose one part in so many, or in half of the samples that there are.
_MARGIN_SAMPLES = 300.0
# An estimate that is further off is as bad; so the histograms of errors are bounded.
_MOST_OFF = 12.0
# How far a single sample's ratio may be from the average, as a factor.
_MOST_STEP = 2.0
# Weights grow by 2 ** _MOST_HALF_LIVES before they are made small again.
_MOST_HALF_LIVES = 32.0
_FORGOTTEN_BELOW = 1e-3
_MOST_EXPONENT = 1000.0  # as good as forgotten, and still a number
# No tokenizer needs more tokens than bytes, and what a template adds is bounded. What lies beyond is no usage of this
# prompt.
_MOST_FRAMING = 4096
_MOST_PER_MESSAGE = 64
_MOST_PER_IMAGE = 65_536


@dataclass(frozen=True, slots=True)
class Observation:
    """One answered request. `output_cap` is the client's own, for one choice; `reserved_output` is what its budget
    allowed for, `output_tokens` what came, None when that is unknown."""

    model: str
    tenant: str
    features: Features
    prompt_tokens: int
    output_tokens: int | None = None
    output_cap: int | None = None
    reserved_output: int = 0


class RatioSums(msgspec.Struct):
    """Averages that keep a share of themselves with each sample; divided by `weight` they are free of their start."""

    weight: float = 0.0
    ratios: float = 0.0
    deviations: float = 0.0

    def merge(self, other: RatioSums, factor: float = 1.0) -> None:
        self.weight += other.weight * factor
        self.ratios += other.ratios * factor
        self.deviations += other.deviations * factor


class GroupSums(msgspec.Struct):
    """Of one tenant group's requests of one category. `margins` holds tokens by the central estimate of the time, their
    distance from 1 by `chance`, which makes those of short and long requests alike."""

    linear: Sums
    ratio: RatioSums
    margins: Histogram
    outputs: Histogram

    @classmethod
    def empty(cls) -> GroupSums:
        return cls(Sums.empty(len(FEATURES)), RatioSums(), Histogram(ERROR_STEP), Histogram())

    def merge(self, other: GroupSums, factor: float) -> None:
        self.linear.merge(other.linear, factor)
        self.ratio.merge(other.ratio, factor)
        self.margins.merge(other.margins, factor)
        self.outputs.merge(other.outputs, factor)

    def scale(self, factor: float) -> None:
        self.linear.scale(factor)
        self.ratio = RatioSums(*(value * factor for value in msgspec.structs.astuple(self.ratio)))
        self.margins.scale(factor)
        self.outputs.scale(factor)


class Routed(msgspec.Struct):
    """Of requests at one threshold: all, those estimated too small for where they belong, and those too large."""

    weight: float = 0.0
    too_small: float = 0.0
    too_large: float = 0.0

    def merge(self, other: Routed, factor: float) -> None:
        self.weight += other.weight * factor
        self.too_small += other.too_small * factor
        self.too_large += other.too_large * factor


class AccuracySums(msgspec.Struct):
    """How right the estimates in force were. `errors` holds the central estimate by the tokens; `converged`, by the
    binary logarithm of the number of samples before, a number of estimates and the sum of their errors' shares."""

    errors: Histogram
    totals: Histogram
    routed: dict[int, Routed]
    converged: dict[int, tuple[int, float]]
    conservative_short: float = 0.0

    @classmethod
    def empty(cls) -> AccuracySums:
        return cls(Histogram(ERROR_STEP), Histogram(), {}, {})

    def merge(self, other: AccuracySums, factor: float) -> None:
        self.errors.merge(other.errors, factor)
        self.totals.merge(other.totals, factor)
        self.conservative_short += other.conservative_short * factor
        for threshold, routed in other.routed.items():
            self.routed.setdefault(threshold, Routed()).merge(routed, factor)
        for place, (count, error) in other.converged.items():
            before = self.converged.get(place, (0, 0.0))
            self.converged[place] = (before[0] + count, before[1] + error)

    def scale(self, factor: float) -> None:
        self.errors.scale(factor)
        self.totals.scale(factor)
        self.conservative_short *= factor
        for threshold, routed in list(self.routed.items()):
            scaled = Routed()
            scaled.merge(routed, factor)
            self.routed[threshold] = scaled


class CategorySums(msgspec.Struct):
    """Weights are those of the time `since`; a sample of later counts more instead of all before it counting less."""

    since: float
    half_life: float
    samples: int
    groups: dict[int, GroupSums]
    accuracy: AccuracySums

    def weight_at(self, now: float) -> float:
        return math.exp2(min((now - self.since) / self.half_life, _MOST_EXPONENT))

    def rebase(self, now: float, half_life: float) -> None:
        """Makes the weights those of `now`, and lets go what is as good as forgotten."""
        factor = 1.0 / self.weight_at(now)
        for group, sums in list(self.groups.items()):
            sums.scale(factor)
            if sums.linear.weight < _FORGOTTEN_BELOW and sums.outputs.total < _FORGOTTEN_BELOW:
                del self.groups[group]
        self.accuracy.scale(factor)
        self.since, self.half_life = now, half_life


class ModelSums(msgspec.Struct):
    """`generation` grows when the model's statistics are reset; of two generations only the newer counts."""

    generation: int = 0
    categories: dict[str, CategorySums] = {}
    refused: int = 0

    @property
    def samples(self) -> int:
        return sum(category.samples for category in self.categories.values())


class Statistics(msgspec.Struct):
    """Of one replica, or of all. Those of other priors say nothing to us."""

    priors: int = PRIORS_VERSION
    models: dict[str, ModelSums] = {}

    def reset(self, model: str, generation: int) -> None:
        """Forgets a model, as soon as every replica has been told the new generation (or merges with one that has)."""
        self.models[model] = ModelSums(generation)


def fold(
    statistics: Statistics,
    observation: Observation,
    calibrations: Calibrations,
    rules: EstimationRules,
    *,
    thresholds: Sequence[int] = (),
    now: float,
    stands_for: int = 1,
) -> bool:
    """Adds one report; False when it cannot be the usage of this request, which is only counted.

    `calibrations` are those in force: what is measured is how right they were, and how many tokens requests need; there
    a report counts for all requests that it stands for. `now` in Unix seconds.
    """
    model = statistics.models.setdefault(observation.model, ModelSums())
    if not _is_plausible(observation):
        model.refused += 1
        return False
    category = observation.features.category
    sums = model.categories.get(category.value)
    if sums is None:
        sums = model.categories[category.value] = CategorySums(
            now, rules.half_life_seconds, 0, {}, AccuracySums.empty()
        )
    if sums.half_life != rules.half_life_seconds or now - sums.since > _MOST_HALF_LIVES * sums.half_life:
        sums.rebase(now, rules.half_life_seconds)
    weight = sums.weight_at(now)
    group = group_of(observation.tenant)
    estimate = calibrations.of(observation.model, category).prompt.estimate(observation.features, group)
    relative = observation.prompt_tokens / estimate.central
    known = sums.groups.get(group)
    if known is None:
        known = sums.groups[group] = GroupSums.empty()
    _learn(known, observation, relative, rules, weight)
    known.margins.scale(1.0 - 1.0 / min(_MARGIN_SAMPLES, 2.0 + sums.samples))
    known.margins.add(_bounded(1.0 + (relative - 1.0) / chance(estimate.central)), weight)
    _judge(sums, observation, estimate, thresholds, weight * stands_for)
    sums.samples += 1
    return True


def forget(statistics: Statistics, now: float) -> list[str]:
    """Lets go of categories, and of models, of which nothing is left that weighs anything; the models concerned."""
    touched = []
    for name, model in list(statistics.models.items()):
        before = len(model.categories)
        for category, sums in list(model.categories.items()):
            if sums.accuracy.errors.total < _FORGOTTEN_BELOW * sums.weight_at(now):
                del model.categories[category]
        if len(model.categories) < before:
            touched.append(name)
    return touched


def merge(replicas: Iterable[Statistics], now: float) -> Statistics:
    """The sum of several replicas' statistics, with weights of the time `now`. The replicas' own stay as they are."""
    total = Statistics()
    for replica in replicas:
        if replica.priors != total.priors:
            continue
        for name, model in replica.models.items():
            known = total.models.get(name)
            if known is None or known.generation < model.generation:
                known = total.models[name] = ModelSums(model.generation)
            if known.generation == model.generation:
                _add(known, model, now)
    return total


def _add(total: ModelSums, part: ModelSums, now: float) -> None:
    total.refused += part.refused
    for name, category in part.categories.items():
        known = total.categories.get(name)
        if known is None:
            known = total.categories[name] = CategorySums(now, category.half_life, 0, {}, AccuracySums.empty())
        factor = 1.0 / category.weight_at(now)
        known.samples += category.samples
        known.accuracy.merge(category.accuracy, factor)
        for group, sums in category.groups.items():
            known.groups.setdefault(group, GroupSums.empty()).merge(sums, factor)


def _is_plausible(observation: Observation) -> bool:
    features, tokens = observation.features, observation.prompt_tokens
    framing = _MOST_FRAMING + _MOST_PER_MESSAGE * (features.messages + features.tools + features.calls)
    most = (
        features.text.total + features.schema_bytes + framing + features.images * _MOST_PER_IMAGE + features.token_ids
    )
    return max(1.0, features.text.total / MOST_BYTES_PER_TOKEN + features.token_ids) <= tokens <= most


def _learn(
    sums: GroupSums,
    observation: Observation,
    relative: float,
    rules: EstimationRules,
    weight: float,
) -> None:
    features = observation.features
    vector = features.vector
    expected = sum(c * v for c, v in zip(PRIOR_COEFFICIENTS, vector, strict=True))
    size = expected + SMALL_TOKENS
    off = abs(relative - 1.0)
    trusted = weight if off <= rules.sample_agreement else weight * rules.sample_agreement / off
    target = (observation.prompt_tokens - features.token_ids - expected) / size
    sums.linear.add([value / size for value in vector], target, trusted)
    is_text_alone = features.images == 0 and features.schema_bytes == 0
    if features.text.total > 0 and is_text_alone and observation.prompt_tokens > features.token_ids:
        ratio = features.text.total / (observation.prompt_tokens - features.token_ids)
        _average(sums.ratio, ratio, PRIOR_RATIOS[features.category], rules, weight)
    if observation.output_cap is None and observation.output_tokens:
        sums.outputs.add(observation.output_tokens, weight)


def _average(sums: RatioSums, ratio: float, prior: float, rules: EstimationRules, weight: float) -> None:
    share = 1.0 - rules.beta
    before = sums.ratios / sums.weight if sums.weight > 0 else prior
    ratio = min(max(ratio, before / _MOST_STEP), before * _MOST_STEP)
    sums.weight = rules.beta * sums.weight + share * weight
    sums.ratios = rules.beta * sums.ratios + share * weight * ratio
    sums.deviations = rules.beta * sums.deviations + share * weight * abs(ratio - before)


def _bounded(factor: float) -> float:
    return min(max(factor, 1.0 / _MOST_OFF), _MOST_OFF)


def _judge(
    sums: CategorySums,
    observation: Observation,
    estimate: Estimate,
    thresholds: Sequence[int],
    weight: float,
) -> None:
    accuracy, tokens = sums.accuracy, observation.prompt_tokens
    accuracy.errors.add(_bounded(estimate.central / tokens), weight)
    if estimate.conservative < tokens / 1.1:
        accuracy.conservative_short += weight
    place = sums.samples.bit_length()
    count, error = accuracy.converged.get(place, (0, 0.0))
    accuracy.converged[place] = (count + 1, error + abs(estimate.central / tokens - 1.0))
    capped = observation.output_cap is not None
    output = observation.reserved_output if capped or observation.output_tokens is None else observation.output_tokens
    needed = tokens + output
    accuracy.totals.add(needed, weight)
    for threshold in thresholds:
        routed = accuracy.routed.setdefault(threshold, Routed())
        routed.weight += weight
        fits = estimate.conservative + observation.reserved_output <= threshold
        if fits and needed > threshold:
            routed.too_small += weight
        elif not fits and needed <= threshold:
            routed.too_large += weight
