"""The simulator against a plain event loop of the same model, and against what must hold whatever happens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from controlplane.model import CapacityType
from controlplane.policy.qos import Mode, QosRules
from controlplane.policy.settings import Policy
from planner.hardware.engine import EngineModel
from planner.simulation.course import Course
from planner.simulation.fleet import Failure, SimulatedFleet, SimulatedPool, with_classes
from planner.workload.workload import Workload
from support.plain_fleet import PlainFleet

ENGINE = EngineModel(
    name="test",
    gpus=1,
    fixed_seconds=0.008,
    per_sequence_seconds=0.00065,
    chunk_tokens=64,
    kv_blocks=128,
    max_sequences=8,
    max_context=2048,
    dollars_per_hour=2.0,
)


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
