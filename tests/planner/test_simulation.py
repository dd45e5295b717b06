"""The simulator against a plain event loop of the same model, and against what must hold whatever happens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.model import CapacityType
from controlplane.policy.qos import Mode, QosRules
from controlplane.policy.settings import Policy
from planner.simulation.course import Course
from planner.simulation.fleet import Failure, FleetError, SimulatedFleet, SimulatedPool, with_classes
from planner.simulation.report import Ending
from planner.simulation.simulate import simulate
from planner.simulation.state import PENDING, SECOND, SERVED
from planner.workload.workload import Workload
from support.engines import ENGINE
from support.plain_fleet import PlainFleet

# Whoever is first compiles the simulator, where no process before has.
pytestmark = pytest.mark.timeout(600)


def make_workload(count: int, rate: float, seed: int = 0, longest: int = 300, cap: bool = False) -> Workload:
    dice = np.random.default_rng(seed)
    output = dice.integers(1, longest, count).astype(np.int32)
    return Workload(
        source="test",
        arrival_seconds=np.cumsum(dice.exponential(1 / rate, count)),
        input_tokens=dice.integers(1, longest, count).astype(np.int32),
        output_tokens=output,
        output_cap=output * 2 if cap else np.zeros(count, np.int32),
        qos_tier=dice.integers(0, 3, count).astype(np.uint8),
        verdict=dice.integers(0, 3, count).astype(np.uint8),
        session=dice.integers(-1, 5, count).astype(np.int32),
    )


def two_contexts(policy: Policy) -> SimulatedFleet:
    short = replace(ENGINE, max_context=256, kv_blocks=64)
    pools = (SimulatedPool(short, 2), SimulatedPool(ENGINE, 1))
    return SimulatedFleet(pools, with_classes(policy, (256, 2048)))


def two_formats(policy: Policy) -> SimulatedFleet:
    quantized = replace(ENGINE, quantization="int4-awq", per_sequence_seconds=0.0004, fixed_seconds=0.005)
    return SimulatedFleet((SimulatedPool(ENGINE, 2), SimulatedPool(quantized, 2, gain=1.8)), policy)


def spot_and_on_demand(policy: Policy) -> SimulatedFleet:
    spot = SimulatedPool(ENGINE, 2, capacity_type=CapacityType.SPOT)
    return SimulatedFleet((SimulatedPool(ENGINE, 1), spot), policy, failures=(Failure(3.0, 1, 0), Failure(6.0, 1, 1)))


def scaling(policy: Policy) -> SimulatedFleet:
    engine = replace(ENGINE, scales_with_length=True, seconds_per_token=0.0002, per_sequence_seconds=0.02)
    return SimulatedFleet((SimulatedPool(engine, 2, token_budget=100),), policy)


GOVERNED = Policy(qos=QosRules(mode=Mode.ENABLED))
FLEETS = [two_contexts, two_formats, spot_and_on_demand, scaling]


@pytest.mark.parametrize("policy", [Policy(), GOVERNED], ids=["ungoverned", "governed"])
@pytest.mark.parametrize("fleet", FLEETS, ids=lambda fleet: fleet.__name__)
@pytest.mark.parametrize("rate", [3.0, 12.0, 40.0])
def test_runs_of_iterations_and_remembered_answers_give_exactly_what_token_by_token_and_decide_itself_give(
    fleet, policy, rate
) -> None:
    workload = make_workload(250, rate, cap=rate == 12.0)
    compared = fleet(policy)
    found = Course(workload, compared, 7).finish().requests
    expected = PlainFleet(workload, compared, 7).finish()
    for name in ("outcome", "pool", "first", "ended", "preemptions", "output", "began"):
        assert found[name].tolist() == [getattr(each, name) for each in expected], name


class WatchedCourse(Course):
    """Looks at the state at each heartbeat."""

    def _beat(self) -> None:
        super()._beat()
        instances, pools = self.state.instances, self.state.pools
        for place, instance in enumerate(instances):
            block = pools[instance.pool].block
            running = self.state.batches[place, : instance.running]
            assert instance.used == (-(-running["computed"] // block)).sum()
            assert instance.used <= pools[instance.pool].blocks
            assert instance.held == instance.running + instance.queued
            assert instance.running <= pools[instance.pool].sequences


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(FLEETS),
    st.booleans(),
    st.integers(0, 120),
    st.floats(1, 200),
    st.integers(0, 2**32),
)
def test_no_kv_cache_is_overcommitted_no_request_is_lost_and_littles_law_holds(
    fleet, governed, count, rate, seed
) -> None:
    course = WatchedCourse(
        make_workload(count, rate, seed),
        replace(fleet(GOVERNED if governed else Policy()), heartbeat_seconds=0.037),
        seed,
    )
    state = course.finish()
    requests, now = state.requests, state.clockwork[0]
    assert (requests["outcome"] != PENDING).all()
    assert (requests["ended"] >= requests["arrival"]).all()
    served = requests[requests["outcome"] == SERVED]
    assert (served["generated"] == served["output"]).all()
    assert not state.instances["used"].any()
    assert not state.instances["held"].any()
    assert not state.tiers["waiting"].any()
    assert now.area_seconds * SECOND + now.area_rest == (requests["ended"] - requests["arrival"]).sum()


def test_the_same_seed_gives_the_same_report_and_another_one_another() -> None:
    workload, fleet = make_workload(300, 20.0), two_formats(Policy())
    first, again, other = (simulate(workload, fleet, seed) for seed in (1, 1, 2))
    assert first == again
    assert first.whole.ttft != other.whole.ttft


def test_what_was_refused_stays_in_the_denominator() -> None:
    report = simulate(make_workload(400, 60.0), two_formats(GOVERNED), warm_up=0.0)
    assert report.whole.requests == 400
    assert sum(report.whole.endings.values()) == 400
    assert report.whole.endings[Ending.REFUSED] > 0
    assert report.whole.good <= report.whole.served / 400
    assert sum(figures.requests for figures in report.tiers.values()) == 400


def test_pools_that_the_policy_cannot_tell_apart_are_refused() -> None:
    pools = (SimulatedPool(ENGINE, 1), SimulatedPool(replace(ENGINE, max_context=1024), 1))
    with pytest.raises(FleetError, match="context_classes"):
        SimulatedFleet(pools)


def test_a_context_that_the_kv_cache_does_not_hold_is_refused() -> None:
    with pytest.raises(FleetError, match="lower max_context"):
        SimulatedFleet((SimulatedPool(replace(ENGINE, max_context=4096), 1),))
