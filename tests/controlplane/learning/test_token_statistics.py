"""Statistics of usage: they add up over replicas, fade, can be reset, and take no nonsense."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from controlplane.features import Category
from controlplane.learning.calibration import calibrate
from controlplane.learning.statistics import Observation, Statistics, fold, merge
from controlplane.policy.estimator import Calibrations
from support.usage import MODEL, RULES, TENANTS, folded, make_features, report

OBSERVATIONS = [
    report(kind, number, tenant=TENANTS[number % 3], output_tokens=100 + number)
    for number in range(12)
    for kind in ("prose", "code", "cjk")
]
KINDS = {"prose": Category.PROSE, "code": Category.CODE, "cjk": Category.CJK}


def central(calibrations: Calibrations, kind: str) -> float:
    features = make_features(kind, 50, 99)
    return calibrations.of(MODEL, KINDS[kind]).prompt.estimate(features, 0).central


@given(st.lists(st.integers(0, 2), min_size=len(OBSERVATIONS), max_size=len(OBSERVATIONS)))
@settings(max_examples=8, deadline=None)
def test_the_sum_of_the_replicas_is_what_one_would_have_seen(places: list[int]) -> None:
    replicas = [Statistics() for _ in range(3)]
    whole = Statistics()
    for number, (place, observation) in enumerate(zip(places, OBSERVATIONS, strict=True)):
        for statistics in (replicas[place], whole):
            folded([observation], into=statistics, start=1000.0 + number)
    now = 2000.0
    merged, one = merge(replicas, now), merge([whole], now)
    assert merged.models.keys() == one.models.keys()
    for name, category in one.models[MODEL].categories.items():
        found = merged.models[MODEL].categories[name]
        assert found.samples == category.samples
        assert found.accuracy.errors.weights == pytest.approx(category.accuracy.errors.weights)
        assert found.accuracy.totals.weights == pytest.approx(category.accuracy.totals.weights)
        for group, sums in category.groups.items():
            assert found.groups[group].linear.moments == pytest.approx(sums.linear.moments)
            assert found.groups[group].linear.cross == pytest.approx(sums.linear.cross)
            assert found.groups[group].outputs.weights == pytest.approx(sums.outputs.weights)
    for kind in KINDS:
        assert central(calibrate(merged, RULES), kind) == pytest.approx(central(calibrate(one, RULES), kind))


def test_merging_changes_no_replica_and_needs_no_order() -> None:
    one, other = folded(OBSERVATIONS[:20]), folded(OBSERVATIONS[20:])
    before = msgspec.json.encode([one, other])
    merged = merge([one, other], 3000.0)
    assert msgspec.json.encode([one, other]) == before
    for kind in KINDS:
        expected = central(calibrate(merged, RULES), kind)
        assert central(calibrate(merge([other, one], 3000.0), RULES), kind) == pytest.approx(expected)


def test_the_same_reports_make_the_same_statistics() -> None:
    assert msgspec.json.encode(folded(OBSERVATIONS)) == msgspec.json.encode(folded(OBSERVATIONS))


def test_they_survive_being_written_down() -> None:
    statistics = folded(OBSERVATIONS)
    again = msgspec.json.decode(msgspec.json.encode(statistics), type=Statistics)
    assert again == statistics
    folded(OBSERVATIONS, into=again, start=2000.0)


def test_half_is_forgotten_after_a_half_life() -> None:
    statistics = folded([report()])
    now = merge([statistics], 1000.0).models[MODEL].categories["prose"]
    later = merge([statistics], 1000.0 + RULES.half_life_seconds).models[MODEL].categories["prose"]
    (group,) = now.groups
    assert later.groups[group].linear.weight == pytest.approx(now.groups[group].linear.weight / 2)
    assert later.accuracy.errors.total == pytest.approx(now.accuracy.errors.total / 2)


def test_what_is_new_outweighs_what_is_old() -> None:
    statistics = folded([report(number=number, factor=1.0) for number in range(50)])
    folded([report(number=number, factor=1.3) for number in range(50)], into=statistics, start=20 * 86_400.0)
    calibrations = calibrate(merge([statistics], 20 * 86_400.0 + 50), RULES)
    fresh = calibrate(merge([folded([report(number=n, factor=1.3) for n in range(50)])], 1050.0), RULES)
    assert central(calibrations, "prose") == pytest.approx(central(fresh, "prose"), rel=0.01)


def test_a_year_of_silence_and_another_half_life_break_nothing() -> None:
    statistics = folded(OBSERVATIONS)
    folded(OBSERVATIONS, into=statistics, start=1000.0 + 365 * 86_400.0)
    rules = replace(RULES, half_life_seconds=60.0)
    folded(OBSERVATIONS, rules, into=statistics, start=1100.0 + 365 * 86_400.0)
    weights = [
        group.linear.weight
        for category in merge([statistics], 1200.0 + 365 * 86_400.0).models[MODEL].categories.values()
        for group in category.groups.values()
    ]
    assert all(0 < weight < 100 for weight in weights)


def test_a_reset_model_is_learned_anew_and_no_replica_brings_the_old_back() -> None:
    told, not_yet_told = folded(OBSERVATIONS), folded(OBSERVATIONS)
    told.reset(MODEL, generation=1)
    merged = merge([not_yet_told, told], 2000.0)
    assert merged.models[MODEL].categories == {}
    folded([report(factor=1.5)], into=told, start=2000.0)
    assert merge([not_yet_told, told], 2001.0).models[MODEL].categories["prose"].samples == 1


def test_resetting_one_model_leaves_the_others() -> None:
    statistics = folded([*OBSERVATIONS, report(model="other")])
    statistics.reset(MODEL, generation=1)
    assert merge([statistics], 2000.0).models["other"].categories["prose"].samples == 1


def test_statistics_of_other_priors_do_not_count() -> None:
    old = folded(OBSERVATIONS)
    old.priors -= 1
    assert merge([old], 2000.0) == Statistics()


@pytest.mark.parametrize("tokens", [-5, 0, 1, 50_000_000])
def test_usage_that_cannot_be_of_this_prompt_is_counted_and_not_learned(tokens: int) -> None:
    statistics = folded([report()])
    before = msgspec.json.encode(statistics.models[MODEL].categories)
    lie = replace(report(number=1), prompt_tokens=tokens)
    assert not fold(statistics, lie, Calibrations(), RULES, now=1001.0)
    assert msgspec.json.encode(statistics.models[MODEL].categories) == before
    assert statistics.models[MODEL].refused == 1


def test_an_answer_that_the_client_capped_says_nothing_of_its_length() -> None:
    statistics = folded([report(output_tokens=5, output_cap=5), report(number=1, output_tokens=77)])
    (group,) = statistics.models[MODEL].categories["prose"].groups.values()
    assert group.outputs.quantile(0.5) == pytest.approx(77, rel=0.011)
    assert group.outputs.total == pytest.approx(1, rel=0.01)


def test_nothing_of_a_text_is_kept() -> None:
    text = msgspec.json.encode(folded(OBSERVATIONS)).decode()
    assert "council" not in text
    assert TENANTS[0] not in text


def test_token_ids_are_known_and_not_learned() -> None:
    features = structs.replace(make_features("prose", 20, 1), token_ids=5000)
    plain = structs.replace(features, token_ids=0)
    with_ids = folded([Observation(MODEL, "t", features, 5600)])
    without = folded([Observation(MODEL, "t", plain, 600)])
    one = next(iter(with_ids.models[MODEL].categories["prose"].groups.values()))
    other = next(iter(without.models[MODEL].categories["prose"].groups.values()))
    assert one.ratio == other.ratio


def test_a_sample_is_learned_once_and_measured_for_all_that_it_stands_for() -> None:
    once, many = Statistics(), Statistics()
    fold(once, report(output_tokens=70), Calibrations(), RULES, thresholds=[8192], now=1000.0)
    fold(many, report(output_tokens=70), Calibrations(), RULES, thresholds=[8192], now=1000.0, stands_for=40)
    (one,), (of_many,) = (each.models[MODEL].categories.values() for each in (once, many))
    assert of_many.groups == one.groups
    assert (of_many.samples, one.samples) == (1, 1)
    assert of_many.accuracy.totals.total == of_many.accuracy.errors.total == of_many.accuracy.routed[8192].weight == 40
