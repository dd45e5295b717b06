from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from controlplane.config.load import load
from controlplane.model import FormatTier, Verdict
from planner.hardware.engine import EngineModel
from planner.hardware.physics import engine
from planner.plan import plot
from planner.plan.configuration import configuration
from planner.plan.document import document
from planner.plan.parts import budgets_of, by_verdict, whole
from planner.plan.planning import NoFleetError, Plan, Planner, simplest
from planner.plan.search import Asked, Search
from planner.plan.trial import Trials, _with_instances, next_instances, simulated_fleet
from planner.simulation.setup import MOST_SECONDS
from planner.simulation.simulate import simulate
from planner.sizing.pools import Targets
from planner.workload.arrivals import scaled
from planner.workload.caps import CapPolicy, capped
from planner.workload.shipped import shipped
from planner.workload.workload import Workload

# Whoever is first compiles the simulator, where no process before has.
pytestmark = pytest.mark.timeout(600)

FULL, QUANTIZED = FormatTier.FULL, FormatTier.QUANTIZED
ENGINES: Mapping[FormatTier, Sequence[EngineModel]] = {
    FULL: [engine("Llama-3-70B", gpu, gpus) for gpu, gpus in (("A100", 4), ("A100", 8), ("H100", 4))],
    QUANTIZED: [engine("Llama-3-70B", "H100", 2, "fp8"), engine("Llama-3-70B", "A100", 2, "int4")],
}


@pytest.fixture(scope="module")
def azure() -> Workload:
    return shipped("azure-2023").sample(5000, 100.0, np.random.default_rng(1))


@pytest.fixture(scope="module")
def agents() -> Workload:
    return shipped("agent-heavy").sample(5000, 100.0, np.random.default_rng(1))


def asked(**others: object) -> Asked:
    return Asked(rate=100.0, busy_rate=100.0, engines=ENGINES, targets=Targets(), **others)  # type: ignore[arg-type]


def patient() -> Asked:
    """Agents' prompts take seconds to read."""
    return Asked(rate=100.0, busy_rate=100.0, engines=ENGINES, targets=Targets(ttft_seconds=15.0))


@pytest.fixture(scope="module")
def plan(azure: Workload) -> Plan:
    return Planner(asked(), azure, classes=2, tolerant=0.6).plan()


def test_a_plan_serves_every_request_once(plan: Plan) -> None:
    for fleet in (plan.fleet, *plan.others):
        assert sum(pool.share for pool in fleet.pools) == pytest.approx(1.0)
        assert all(pool.size.engine.max_context == pool.up_to for pool in fleet.pools)


def test_a_plan_meets_its_targets(plan: Plan) -> None:
    for pool in plan.fleet.pools:
        assert pool.size.ttft_seconds <= plan.asked.targets.ttft_seconds
        assert pool.size.tpot_seconds <= plan.asked.targets.tpot_seconds
        assert pool.size.busy <= plan.asked.targets.utilisation


def test_quantized_engines_serve_what_tolerates_them_and_save(plan: Plan) -> None:
    share = sum(pool.share for pool in plan.fleet.pools if pool.tier is QUANTIZED)

    assert share == pytest.approx(0.6)
    saved = plan.saving(plan.honest)
    assert saved is not None
    assert 0.15 < saved < 0.6


def test_against_one_pool_that_is_set_up_well_classes_alone_save_little(azure: Workload) -> None:
    plan = Planner(asked(), azure, classes=3).plan()
    of_honest, of_papers = plan.saving(plan.honest), plan.saving(plan.papers)

    assert of_honest is not None
    assert of_papers is not None
    assert 0 <= of_honest < 0.1
    assert of_papers > of_honest


def test_the_best_fleet_of_two_classes_is_the_best_of_all_bounds(agents: Workload) -> None:
    search = Search(patient(), whole(agents))
    best = search.best(2)

    assert best is not None
    assert best.dollars_per_hour == min(fleet.dollars_per_hour for _, fleet in search.two_classes())


def test_the_best_fleet_of_three_classes_is_the_best_of_all_pairs_of_bounds(agents: Workload) -> None:
    search = Search(patient(), whole(agents))
    costs = []
    for first, second in combinations(search.bounds, 2):
        pools = [search.pools(0, first), search.pools(first, second), search.pools(second, search.context)]
        if all(each is not None for each in pools):
            costs.append(sum(pool.size.dollars_per_hour for each in pools for pool in each or ()))
    best = search.best(3)

    assert best is not None
    assert best.dollars_per_hour == pytest.approx(min(costs))


def test_more_pools_have_to_be_worth_it(plan: Plan) -> None:
    fleets = [plan.fleet, *plan.others]
    chosen = simplest(fleets, 0.0)

    for fleet in fleets:
        if len(fleet.pools) > len(chosen.pools):
            assert fleet.dollars_per_hour >= 0.98 * chosen.dollars_per_hour


def test_caps_above_the_answers_make_short_requests_long(azure: Workload) -> None:
    actual, absent, constant = (
        float((budgets_of(each) <= 2048).mean())
        for each in (
            capped(azure, CapPolicy.ACTUAL),
            capped(azure, CapPolicy.ABSENT),
            capped(azure, CapPolicy.CONSTANT, 2048),
        )
    )

    assert actual > absent > constant == 0.0


def test_verdicts_part_a_workload_where_they_are_known(azure: Workload) -> None:
    verdicts = np.full(len(azure), list(Verdict).index(Verdict.SENSITIVE), dtype=np.uint8)
    verdicts[:1000] = list(Verdict).index(Verdict.TOLERANT)
    judged = Workload(
        azure.source, azure.arrival_seconds, azure.input_tokens, azure.output_tokens, azure.output_cap, verdict=verdicts
    )

    assert {part.tier: part.share for part in by_verdict(judged, None)} == {FULL: 0.8, QUANTIZED: 0.2}
    assert {part.tier: part.share for part in by_verdict(judged, 0.5)} == {FULL: 0.5, QUANTIZED: 0.5}
    assert [part.tier for part in by_verdict(azure, None)] == [FULL]


def test_a_promised_context_is_kept_though_no_request_needs_it(azure: Workload) -> None:
    fleet = Planner(asked(context=65_536), azure, classes=2).plan().fleet

    assert fleet.context == 65_536


def test_paid_energy_counts(azure: Workload) -> None:
    fleet = Planner(asked(dollars_per_kwh=0.3), azure, classes=1).plan().fleet

    assert fleet.kilowatts is not None
    assert fleet.cost(0.3) == pytest.approx(fleet.dollars_per_hour + 0.3 * fleet.kilowatts)


def test_targets_that_nobody_meets_are_told(azure: Workload) -> None:
    hard = Asked(100.0, 100.0, ENGINES, Targets(tpot_seconds=0.001))

    with pytest.raises(NoFleetError, match="allow longer times"):
        Planner(hard, azure, classes=1).plan()


def test_requests_longer_than_any_engine_are_told(azure: Workload) -> None:
    small = {FULL: [engine("Llama-3-70B", "H100", 4).limited(4096, 256)]}

    with pytest.raises(NoFleetError, match="hold 4096 at most"):
        Planner(Asked(100.0, 100.0, small, Targets()), azure, classes=1).plan()


def test_every_class_of_contexts_that_is_looked_at_is_told_of(azure: Workload) -> None:
    told: list[tuple[int, int]] = []
    Planner(asked(), azure, classes=3).plan(lambda done, of: told.append((done, of)))

    assert told[-1][0] == told[-1][1] == len(told)


@pytest.mark.parametrize("enough", [1, 2, 3, 10, 29, 200])
@pytest.mark.parametrize("start", [1, 9, 40])
def test_instances_are_tried_until_the_fewest_that_meet_the_targets_are_found(enough: int, start: int) -> None:
    count, missing, meeting, rounds = start, 0, 0, 0
    while True:
        rounds += 1
        if count >= enough:
            meeting = min(meeting or count, count)
        else:
            missing = max(missing, count)
        following = next_instances(count, missing, meeting)
        if following == count == meeting:
            break
        count = following
        assert rounds < 60

    assert count == enough


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_the_configuration_is_one_that_headrace_takes(agents: Workload, classes: int) -> None:
    fleet = Search(patient(), by_verdict(agents, 0.5)).best(classes)
    assert fleet is not None
    text = configuration(fleet, "Llama-3-70B")
    settings = load(text, "plan.yaml")

    assert tuple(each.max_context for each in settings.policy.context_classes) == (*fleet.bounds, None)
    assert text.count("vllm serve") == len(fleet.pools)


def test_a_plan_is_corrected_by_what_the_simulator_finds(azure: Workload, plan: Plan) -> None:
    few = azure.select(np.arange(len(azure)) < 1500)
    planner = Planner(asked(), few, classes=1, tolerant=0.6)
    told: list[tuple[int, int]] = []
    tried = planner.tried(planner.plan(), Trials(few, Targets(), 0.6, seed=1), lambda done, of: told.append((done, of)))

    assert tried.is_tried
    assert told[-1][0] == told[-1][1] == len(told)
    assert tried.honest is not None
    for pool in (*tried.fleet.pools, *tried.honest.pools):
        assert 0 < pool.size.ttft_seconds <= 2.0
        assert 0 < pool.size.tpot_seconds <= 0.080
    again = planner.tried(planner.plan(), Trials(few, Targets(), 0.6, seed=1))
    assert again.fleet == tried.fleet


def test_a_document_and_a_picture_are_made_of_a_plan(plan: Plan, tmp_path: Path) -> None:
    found = document(plan)
    picture = tmp_path / "plan.png"
    plot.draw(plan, "a test", picture)

    assert found["fleet"]["dollars_per_hour"] == plan.fleet.dollars_per_hour
    assert found["baselines"]["one_pool"]["saving"] == plan.saving(plan.honest)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_fleet_of_quantized_engines_alone_is_tried_too(azure: Workload) -> None:
    """Where every request tolerates them."""
    few = azure.select(np.arange(len(azure)) < 1500)
    planner = Planner(asked(), few, classes=1, tolerant=1.0)
    tried = planner.tried(planner.plan(), Trials(few, Targets(), 1.0, seed=1))

    assert {pool.tier for pool in tried.fleet.pools} == {QUANTIZED}
    assert tried.honest is not None
    assert tried.fleet.dollars_per_hour < 0.98 * tried.honest.dollars_per_hour


def test_the_best_fleet_of_two_classes_is_tried_though_formulas_prefer_one(azure: Workload) -> None:
    few = azure.select(np.arange(len(azure)) < 1500)
    planner = Planner(asked(), few, classes=2)
    plan = planner.plan()
    assert not plan.fleet.bounds

    tried = planner.tried(plan, Trials(few, Targets(), None, seed=1))

    assert any(fleet.bounds for fleet in (tried.fleet, *tried.others))


def test_a_fleet_that_turns_requests_away_does_not_meet_its_targets(azure: Workload) -> None:
    """The first token may take longer than requests wait, so that only those who are turned away tell."""
    patience = Targets(ttft_seconds=60.0, tpot_seconds=1.0)
    search = Search(Asked(100.0, 100.0, ENGINES, patience), whole(azure))
    fleet = search.best(1)
    assert fleet is not None
    trials = Trials(azure, patience, None, seed=1)
    few = _with_instances(fleet, [1])
    assert simulate(trials.requests(), simulated_fleet(few), 1).whole.not_served > 0.1

    found = trials.fit(_with_instances(fleet, [max(1, fleet.instances // 3)]))

    assert found is None or simulate(trials.requests(), simulated_fleet(found), 1).whole.not_served <= 0.001


def test_instances_that_may_be_down_are_planned_for_when_a_fleet_is_tried_too(azure: Workload) -> None:
    fleet = Search(asked(), whole(azure)).best(1)
    assert fleet is not None
    always, half = (Trials(azure, Targets(availability=up), None, seed=1).fit(fleet) for up in (1.0, 0.5))

    assert always is not None
    assert half is not None
    assert half.instances == 2 * always.instances


def test_a_tried_fleet_is_used_no_more_than_is_asked(azure: Workload) -> None:
    fleet = Search(asked(), whole(azure)).best(1)
    assert fleet is not None
    usual, calm = (Trials(azure, Targets(utilisation=most), None, seed=1).fit(fleet) for most in (0.85, 0.1))

    assert usual is not None
    assert calm is not None
    assert calm.pools[0].size.busy <= 0.1 < usual.pools[0].size.busy
    assert calm.instances > usual.instances


def test_requests_that_come_slowly_are_tried_as_far_as_simulated_time_goes(azure: Workload) -> None:
    slow = scaled(azure, 1e-6)

    assert slow.seconds > MOST_SECONDS
    assert 0 < Trials(slow, Targets(), None, seed=1).requests().seconds <= MOST_SECONDS


def test_a_context_larger_than_any_engine_is_told(azure: Workload) -> None:
    with pytest.raises(NoFleetError, match=r"contexts of 999999 tokens are asked for, .* hold 131072 at most"):
        Planner(asked(context=999_999), azure, classes=1).plan()


def test_engines_are_started_as_they_were_reckoned(plan: Plan) -> None:
    text = configuration(plan.fleet, "Llama-3-70B")

    for pool in plan.fleet.pools:
        engine = pool.size.engine
        assert f"--max-num-seqs {engine.max_sequences} --max-num-batched-tokens {pool.size.token_budget} " in text
        assert f"--long-prefill-token-threshold {engine.chunk_tokens}" in text
        # vLLM does not start with fewer.
        assert pool.size.token_budget >= engine.max_sequences
