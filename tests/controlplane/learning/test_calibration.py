"""What is learned from usage, and that nobody teaches the others too much."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace
from operator import mul

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from controlplane.features import Category, Features
from controlplane.learning.calibration import calibrate, coefficients, trusts
from controlplane.learning.statistics import SMALL_TOKENS, Observation, merge
from controlplane.policy.estimator import (
    TENANT_GROUPS,
    Calibrations,
    LinearEstimator,
    RatioEstimator,
    chance,
    group_of,
    unlearned,
)
from controlplane.policy.priors import (
    MOST_MARGIN,
    PRIOR_COEFFICIENTS,
    PRIOR_MARGIN,
    PRIOR_OUTPUT_TOKENS,
    PRIOR_RATIOS,
)
from controlplane.policy.settings import EstimationRules, Estimator
from controlplane.policy.text import count_text
from support.usage import MODEL, RULES, TENANTS, folded, learned, make_features, report, tokens_of

RATIO = EstimationRules(estimator=Estimator.RATIO)
PROBES = [make_features("prose", 30, 1000 + seed) for seed in range(20)]


def central(calibrations: Calibrations, features: Features, group: int = 0) -> float:
    return calibrations.of(MODEL, features.category).prompt.estimate(features, group).central


def shift(before: Calibrations, after: Calibrations, probes: list[Features], group: int = 0) -> float:
    """The root mean square of the shares by which estimates differ, by the size that rows are weighted with."""
    squares = [
        ((central(after, features, group) - central(before, features, group)) / (tokens_of(features) + SMALL_TOKENS))
        ** 2
        for features in probes
    ]
    return math.sqrt(sum(squares) / len(squares))


# --- learning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [RULES, RATIO])
@pytest.mark.parametrize("factor", [0.8, 1.0, 1.3, 2.0])
def test_fifty_samples_teach_a_tokenizer(rules: EstimationRules, factor: float) -> None:
    """Facts row: cold start."""
    calibrations = learned([report(number=number, factor=factor) for number in range(50)], rules)
    errors = [central(calibrations, features) / tokens_of(features, factor) - 1 for features in PROBES]
    assert abs(statistics.fmean(errors)) < 0.05
    # Of one kind of text even, a ratio differs from request to request.
    assert max(map(abs, errors)) < (0.06 if rules is RULES else 0.2)


def test_the_ratio_forgets_its_prior() -> None:
    """Facts row: token estimate (moving average of bytes per token)."""
    observations = [report(number=number, factor=0.7) for number in range(200)]
    estimator = learned(observations, RATIO).of(MODEL, Category.PROSE).prompt
    assert isinstance(estimator, RatioEstimator)
    last = [o.features.text.total / o.prompt_tokens for o in observations[-100:]]
    weights = [RATIO.beta ** (len(last) - place) for place in range(len(last))]
    expected = sum(map(mul, last, weights)) / sum(weights)
    assert estimator.ratio == pytest.approx(expected, rel=0.02)
    assert estimator.conservative < estimator.ratio


def test_without_reports_estimates_are_the_priors() -> None:
    for rules in (RULES, RATIO):
        assert calibrate(merge([], 0.0), rules) == unlearned(rules)
    assert unlearned(RATIO).of(MODEL, Category.CJK).prompt.estimate(PROBES[0], 0).central == pytest.approx(
        PROBES[0].text.total / PRIOR_RATIOS[Category.CJK]
    )


def test_the_margin_covers_the_share_that_it_promises() -> None:
    dice = random.Random(5)
    observations = [report(number=number, factor=dice.lognormvariate(0, 0.1)) for number in range(400)]
    calibrations = learned(observations, every=50)
    group = group_of(TENANTS[0])
    short = 0
    for number in range(400, 800):
        fresh = report(number=number, factor=dice.lognormvariate(0, 0.1))
        estimate = calibrations.of(MODEL, fresh.features.category).prompt.estimate(fresh.features, group)
        short += estimate.conservative < fresh.prompt_tokens
    assert short / 400 == pytest.approx(1 - RULES.margin_quantile, abs=0.03)


def test_a_surer_estimate_has_a_smaller_margin_than_an_unsure_one() -> None:
    dice = random.Random(6)
    sure = learned([report(number=number) for number in range(100)])
    unsure = learned([report(number=number, factor=dice.choice((0.8, 1.3))) for number in range(100)])
    probe = PROBES[0]
    margins = [
        estimate.conservative / estimate.central
        for calibrations in (sure, unsure)
        for estimate in [calibrations.of(MODEL, Category.PROSE).prompt.estimate(probe, group_of(TENANTS[0]))]
    ]
    assert 1.0 <= margins[0] < 1.1 < margins[1] <= MOST_MARGIN


def test_of_few_samples_the_margin_is_that_of_the_tenants_other_categories() -> None:
    dice = random.Random(8)
    known = [report(number=number, factor=dice.lognormvariate(0, 0.03)) for number in range(200)]
    few = [report("code", number=900 + number, factor=dice.lognormvariate(0, 0.03)) for number in range(6)]
    group = group_of(TENANTS[0])
    alone, beside = (margins(learned(observations), Category.CODE)[group] for observations in (few, known + few))
    assert alone == pytest.approx(PRIOR_MARGIN, rel=0.01)
    assert beside == pytest.approx(margins(learned(known), Category.PROSE)[group], abs=0.02)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(0.8, 1.4), min_size=160, max_size=300),
    st.lists(st.floats(0.1, 10.0), max_size=400),
)
def test_other_categories_move_a_margin_by_no_more_than_twenty_samples_could(
    own: list[float], elsewhere: list[float]
) -> None:
    sums = folded([report(), report("code")])
    group = group_of(TENANTS[0])
    for category, values in ((Category.PROSE, own), (Category.CODE, elsewhere)):
        histogram = sums.models[MODEL].categories[category].groups[group].margins
        histogram.weights = {}
        for value in values:
            histogram.add(value)
    known = sums.models[MODEL].categories[Category.PROSE].groups[group].margins
    found = margins(calibrate(sums, RULES), Category.PROSE)[group]
    more = 21  # with the prior's
    rank = RULES.margin_quantile * (len(own) + more)
    least, most = known.quantile((rank - more) / len(own)), known.quantile(rank / len(own))
    assert least is not None
    assert most is not None
    assert max(1.0, least) <= found <= max(1.0, most)


def margins(calibrations: Calibrations, category: Category) -> tuple[float, ...]:
    prompt = calibrations.of(MODEL, category).prompt
    assert isinstance(prompt, LinearEstimator)
    return prompt.margins


def test_the_expected_output_is_what_most_answers_stay_within() -> None:
    observations = [report(number=number, output_tokens=1 + number) for number in range(1000)]
    outputs = calibrate(merge([folded(observations)], 2000.0), RULES).of(MODEL, Category.PROSE).outputs
    assert outputs[group_of(TENANTS[0])] == pytest.approx(900, rel=0.03)


def test_before_any_answer_the_expected_output_is_the_prior() -> None:
    outputs = calibrate(merge([folded([report()])], 2000.0), RULES).of(MODEL, Category.PROSE).outputs
    assert outputs == (PRIOR_OUTPUT_TOKENS,) * TENANT_GROUPS


# --- nobody teaches too much ---------------------------------------------------------------------------------------


@given(
    kind=st.sampled_from(["code", "cjk", "mixed"]),
    factor=st.floats(0.1, 5),
    own=st.integers(1, 60),
    count=st.integers(1, 300),
    tenants=st.integers(1, 4),
)
@settings(max_examples=25, deadline=None)
def test_other_categories_move_one_by_no_more_than_the_stated_bound(
    kind: str, factor: float, own: int, count: int, tenants: int
) -> None:
    """The mix flips, a new language appears. Facts row: categories."""
    prose = [report(number=number, tenant=TENANTS[number % tenants]) for number in range(own)]
    others = [report(kind, number, factor=factor) for number in range(count)]
    before = calibrate(merge([folded(prose)], 2000.0), RULES)
    after = calibrate(merge([folded([*prose, *others])], 2000.0), RULES)
    assert all(one.features.category is Category.PROSE for one in prose)
    assert shift(before, after, [one.features for one in prose]) <= RULES.agreement


def test_another_category_moves_no_ratio() -> None:
    prose = [report(number=number) for number in range(20)]
    others = [report("code", number, factor=3.0) for number in range(100)]
    before = calibrate(merge([folded(prose, RATIO)], 2000.0), RATIO)
    after = calibrate(merge([folded([*prose, *others], RATIO)], 2000.0), RATIO)
    for features in PROBES:
        assert central(after, features) == pytest.approx(central(before, features), rel=1e-9)


def test_another_model_moves_nothing_at_all() -> None:
    mine = [report(number=number) for number in range(20)]
    theirs = [report(number=number, factor=4.0, model="other") for number in range(50)]
    before = calibrate(merge([folded(mine)], 2000.0), RULES)
    after = calibrate(merge([folded([*mine, *theirs])], 2000.0), RULES)
    assert after.of(MODEL, Category.PROSE) == before.of(MODEL, Category.PROSE)


@given(
    honest=st.integers(2, TENANT_GROUPS - 1),
    samples=st.integers(10, 40),
    junk=st.integers(1, 300),
    factor=st.floats(0.2, 5),
    kind=st.sampled_from(["prose", "odd"]),
)
@settings(max_examples=25, deadline=None)
def test_one_tenant_moves_the_others_by_no_more_than_the_stated_bound(
    honest: int, samples: int, junk: int, factor: float, kind: str
) -> None:
    others = [
        report(number=number * honest + place, tenant=tenant)
        for place, tenant in enumerate(TENANTS[:honest])
        for number in range(samples)
    ]
    bad = [report(number=5000 + number, tenant=TENANTS[-1], factor=factor) for number in range(junk)]
    if kind == "odd":  # text whose tokens depend on what there is none of in the others'
        bad = [replace(one, features=structs.replace(one.features, messages=50 * one.features.messages)) for one in bad]
    trusted = calibrate(merge([folded(others)], 2000.0), RULES)
    merged = merge([folded(bad, into=folded(others), start=1500.0, calibrations=trusted)], 2000.0)
    groups = merged.models[MODEL].categories["prose"].groups
    bad_group = group_of(TENANTS[-1])
    order = sorted(groups)
    weights = dict(zip(order, trusts([groups[group].linear for group in order], RULES), strict=True))
    weight = min(RULES.tenant_weight, groups[bad_group].linear.weight)
    honest_weight = sum(weights[group] * groups[group].linear.weight for group in order if group != bad_group)
    honest_weights = [weights[group] for group in order if group != bad_group]
    bound = RULES.agreement * math.sqrt(weight / honest_weight)

    # The others' estimates, with their trusts as they are, with and without that group.
    without = coefficients([groups[g].linear for g in order if g != bad_group], honest_weights)
    with_it = coefficients([groups[g].linear for g in order], [weights[g] for g in order])
    squares = [
        (sum((a - b) * v for a, b, v in zip(with_it, without, one.features.vector, strict=True)) / size) ** 2
        for one in others
        for size in [sum(map(mul, PRIOR_COEFFICIENTS, one.features.vector)) + SMALL_TOKENS]
    ]
    assert math.sqrt(sum(squares) / len(squares)) <= bound * 1.05


@given(
    own=st.integers(30, 80),
    factor=st.floats(0.7, 1.5),
    count=st.integers(1, 400),
    theirs=st.floats(0.2, 5),
    tenants=st.integers(1, TENANT_GROUPS - 1),
)
@settings(max_examples=25, deadline=None)
def test_all_others_together_move_nobody_by_more_than_the_agreement(
    own: int, factor: float, count: int, theirs: float, tenants: int
) -> None:
    """However many they are, and also where there is but one, so that nobody could tell which of the two is right."""
    mine = [report(number=number, factor=factor) for number in range(own)]
    others = [
        report(number=5000 + number, tenant=TENANTS[1 + number % tenants], factor=theirs) for number in range(count)
    ]
    if count % 2:  # text whose tokens depend on what there is little of in mine
        others = [
            replace(one, features=structs.replace(one.features, messages=50 * one.features.messages)) for one in others
        ]
    before = calibrate(merge([folded(mine)], 2000.0), RULES)
    after = calibrate(merge([folded([*mine, *others])], 2000.0), RULES)
    moved = shift(before, after, [one.features for one in mine], group_of(TENANTS[0]))
    assert moved <= RULES.agreement + 1e-6


def test_two_tenants_that_contradict_each_other_each_keep_their_own_estimate() -> None:
    def report_of(number: int) -> Observation:
        return report(number=number, tenant=TENANTS[number % 2], factor=(0.8, 3.0)[number % 2])

    calibrations = learned([report_of(number) for number in range(400)], every=20)
    for place, factor in enumerate((0.8, 3.0)):
        errors = [
            central(calibrations, features, group_of(TENANTS[place])) / tokens_of(features, factor) - 1
            for features in PROBES
        ]
        assert math.sqrt(statistics.fmean(error**2 for error in errors)) < 0.1
    newcomer = central(calibrations, PROBES[0], group_of(TENANTS[2]))
    assert tokens_of(PROBES[0], 0.8) < newcomer < tokens_of(PROBES[0], 3.0)


def test_who_agrees_needs_no_estimate_of_its_own() -> None:
    observations = [
        report(number=number, tenant=TENANTS[number % 2], factor=(1.1, 1.2)[number % 2]) for number in range(200)
    ]
    prompt = learned(observations).of(MODEL, Category.PROSE).prompt
    assert isinstance(prompt, LinearEstimator)
    assert not prompt.own


@pytest.mark.parametrize("rules", [RULES, RATIO])
@pytest.mark.parametrize("factor", [0.25, 0.5, 2.0, 4.0])
def test_a_tenant_that_sends_junk_hardly_moves_the_others(rules: EstimationRules, factor: float) -> None:
    """Of four, as many requests as the other three together: what comes of the bound in the whole system."""
    others = [report(number=number, tenant=TENANTS[number % 3]) for number in range(150)]
    junk = [report(number=900 + number, tenant=TENANTS[3], factor=factor) for number in range(150)]
    mixed = [each for pair in zip(others, junk, strict=True) for each in pair]
    assert shift(learned(others, rules), learned(mixed, rules), PROBES) < (0.05 if rules is RULES else 0.2)


def test_a_junk_tenants_margin_is_its_own() -> None:
    dice = random.Random(7)
    others = [report(number=number, tenant=TENANTS[number % 3]) for number in range(150)]
    junk = [
        report(number=900 + number, tenant=TENANTS[3], factor=1.2 * dice.choice((0.5, 1, 2))) for number in range(150)
    ]
    mixed = [each for pair in zip(others, junk, strict=True) for each in pair]
    before, after = learned(others), learned(mixed)
    for tenant, limit in (
        (TENANTS[0], 1.06),
        (TENANTS[5], 1.06),
        (TENANTS[3], MOST_MARGIN * chance(central(before, PROBES[0]))),
    ):
        group = group_of(tenant)
        wider = [
            cal.of(MODEL, Category.PROSE).prompt.estimate(PROBES[0], group).conservative for cal in (before, after)
        ]
        assert wider[1] / wider[0] <= limit, tenant


@pytest.mark.parametrize("rules", [RULES, RATIO])
@pytest.mark.parametrize("factor", [0.1, 0.5, 1.4, 2.0, 3.0])
def test_one_odd_first_sample_moves_estimates_by_less_than_a_third(rules: EstimationRules, factor: float) -> None:
    """Facts row: cold start."""
    first = report(factor=factor)
    calibrations = calibrate(merge([folded([first], rules)], 2000.0), rules)
    for features in (*PROBES, first.features):
        assert central(calibrations, features) / central(unlearned(rules), features) == pytest.approx(1, abs=0.34)


@pytest.mark.parametrize("rules", [RULES, RATIO])
def test_lies_among_true_reports_are_outvoted(rules: EstimationRules) -> None:
    """One node in ten reports twice the tokens, for all tenants."""
    observations = [
        report(number=number, tenant=TENANTS[number % 4], factor=1.2 * (2 if number % 10 == 0 else 1))
        for number in range(200)
    ]
    calibrations = learned(observations, rules)
    errors = [central(calibrations, features) / tokens_of(features, 1.2) - 1 for features in PROBES]
    assert abs(statistics.fmean(errors)) < 0.11


def test_two_tenants_that_differ_are_both_heard() -> None:
    observations = [
        report(number=number, tenant=TENANTS[number % 2], factor=(1.1, 1.3)[number % 2]) for number in range(200)
    ]
    calibrations = learned(observations)
    for features in PROBES:
        newcomer = central(calibrations, features, group_of(TENANTS[2]))
        assert newcomer == pytest.approx(tokens_of(features, 1.2), rel=0.05)


def test_a_tenant_counts_as_so_many_samples_at_most() -> None:
    many = [report(number=number, tenant=TENANTS[0], factor=1.1) for number in range(1000)]
    few = [report(number=2000 + number, tenant=TENANTS[1], factor=1.15) for number in range(200)]
    rules = replace(RULES, tenant_weight=100)
    groups = merge([folded([*many, *few], rules)], 3000.0).models[MODEL].categories["prose"].groups
    sums = [groups[group_of(tenant)].linear for tenant in TENANTS[:2]]
    assert [trust * one.weight for trust, one in zip(trusts(sums, rules), sums, strict=True)] == pytest.approx(
        [100, 100], rel=0.1
    )


def test_an_empty_text_teaches_nothing_wrong() -> None:
    empty = [Observation(MODEL, "t", Features(count_text(""), messages=1), 9) for _ in range(20)]
    calibrations = calibrate(merge([folded(empty)], 2000.0), RULES)
    assert central(calibrations, empty[0].features) == pytest.approx(9, rel=0.2)
