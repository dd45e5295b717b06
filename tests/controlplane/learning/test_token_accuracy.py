"""The accuracy that the estimates must keep, on samples of real tokenizers, and the report of it.

The samples (token_samples.json) are features and counts of generated requests; `bench/estimator_accuracy.py` made them
and measures more. These floors are above what is measured there, for there are fewer samples here.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from controlplane.features import FEATURES, FRAMING, Category, Features
from controlplane.learning.accuracy import Accuracy, report
from controlplane.learning.calibration import calibrate
from controlplane.learning.statistics import Observation, Statistics, fold, merge
from controlplane.policy.estimator import Estimate, group_of, unlearned
from controlplane.policy.settings import EstimationRules, Estimator
from controlplane.policy.text import TextCounts
from support.usage import MODEL, folded
from support.usage import report as usage

SAMPLES = Path(__file__).parent / "token_samples.json"
MODELS = ("qwen3.6", "mistral-tekken")


@dataclass(frozen=True, slots=True)
class Sample:
    half: int
    features: Features
    tokens: dict[str, int]


@cache
def samples() -> tuple[Sample, ...]:
    document = json.loads(SAMPLES.read_text("utf-8"))
    assert tuple(document["features"]) == FEATURES
    found = []
    for _, half, size, vector, tokens in document["samples"]:
        _, messages, _, tools, calls, images, _ = vector[: len(FRAMING)]
        features = Features(TextCounts(size, *vector[len(FRAMING) :]), messages, tools, calls, images)
        assert list(features.vector) == vector
        found.append(Sample(half, features, dict(zip(document["models"], tokens, strict=True))))
    return tuple(found)


@cache
def errors(model: str, estimator: Estimator, *, learn: bool = True) -> tuple[tuple[int, float, float], ...]:
    """Of the samples that were not learned from: bytes, and the errors of the central and conservative estimates."""
    rules = EstimationRules(estimator=estimator)
    own, calibrations = Statistics(), unlearned(rules)
    learned_from = [sample for sample in samples() if sample.half == 0] if learn else []
    random.Random(3).shuffle(learned_from)
    for number, sample in enumerate(learned_from, 1):
        fold(own, Observation(model, "t", sample.features, sample.tokens[model]), calibrations, rules, now=number)
        if number % 20 == 0 or number == len(learned_from):
            calibrations = calibrate(merge([own], number), rules)

    def estimate(features: Features) -> Estimate:
        return calibrations.of(model, features.category).prompt.estimate(features, group_of("t"))

    return tuple(
        (sample.features.text.total, found.central / tokens - 1, found.conservative / tokens - 1)
        for sample in samples()
        if sample.half == 1
        for found, tokens in [(estimate(sample.features), sample.tokens[model])]
    )


def quantile(values: list[float], percent: int) -> float:
    return statistics.quantiles([abs(value) for value in values], n=100)[percent - 1]


@pytest.mark.parametrize("model", MODELS)
def test_the_central_estimate_is_near(model: str) -> None:
    found = errors(model, Estimator.LINEAR)
    large = [central for size, central, _ in found if size >= 2000]
    small = [central for size, central, _ in found if size < 2000]
    assert quantile(large, 50) <= 0.05
    assert quantile(large, 95) <= 0.16
    assert quantile(small, 50) <= 0.08
    assert quantile(small, 95) <= 0.25


@pytest.mark.parametrize("model", MODELS)
def test_the_conservative_estimate_is_hardly_ever_short(model: str) -> None:
    large = [low for size, _, low in errors(model, Estimator.LINEAR) if size >= 2000]
    assert sum(low < 1 / 1.1 - 1 for low in large) <= 0.02 * len(large)
    assert statistics.median(large) < 0.2


@pytest.mark.parametrize("model", MODELS)
def test_the_priors_alone_are_better_than_a_learned_ratio(model: str) -> None:
    unlearned_ones = [error for _, error, _ in errors(model, Estimator.LINEAR, learn=False)]
    ratio = [error for _, error, _ in errors(model, Estimator.RATIO)]
    assert quantile(unlearned_ones, 50) < quantile(ratio, 50)
    assert quantile(unlearned_ones, 95) < quantile(ratio, 95)


@pytest.mark.parametrize("model", MODELS)
def test_the_default_is_the_better_estimator(model: str) -> None:
    by = {estimator: quantile([error for _, error, _ in errors(model, estimator)], 50) for estimator in Estimator}
    assert EstimationRules().estimator is min(by, key=lambda estimator: by[estimator])


# --- the report ----------------------------------------------------------------------------------------------------


def row(factor: Callable[[int], float], count: int = 100, thresholds: tuple[int, ...] = ()) -> Accuracy:
    rules = EstimationRules()
    own = Statistics()
    for number in range(count):
        observation = usage(number=number, factor=factor(number), output_cap=100)
        fold(own, observation, unlearned(rules), rules, thresholds=thresholds, now=1000.0 + number)
    (found,) = report(merge([own], 1000.0 + count))
    return found


def test_the_report_says_how_far_off_estimates_were_and_to_which_side() -> None:
    """Facts row: production code (signed error)."""
    found = row(lambda number: 2.0 if number % 20 == 0 else 1.0)
    assert (found.model, found.category, found.samples) == (MODEL, Category.PROSE, 100)
    assert found.bias == pytest.approx(-0.025, abs=0.003)
    assert found.p50 == pytest.approx(0, abs=0.006)
    assert found.p99 == pytest.approx(0.5, abs=0.01)
    assert found.p50 <= found.p95 <= found.p99
    assert found.short == pytest.approx(0.05, abs=0.003)
    assert 3 < found.ratio < 6
    assert 0 < found.deviation < found.ratio


def test_mis_routed_requests_are_counted_by_direction() -> None:
    dear = row(lambda _: 2.0, thresholds=(700, 100_000))
    cheap = row(lambda _: 0.5, thresholds=(700, 100_000))
    assert [found.threshold for found in dear.mis_routed] == [700, 100_000]
    assert dear.mis_routed[0].too_small > 0 == dear.mis_routed[0].too_large
    assert cheap.mis_routed[0].too_large > 0 == cheap.mis_routed[0].too_small
    assert (dear.mis_routed[1].too_small, dear.mis_routed[1].too_large) == (0, 0)


def test_the_report_shows_how_estimates_converge() -> None:
    rules = EstimationRules()
    own, calibrations = Statistics(), unlearned(rules)
    for number in range(127):
        fold(own, usage(number=number, factor=1.4), calibrations, rules, now=1000.0 + number)
        calibrations = calibrate(merge([own], 1000.0 + number), rules)
    (found,) = report(merge([own], 2000.0))
    assert [samples_before for samples_before, _ in found.converged] == [0, 1, 3, 7, 15, 31, 63, 127]
    assert found.converged[0][1] == pytest.approx(0.29, abs=0.02)
    assert found.converged[-1][1] < 0.01


def test_the_report_is_of_all_models_and_categories_in_order() -> None:
    own = folded([usage(kind, model=model) for model in ("b", "a") for kind in ("cjk", "prose")])
    rows = [(found.model, found.category) for found in report(merge([own], 2000.0))]
    assert rows == [("a", "cjk"), ("a", "prose"), ("b", "cjk"), ("b", "prose")]
