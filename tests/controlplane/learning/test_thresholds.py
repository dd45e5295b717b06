"""Where context classes should part: the closed form, the best bounds, and that they do not flap."""

from __future__ import annotations

import itertools
import random

import pytest

from controlplane.learning.histogram import Histogram
from controlplane.learning.thresholds import CANDIDATES, EngineShape, Suggestion, best_bounds, saving, suggest
from controlplane.policy.settings import ThresholdRules

SHAPE = EngineShape(kv_cache_tokens=1_048_576, max_sequences=256)
LIMIT = 65_536
RULES = ThresholdRules(worthwhile=0.02, patience=3, minimum_samples=100)


def totals(median: float, seed: int = 1, count: int = 2000) -> Histogram:
    dice = random.Random(seed)
    found = Histogram()
    for _ in range(count):
        found.add(min(LIMIT, median * dice.lognormvariate(0, 1)))
    return found


def test_two_classes_save_alpha_times_one_less_one_by_rho() -> None:
    found = totals(1400)
    alpha = found.share_up_to(8192)
    rho = SHAPE.speed(8192) / SHAPE.speed(LIMIT)
    assert saving(found, (8192,), LIMIT, SHAPE) == pytest.approx(alpha * (1 - 1 / rho))


def test_the_published_engine_has_the_published_gain() -> None:
    """16 sequences of 64K and 128 of 8K: 18.4 and 91.2 ms an iteration."""
    assert (SHAPE.sequences(LIMIT), SHAPE.sequences(8192)) == (16, 128)
    assert SHAPE.speed(8192) / SHAPE.speed(LIMIT) == pytest.approx((128 / 91.2) / (16 / 18.4))


def test_one_class_saves_nothing() -> None:
    assert saving(totals(1400), (), LIMIT, SHAPE) == pytest.approx(0)
    assert best_bounds(totals(1400), 1, LIMIT, SHAPE) == ()


@pytest.mark.parametrize("classes", [2, 3])
def test_no_other_bounds_save_more(classes: int) -> None:
    found = totals(1400)
    best = saving(found, best_bounds(found, classes, LIMIT, SHAPE), LIMIT, SHAPE)
    below = [int(bound) for bound in CANDIDATES if bound < LIMIT]
    every = [saving(found, bounds, LIMIT, SHAPE) for bounds in itertools.combinations(below, classes - 1)]
    assert best == pytest.approx(max(every))


def test_more_classes_never_save_less() -> None:
    found = totals(1400)
    savings = [saving(found, best_bounds(found, classes, LIMIT, SHAPE), LIMIT, SHAPE) for classes in (1, 2, 3, 4)]
    assert savings == sorted(savings)


def test_a_better_bound_is_suggested_once_it_has_lasted() -> None:
    suggestion = Suggestion((32_768,))
    seen = []
    for _ in range(5):
        suggestion = suggest(suggestion, totals(1400), LIMIT, SHAPE, RULES)
        seen.append(suggestion.bounds)
    best = best_bounds(totals(1400), 2, LIMIT, SHAPE)
    assert seen == [(32_768,), (32_768,), best, best, best]
    assert suggestion.saving == pytest.approx(saving(totals(1400), best, LIMIT, SHAPE))


def test_traffic_that_swings_moves_nothing() -> None:
    suggestion = Suggestion((32_768,))
    for number in range(50):
        suggestion = suggest(suggestion, totals(500 if number % 2 else 9000), LIMIT, SHAPE, RULES)
        assert suggestion.bounds == (32_768,)


def test_noise_moves_nothing_once_the_bound_is_good() -> None:
    suggestion = Suggestion(best_bounds(totals(1400), 2, LIMIT, SHAPE))
    for seed in range(100):
        moved = suggest(suggestion, totals(1400, seed, count=300), LIMIT, SHAPE, RULES)
        assert moved.bounds == suggestion.bounds
        suggestion = moved


def test_few_requests_say_nothing() -> None:
    suggestion = Suggestion((32_768,), better=(2048,), times=2)
    found = suggest(suggestion, totals(1400, count=20), LIMIT, SHAPE, RULES)
    assert (found.bounds, found.times) == ((32_768,), 0)
