"""Makes the estimates that filters use out of the statistics, so that nobody teaches too much.

Within a category each tenant group is one voice: of at most `tenant_weight` samples, and weighing less the more it
differs from what all others (and the prior) teach. The model's other categories together are one more, which weighs no
more than the category's own and less the more it differs from them; it is no judge of a category's only group. With d
the configured agreement, W the weight of a group and V that of all others, a group moves the others' estimate by no
more than d * sqrt(W / V), as the root mean square of the shares over the others' own requests:

    Let Q and q be the weighted squares that the others (with the prior) and the group have to lose, b the minimum of Q
    and c that of Q + q. Then Q(c) - Q(b) <= q(b) - q(c) <= q(b) = W * m(b), m being the group's mean square at b, and W
    is made at most w * d^2 / m(b) for a group of w samples. Since Q is quadratic, Q(c) - Q(b) is the weighted sum of
    squares by which the others' estimates move, and no less than V times its mean.

Where no others are, the prior alone contradicts: it is soon outweighed by many samples that agree, but not by one.

Of two groups that contradict each other nobody can tell which is right, and together they would be wrong about both. So
a group of some samples whose requests all the others move by more than d, from what the group teaches with the model's
other categories, estimates by the latter: however many others there are and whatever they send, they move nobody who
has taught by more than d, as the root mean square over its own requests.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from types import MappingProxyType

from controlplane.features import FEATURES, Category
from controlplane.learning.histogram import Histogram
from controlplane.learning.least_squares import Sums, solve
from controlplane.learning.statistics import CategorySums, RatioSums, Statistics
from controlplane.policy.estimator import (
    TENANT_GROUPS,
    Calibration,
    Calibrations,
    LinearEstimator,
    PromptEstimator,
    RatioEstimator,
    unlearned,
)
from controlplane.policy.priors import (
    MOST_MARGIN,
    PRIOR_COEFFICIENTS,
    PRIOR_DEVIATION,
    PRIOR_MARGIN,
    PRIOR_NOISE,
    PRIOR_OUTPUT_TOKENS,
    PRIOR_RATIOS,
    PRIOR_SPREADS,
)
from controlplane.policy.settings import EstimationRules, Estimator

_SWEEPS = 3
# A group of fewer samples knows too little to estimate by its own.
_OWN_SAMPLES = 20.0
# How many samples the prior is worth where quantiles and averages are learned.
_PRIOR_SAMPLES = 20.0
_PRIOR_RATIO_SAMPLES = 2.0
LEAST_RATIO, MOST_RATIO = 0.5, 16.0
_RIDGE = tuple((PRIOR_NOISE / spread) ** 2 for spread in PRIOR_SPREADS)


def calibrate(statistics: Statistics, rules: EstimationRules) -> Calibrations:
    """The estimates that the statistics of all replicas, merged, teach."""
    learned = {}
    for model, of_model in statistics.models.items():
        for name, sums in of_model.categories.items():
            others = [other for key, other in of_model.categories.items() if key != name]
            learned[model, Category(name)] = _calibration(Category(name), sums, others, rules)
    return Calibrations(MappingProxyType(learned), unlearned(rules).priors)


def _calibration(
    category: Category, sums: CategorySums, others: Sequence[CategorySums], rules: EstimationRules
) -> Calibration:
    groups = {group: sums.groups[group] for group in sorted(sums.groups)}
    prompt: PromptEstimator
    if rules.estimator is Estimator.RATIO:
        prompt = _ratio(category, [group.ratio for group in groups.values()], sums.samples, rules)
    else:
        margins = _margins(
            {group: sums.margins for group, sums in groups.items()},
            {group: [other.groups[group].margins for other in others if group in other.groups] for group in groups},
            rules.margin_quantile,
        )
        linear = {group: sums.linear for group, sums in groups.items()}
        elsewhere = _total(
            (group.linear, _share(group.linear, rules.tenant_weight))
            for other in others
            for group in other.groups.values()
        )
        common = taught(list(linear.values()), elsewhere, rules)
        prompt = LinearEstimator(
            common,
            tuple(min(max(margin, 1.0), MOST_MARGIN) for margin in margins),
            contradicted(linear, common, elsewhere, rules),
        )
    outputs = _quantiles({g: s.outputs for g, s in groups.items()}, rules.output_quantile, PRIOR_OUTPUT_TOKENS)
    return Calibration(prompt, tuple(math.ceil(tokens) for tokens in outputs), sums.samples)


# --- the linear estimate -------------------------------------------------------------------------------------------


def coefficients(groups: Sequence[Sums], weights: Sequence[float]) -> tuple[float, ...]:
    """Tokens per unit of each feature, in the order of `FEATURES`; each group's sums count by its weight."""
    solution = solve(_total(zip(groups, weights, strict=True)), _RIDGE)
    return tuple(prior + change for prior, change in zip(PRIOR_COEFFICIENTS, solution, strict=True))


def taught(groups: Sequence[Sums], elsewhere: Sums, rules: EstimationRules) -> tuple[float, ...]:
    """The coefficients that a category's groups teach, and with them what is known `elsewhere`: of the model's other
    categories, as one voice that is no louder than the category's own."""
    alone = trusts(groups, rules)
    own = _total(zip(groups, alone, strict=True))
    trust = _share(elsewhere, min(rules.tenant_weight, own.weight)) * _agreement(elsewhere, solve(own, _RIDGE), rules)
    beside = _total([(elsewhere, trust)])
    together = trusts(groups, rules, beside) if len(groups) > 1 else alone
    return coefficients([*groups, beside], [*together, 1.0])


def contradicted(
    groups: Mapping[int, Sums], common: Sequence[float], elsewhere: Sums, rules: EstimationRules
) -> Mapping[int, tuple[float, ...]]:
    """The coefficients of those groups that have some of their own, since the common ones are too far from them."""
    own = {}
    known = [value - prior for value, prior in zip(common, PRIOR_COEFFICIENTS, strict=True)]
    for group, sums in groups.items():
        if len(groups) == 1 or sums.weight < _OWN_SAMPLES:
            continue
        # What fits its samples this well is not twice as far from what they teach, which would take longer to find out.
        if sums.mean_square(known) <= (rules.agreement / 2) ** 2:
            continue
        alone = taught([sums], elsewhere, rules)
        if sums.distance(common, alone) > rules.agreement:
            own[group] = alone
    return MappingProxyType(own)


def trusts(groups: Sequence[Sums], rules: EstimationRules, beside: Sums | None = None) -> list[float]:
    """By what factor each group's sums count, for others that are known with `beside`."""
    full = [_share(group, rules.tenant_weight) for group in groups]
    weights = list(full)
    whole = _total([*zip(groups, weights, strict=True), *([(beside, 1.0)] if beside else ())])
    for _ in range(_SWEEPS):
        before = list(weights)
        for place, group in enumerate(groups):
            others = _total([(whole, 1.0), (group, -weights[place])])
            weight = full[place] * _agreement(group, solve(others, _RIDGE), rules)
            whole.merge(group, weight - weights[place])
            weights[place] = weight
        if weights == before:  # as when all agree: another sweep would find the same
            break
    return weights


def _share(sums: Sums, most: float) -> float:
    """Makes a weight of at most so much of it."""
    return min(1.0, most / sums.weight) if sums.weight > 0 else 0.0


def _agreement(sums: Sums, known: Sequence[float], rules: EstimationRules) -> float:
    """1 for who agrees with what is known, and the less the more they differ."""
    off = sums.mean_square(known)
    return min(1.0, rules.agreement**2 / off) if off > 0 else 1.0


def _total(parts: Iterable[tuple[Sums, float]]) -> Sums:
    total = Sums.empty(len(FEATURES))
    for sums, factor in parts:
        total.merge(sums, factor)
    return total


# --- the ratio -----------------------------------------------------------------------------------------------------


def _ratio(category: Category, groups: Sequence[RatioSums], samples: int, rules: EstimationRules) -> RatioEstimator:
    """The average of the groups' ratios, each weighing less the more it differs from the others' median."""
    groups = [group for group in groups if group.weight > 0]
    middle = median([group.ratios / group.weight for group in groups] or [PRIOR_RATIOS[category]])
    # The prior is forgotten like a sample from before the first.
    weight = (1.0 - rules.beta) * _PRIOR_RATIO_SAMPLES * rules.beta**samples
    ratios, deviations = weight * PRIOR_RATIOS[category], weight * PRIOR_RATIOS[category] * PRIOR_DEVIATION
    for group in groups:
        off = abs(group.ratios / group.weight / middle - 1.0)
        factor = min(1.0, rules.agreement / off) if off > 0 else 1.0
        weight += factor * group.weight
        ratios += factor * group.ratios
        deviations += factor * group.deviations
    mean = min(max(ratios / weight, LEAST_RATIO), MOST_RATIO) if weight > 0 else PRIOR_RATIOS[category]
    deviation = deviations / weight if weight > 0 else mean * PRIOR_DEVIATION
    return RatioEstimator(mean, max(mean - rules.gamma * deviation, LEAST_RATIO))


# --- quantiles -----------------------------------------------------------------------------------------------------


def _quantiles(groups: Mapping[int, Histogram], share: float, prior: float) -> tuple[float, ...]:
    """A quantile for each tenant group: its own, as far as it is known, else the median of the groups' own.

    A quantile of few samples says little, so each group's begins at the prior.
    """
    own: dict[int, tuple[float, float]] = {}
    for group, histogram in groups.items():
        value, weight = histogram.quantile(share), histogram.total
        if value is not None and weight > 0:
            own[group] = (value, weight)
    begun = {group: _between(prior, value, weight) for group, (value, weight) in own.items()}
    common = median(begun.values()) if begun else float(prior)
    return tuple(_between(common, *own[group]) if group in own else common for group in range(TENANT_GROUPS))


def _margins(
    groups: Mapping[int, Histogram], elsewhere: Mapping[int, Sequence[Histogram]], share: float
) -> tuple[float, ...]:
    """A margin for each tenant group: its own, as far as it is known, else the median of the groups' own.

    The quantile is that of the samples and of one more, which came at the prior: so the next request stays within it
    with the probability promised however few there were (split conformal prediction, arXiv 2107.07511, section 1). A
    category of few samples has hardly an outlier to go by, so with them counts what the same group has `elsewhere`, in
    the model's other categories.
    """
    known = {group: _with_elsewhere(histogram, elsewhere[group]) for group, histogram in groups.items()}
    own = {group: _with_one_more(histogram, PRIOR_MARGIN, share) for group, histogram in known.items()}
    common = median(own.values()) if own else PRIOR_MARGIN
    return tuple(
        _with_one_more(known[group], common, share) if group in own else common for group in range(TENANT_GROUPS)
    )


def _with_elsewhere(histogram: Histogram, elsewhere: Iterable[Histogram]) -> Histogram:
    """All of what is elsewhere together counts as `_PRIOR_SAMPLES` at most."""
    others = Histogram(histogram.step)
    for other in elsewhere:
        others.merge(other)
    both = Histogram(histogram.step)
    both.merge(histogram)
    both.merge(others, min(1.0, _PRIOR_SAMPLES / others.total) if others.total > 0 else 0.0)
    return both


def _with_one_more(histogram: Histogram, value: float, share: float) -> float:
    one = Histogram(histogram.step)
    one.merge(histogram)
    one.add(value)
    return one.quantile(share) or value


def _between(prior: float, value: float, weight: float) -> float:
    return (prior * _PRIOR_SAMPLES + value * weight) / (_PRIOR_SAMPLES + weight)


# --- what is worth telling -----------------------------------------------------------------------------------------

_MOVED_SPREADS = 0.05  # of a prior's spread: some percent of what a feature costs
_MOVED_SHARE = 0.02
_MOVED_SAMPLES = 1.5


def has_moved(told: Calibration | None, now: Calibration) -> bool:
    """Whether a calibration differs by more than a little from the one that filters were told last."""
    if told is None or now.samples < told.samples or now.samples > _MOVED_SAMPLES * told.samples:
        return True
    if any(_differ(a, b) for a, b in zip(told.outputs, now.outputs, strict=True)):
        return True
    match told.prompt, now.prompt:
        case LinearEstimator() as old, LinearEstimator() as new:
            return (
                old.own.keys() != new.own.keys()
                or _have_moved(old.coefficients, new.coefficients)
                or any(_have_moved(old.own[group], new.own[group]) for group in old.own)
                or any(_differ(a, b) for a, b in zip(old.margins, new.margins, strict=True))
            )
        case RatioEstimator() as old, RatioEstimator() as new:
            return _differ(old.ratio, new.ratio) or _differ(old.conservative, new.conservative)
    return True


def _have_moved(old: Sequence[float], new: Sequence[float]) -> bool:
    steps = zip(old, new, PRIOR_SPREADS, strict=True)
    return any(abs(b - a) > _MOVED_SPREADS * spread for a, b, spread in steps)


def _differ(a: float, b: float) -> bool:
    return abs(b - a) > _MOVED_SHARE * abs(a)
