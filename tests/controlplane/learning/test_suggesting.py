"""Bounds between context classes as they are suggested of a running fleet."""

from __future__ import annotations

import random
from dataclasses import replace

from prometheus_client import CollectorRegistry

from controlplane.fleet import Fleet, form_fleet
from controlplane.learning.histogram import Histogram
from controlplane.learning.suggesting import EVALUATION_SECONDS, ThresholdWatch, bounds_in_force, engine_shape
from controlplane.learning.suggesting import totals_by_model as totals_of
from controlplane.metrics import ControlPlaneMetrics
from controlplane.model import NodeSession
from controlplane.policy.settings import ContextClass, Policy, ThresholdRules
from support.nodes import node
from support.usage import MODEL, folded, report

POLICY = Policy(
    context_classes=(ContextClass("short", 32_768), ContextClass("long")),
    thresholds=ThresholdRules(patience=3, minimum_samples=1000),
)


def fleet(*shapes: tuple[int, int, int], policy: Policy = POLICY) -> Fleet:
    """Nodes of `llama`, each with its context, sequences and KV cache."""
    specs = []
    for number, (context, sequences, cache) in enumerate(shapes):
        spec = node(f"n{number}", f"10.0.0.{number + 1}:8000")
        served = replace(spec.models[0], max_context=context, max_sequences=sequences, kv_cache_tokens=cache)
        specs.append(replace(spec, models=(served,)))
    return form_fleet([NodeSession(s.node_id, s, registered_at=0.0) for s in specs], {}, policy, now=0.0)


FLEET = fleet((32_768, 32, 1_048_576), (65_536, 16, 1_048_576), (65_536, 256, 0))


def needed(median: float, requests: int = 2000) -> dict[str, Histogram]:
    dice = random.Random(7)
    found = Histogram()
    for _ in range(requests):
        found.add(min(65_536, median * dice.lognormvariate(0, 1)))
    return {"llama": found}


def observed(watch: ThresholdWatch, totals: dict[str, Histogram], times: int, start: int = 0, **more: Policy) -> None:
    for number in range(start, start + times):
        now = number * EVALUATION_SECONDS
        assert watch.is_due(now)
        watch.observe(totals, FLEET, more.get("policy", POLICY), now)


def test_a_better_bound_is_suggested_once_it_has_been_better_for_a_while() -> None:
    watch = ThresholdWatch()
    observed(watch, needed(1400), 2)
    (bounds,) = watch.current
    assert (bounds.in_force, bounds.suggested, bounds.is_better) == ((32_768,), (32_768,), False)
    observed(watch, needed(1400), 1, start=2)
    (bounds,) = watch.current
    assert bounds.in_force == (32_768,)
    assert bounds.suggested < (16_384,)
    assert bounds.saving > bounds.saving_in_force + POLICY.thresholds.worthwhile
    assert bounds.requests == 2000


def test_who_sets_the_suggested_bound_is_suggested_nothing_else() -> None:
    watch = ThresholdWatch()
    observed(watch, needed(1400), 3)
    (bound,) = watch.current[0].suggested
    taken = replace(POLICY, context_classes=(ContextClass("short", bound), ContextClass("long")))
    observed(watch, needed(1400), 5, start=3, policy=taken)
    (bounds,) = watch.current
    assert (bounds.in_force, bounds.suggested, bounds.is_better) == ((bound,), (bound,), False)
    assert bounds.saving == bounds.saving_in_force


def test_it_is_evaluated_once_a_minute_and_anew_while_there_is_nothing_to_evaluate() -> None:
    watch = ThresholdWatch()
    watch.observe({}, FLEET, POLICY, 0.0)
    assert watch.is_due(0.1)
    watch.observe(needed(1400), FLEET, POLICY, 0.1)
    assert [watch.is_due(now) for now in (0.2, 59.9, 60.1)] == [False, False, True]
    watch.observe({}, FLEET, POLICY, 60.1)
    assert watch.is_due(60.2)


def test_few_requests_suggest_nothing_and_unknown_engines_are_left_out() -> None:
    watch = ThresholdWatch()
    observed(watch, needed(1400, requests=900), 5)
    assert not watch.current[0].is_better
    observed(watch, {"unknown": needed(1400)["llama"], "llama": Histogram()}, 1, start=5)
    assert watch.current == ()


def test_an_engine_is_typical_by_the_caches_that_are_known() -> None:
    shape = engine_shape(FLEET, "llama")
    assert shape is not None
    assert (shape.kv_cache_tokens, shape.max_sequences) == (1_048_576, 256)
    assert engine_shape(fleet((8192, 16, 0)), "llama") is None
    assert engine_shape(FLEET, "other") is None


def test_bounds_beyond_what_engines_hold_part_nothing() -> None:
    assert bounds_in_force(POLICY, 65_536) == (32_768,)
    assert bounds_in_force(POLICY, 32_768) == ()


def test_what_requests_need_is_summed_over_categories() -> None:
    statistics = folded([report("prose", n) for n in range(3)] + [report("code", n) for n in range(2)])
    assert set(totals_of(statistics)) == {MODEL}
    assert round(totals_of(statistics)[MODEL].total) == 5


def test_savings_are_metrics_as_long_as_the_model_is_there() -> None:
    registry = CollectorRegistry()
    metrics, watch = ControlPlaneMetrics(registry), ThresholdWatch()
    observed(watch, needed(1400), 3)
    metrics.bounds_suggested(watch.current)
    labels = {"model": "llama", "bounds": "suggested"}
    assert registry.get_sample_value("headrace_context_bounds_saving", labels) == watch.current[0].saving
    metrics.bounds_suggested(())
    assert registry.get_sample_value("headrace_context_bounds_saving", labels) is None


def test_engines_are_suggested_by_class_and_do_not_flap() -> None:
    watch = ThresholdWatch()
    observed(watch, needed(1400), 3)
    (bounds,) = watch.current
    assert bounds.engines == (1, 2)
    assert len(bounds.suggested_engines) == 2
    assert sum(bounds.suggested_engines) <= 3
    assert 0 < bounds.saving_left < 1
    suggested = bounds.suggested_engines
    observed(watch, needed(1500), 2, start=3)
    assert watch.current[0].suggested_engines == suggested


def test_no_engines_are_suggested_by_few_requests() -> None:
    watch = ThresholdWatch()
    observed(watch, needed(1400, requests=900), 3)
    assert watch.current[0].suggested_engines == ()
