"""Signals of pools and the fleet, and the states that follow from them. Facts rows: signals, stability, staleness."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.fleet import FRESH_SECONDS, Fleet, form_fleet
from controlplane.learning.pressures import FLEET, PressureWatch, Rates
from controlplane.model import NodeLoad, NodeSession, Override, Pressure, QosTier
from controlplane.policy.qos import QosRules
from controlplane.policy.settings import Policy
from support.nodes import node

GUARANTEED, STANDARD, BEST_EFFORT = QosTier
NORMAL, ELEVATED, CRITICAL = Pressure
RULES = QosRules()
POOL = "llama/full/short/on_demand"
SESSIONS = {name: NodeSession(name, node(name), registered_at=0.0) for name in ("a", "b")}


class World:
    """A fleet of two nodes of one pool, looked at once a second."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.rates: Rates = {}
        self.watch = PressureWatch(lambda: self.rates, 1.0)
        self.fleet = Fleet((), ())
        self.overrides: dict[str, Override] = {}

    def look(self, *loads: NodeLoad, seconds: float = 1.0) -> dict[QosTier, Pressure]:
        self.now += seconds
        reports = dict(zip(SESSIONS, loads, strict=False))
        formed = form_fleet(SESSIONS.values(), reports, Policy(), self.now, self.overrides)
        self.fleet = self.watch.observe(formed, RULES, self.now)
        return {found.tier: found.pressure for found in self.fleet.pools[0].pressures}

    def load(
        self, kv_cache_use: float | None, waiting: int = 0, age: float = 0.0, *, uncounted: bool = False
    ) -> NodeLoad:
        return NodeLoad(
            running=1, waiting=waiting, kv_cache_use=kv_cache_use, uncounted=uncounted, reported_at=self.now + 1 - age
        )


@pytest.fixture
def world() -> World:
    return World()


def test_a_state_begins_with_the_second_sample_in_a_row(world: World) -> None:
    calm = dict.fromkeys(QosTier, NORMAL)
    assert world.look(world.load(0.95), world.load(0.95)) == calm
    now = world.look(world.load(0.95), world.load(0.95))
    assert now == {GUARANTEED: ELEVATED, STANDARD: CRITICAL, BEST_EFFORT: CRITICAL}
    assert world.fleet.pressures == world.fleet.pools[0].pressures


def test_however_often_it_looks_it_takes_one_sample_each_second(world: World) -> None:
    for _ in range(9):
        world.look(world.load(0.95), seconds=0.1)
    assert world.look(world.load(0.95), seconds=0.05)[STANDARD] is NORMAL
    assert world.look(world.load(0.95))[STANDARD] is CRITICAL


def test_control_planes_that_see_the_same_reports_come_to_the_same_states(world: World) -> None:
    """Facts row: shared state."""
    other = World()
    for use in (0.5, 0.7, 0.8, 0.95, 0.95, 0.95, 0.6, 0.6, 0.6, 0.1, 0.1, 0.1):
        here = world.look(world.load(use))
        other.look(other.load(use), seconds=0.3)  # looks more often
        assert other.look(other.load(use), seconds=0.7) == here


def test_the_cache_use_is_the_mean_of_those_that_report_it_and_waiting_is_per_node(world: World) -> None:
    """Facts row: signals."""
    for _ in range(2):
        world.look(world.load(None, waiting=16), world.load(0.8, waiting=0))
    pool = world.fleet.pools[0]
    standard = pool.pressure_of(STANDARD)
    assert (standard.pressure, standard.level, standard.signal) == (ELEVATED, 0.5, "kv_cache_use")
    assert pool.pressure_of(BEST_EFFORT).pressure is CRITICAL  # 8 waiting per node
    assert pool.missing_signals == ()


def test_what_is_too_old_is_missing_and_presses_nobody(world: World) -> None:
    """Facts row: staleness."""
    for _ in range(2):
        world.look(world.load(0.99), world.load(0.99))
    assert world.fleet.pools[0].pressure_of(STANDARD).pressure is CRITICAL
    for _ in range(3):
        world.look(*[world.load(0.99, age=FRESH_SECONDS + 1)] * 2)
    pool = world.fleet.pools[0]
    assert {found.pressure for found in pool.pressures} == {NORMAL}
    assert pool.missing_signals == ("kv_cache_use", "waiting_per_node")


def test_an_engine_that_counts_nothing_is_no_engine_without_a_queue(world: World) -> None:
    world.look(world.load(0.1, uncounted=True), world.load(0.1, uncounted=True))
    assert world.fleet.pools[0].missing_signals == ("waiting_per_node",)
    world.look(world.load(0.1, uncounted=True), world.load(0.1, waiting=3))
    assert world.fleet.pools[0].missing_signals == ()


def test_a_broken_promise_to_a_better_tier_presses_the_worse_ones(world: World) -> None:
    world.rates = {(POOL, GUARANTEED): 0.15, (POOL, STANDARD): None, (POOL, BEST_EFFORT): 0.01}
    for _ in range(2):
        states = world.look(world.load(0.1))
    assert states == {GUARANTEED: NORMAL, STANDARD: ELEVATED, BEST_EFFORT: CRITICAL}
    assert [found.sla_violation_rate for found in world.fleet.pools[0].pressures] == [0.15] * 3
    world.rates = {(POOL, BEST_EFFORT): 0.15}
    for _ in range(3):
        states = world.look(world.load(0.1))
    assert states == {GUARANTEED: NORMAL, STANDARD: NORMAL, BEST_EFFORT: CRITICAL}


def test_the_fleets_rates_are_those_of_all_its_requests(world: World) -> None:
    world.rates = {(FLEET, GUARANTEED): 0.5}
    for _ in range(2):
        world.look(world.load(0.1))
    assert {found.pressure for found in world.fleet.pools[0].pressures} == {NORMAL}
    assert world.fleet.pressures[0].pressure is ELEVATED


@pytest.mark.parametrize(
    ("override", "signal"),
    [
        (Override(2000.0, kv_cache_use=0.8), "kv_cache_use"),
        (Override(2000.0, waiting=40), "waiting_per_node"),
        (Override(2000.0, sla_violation_rate=0.2), "sla_violation_rate"),
    ],
)
def test_each_signal_can_be_overridden_for_a_drill(world: World, override: Override, signal: str) -> None:
    world.overrides = {POOL: override}
    for _ in range(2):
        states = world.look(world.load(0.1), world.load(0.1))
    assert states[STANDARD] is ELEVATED
    assert world.fleet.pools[0].pressure_of(STANDARD).signal == signal
    assert world.fleet.pools[0].overridden == override.signals
    world.now = 2000.0
    for _ in range(2):
        states = world.look(world.load(0.1), world.load(0.1))
    assert states[STANDARD] is NORMAL


def test_an_overridden_rate_leaves_a_load_that_nobody_reports_unknown(world: World) -> None:
    world.overrides = {POOL: Override(2000.0, sla_violation_rate=0.2)}
    world.look()
    assert world.fleet.pools[0].load is None


def test_a_pool_that_was_gone_begins_anew(world: World) -> None:
    for _ in range(2):
        world.look(world.load(0.95))
    world.watch.observe(Fleet((), ()), RULES, world.now + 1)
    assert world.look(world.load(0.95), seconds=2.0)[STANDARD] is NORMAL


def test_levels_are_kept_to_a_hundredth(world: World) -> None:
    world.look(world.load(0.75123))
    assert world.fleet.pools[0].pressure_of(STANDARD).level == 0.26


def test_limits_of_another_policy_count_from_the_next_sample(world: World) -> None:
    for _ in range(2):
        world.look(world.load(0.75))
    assert world.fleet.pools[0].pressure_of(STANDARD).pressure is ELEVATED
    unlimited = replace(RULES, standard=replace(RULES.standard, elevated_at=RULES.best_effort.elevated_at))
    for seconds in (1.0, 2.0, 3.0):
        fleet = world.watch.observe(world.fleet, unlimited, world.now + seconds)
    assert fleet.pools[0].pressure_of(STANDARD).pressure is NORMAL
