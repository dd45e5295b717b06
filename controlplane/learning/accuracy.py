"""How right the estimates were, as numbers for a person: one row per model and category."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.features import Category
from controlplane.learning.histogram import Histogram
from controlplane.learning.statistics import CategorySums, Statistics


@dataclass(frozen=True, slots=True)
class MisRouted:
    """Shares of the requests: estimated to fit below the threshold and did not, and the other way round."""

    threshold: int
    too_small: float
    too_large: float


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Of one model's requests of one category. `ratio` is in bytes of text per token, `deviation` its mean absolute
    deviation. Errors are the central estimate's, as shares of the tokens: `bias` the mean, above 0 for too many tokens
    expected; `p50`, `p95` and `p99` of the absolute ones. `short` is the share of requests of which the conservative
    estimate was too low by more than a tenth. `converged` has the mean absolute error of the samples up to each number.
    Samples are counted since the last reset; all else weighs older samples less."""

    model: str
    category: Category
    samples: int
    ratio: float
    deviation: float
    bias: float
    p50: float
    p95: float
    p99: float
    short: float
    mis_routed: tuple[MisRouted, ...]
    converged: tuple[tuple[int, float], ...]


def report(statistics: Statistics) -> tuple[Accuracy, ...]:
    """Of the merged statistics, ordered by model and category."""
    return tuple(
        _accuracy(model, Category(name), sums)
        for model, of_model in sorted(statistics.models.items())
        for name, sums in sorted(of_model.categories.items())
        if sums.samples > 0
    )


def _accuracy(model: str, category: Category, sums: CategorySums) -> Accuracy:
    accuracy = sums.accuracy
    weight = accuracy.errors.total
    ratios = [group.ratio for group in sums.groups.values()]
    ratio_weight = sum(ratio.weight for ratio in ratios)
    off = Histogram(accuracy.errors.step)
    bias = 0.0
    for value, share in accuracy.errors.values():
        off.add(1.0 + abs(value - 1.0), share)
        bias += (value - 1.0) * share
    return Accuracy(
        model=model,
        category=category,
        samples=sums.samples,
        ratio=sum(ratio.ratios for ratio in ratios) / ratio_weight if ratio_weight > 0 else 0.0,
        deviation=sum(ratio.deviations for ratio in ratios) / ratio_weight if ratio_weight > 0 else 0.0,
        bias=bias / weight if weight > 0 else 0.0,
        p50=(off.quantile(0.5) or 1.0) - 1.0,
        p95=(off.quantile(0.95) or 1.0) - 1.0,
        p99=(off.quantile(0.99) or 1.0) - 1.0,
        short=accuracy.conservative_short / weight if weight > 0 else 0.0,
        mis_routed=tuple(
            MisRouted(threshold, routed.too_small / routed.weight, routed.too_large / routed.weight)
            for threshold, routed in sorted(accuracy.routed.items())
            if routed.weight > 0
        ),
        converged=tuple(
            (2**place - 1, error / count) for place, (count, error) in sorted(accuracy.converged.items()) if count > 0
        ),
    )
