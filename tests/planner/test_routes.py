"""That a remembered answer is what `decide` says to the very request in the very state of the fleet."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from controlplane.features import Features
from controlplane.model import Action, CapacityType, Pin, Pool, PoolLoad, Pressure, QosTier, TierPressure
from controlplane.policy.decide import decide
from controlplane.policy.qos import Measure, Mode, QosRules, TierRules
from controlplane.policy.settings import Policy
from controlplane.policy.table import with_pools
from planner.simulation.fleet import SimulatedFleet, SimulatedPool, with_classes
from planner.simulation.routes import KINDS, PINS, Answer, Case, Routes
from planner.simulation.state import HOLD, LOOK_CLOSER, REFUSE, SEND, WAIT
from support.engines import ENGINE

QUANTIZED = replace(ENGINE, quantization="int4-awq")
LARGE = replace(ENGINE, max_context=2048)
SMALL = replace(ENGINE, max_context=512)
FALLS_BACK = TierRules(when_elevated=Measure.FALLBACK, when_critical=Measure.FALLBACK, fallback_model="other")
HOLDS = TierRules(when_elevated=Measure.QUEUE, when_critical=Measure.REJECT)
POLICIES = (
    Policy(),
    Policy(qos=QosRules(mode=Mode.ENABLED)),
    Policy(qos=QosRules(mode=Mode.ENABLED, standard=FALLS_BACK, best_effort=HOLDS)),
)
POOLS = (
    SimulatedPool(SMALL, 3),
    SimulatedPool(LARGE, 2),
    SimulatedPool(replace(QUANTIZED, max_context=512), 2, gain=1.8),
    SimulatedPool(replace(QUANTIZED, max_context=512), 2, gain=1.8, capacity_type=CapacityType.SPOT),
    SimulatedPool(SMALL, 1, model="other"),
)


def draw_state(fleet: SimulatedFleet, dice: Random) -> list[Pool]:
    """The pools as a routing table may have them."""
    found = []
    for pool in fleet.pools:
        load = PoolLoad(dice.randint(0, 40), dice.choice((0, 0, 1, 12)), dice.random())
        pressures = tuple(
            TierPressure(tier, dice.choice(tuple(Pressure)), dice.randint(0, 100) / 100) for tier in QosTier
        )
        ready = dice.randint(0, pool.instances)
        found.append(replace(pool.as_routed(fleet.policy), ready_nodes=ready, load=load, pressures=pressures))
    return found


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(POLICIES) - 1), st.lists(st.integers(1, len(POOLS) - 1), unique=True), st.integers(0, 2**32))
def test_a_remembered_answer_is_what_decide_says_itself(policy: int, others: list[int], seed: int) -> None:
    dice = Random(seed)
    fleet = SimulatedFleet((POOLS[0], *(POOLS[place] for place in others)), with_classes(POLICIES[policy], (512, 2048)))
    routes = Routes(fleet)
    remembered: dict[tuple[int, Case], Answer] = {}
    for _ in range(10):
        pools = draw_state(fleet, dice)
        numbers = routes.number(pools)
        case = Case(
            kind=dice.randrange(KINDS),
            need=dice.randint(0, len(routes.contexts)),
            pin=dice.randrange(len(PINS)),
            waited=dice.randrange(3),
            free=dice.randrange(2 ** len(pools)),
        )
        answer = _remember(routes, remembered, numbers[0], case)
        if answer.action == LOOK_CLOSER:
            answer = _remember(routes, remembered, numbers[1], case)
        assert answer == _asked(dice, routes, pools, case)


def _remember(routes: Routes, remembered: dict[tuple[int, Case], Answer], fleet: int, case: Case) -> Answer:
    if (fleet, case) not in remembered:
        remembered[fleet, case] = routes.answer(fleet, case)
    return remembered[fleet, case]


def _asked(dice: Random, routes: Routes, pools: list[Pool], case: Case) -> Answer:
    """By any request of the case, with the table of this moment; two tokens are the least."""
    bounds = (1, *routes.contexts, 100_000)
    tokens = dice.randint(bounds[case.need] + 1, bounds[case.need + 1])
    names = [pool.name for pool in pools]
    pin = PINS[case.pin]
    aged = routes.policy.qos.aged_after_seconds
    waited = (0.0, dice.uniform(0.01, aged - 0.01), dice.uniform(aged, 100.0))[case.waited]
    decision = decide(
        structs.replace(routes.ask(case), features=Features(token_ids=tokens - 1)),
        with_pools(routes.empty_table, pools),
        Pin(pin) if pin else None,
        lambda name: bool(case.free >> names.index(name) & 1),
        waited_seconds=waited,
    )
    if decision.is_sent:
        assert decision.pool is not None
        place = names.index(decision.pool.name)
        return Answer(SEND, place, decision.output_limit or 0, binds=not decision.asked_model)
    if decision.action is Action.QUEUE:
        waits = tuple(names.index(name) for name in decision.waits_for)
        return Answer(HOLD if decision.held_seconds else WAIT, waits=waits)
    return Answer(REFUSE)
