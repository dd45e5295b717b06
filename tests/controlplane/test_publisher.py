"""From states of etcd to views: soon, few, and never ended by one that cannot be published."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from controlplane import publisher
from controlplane.config.load import dump
from controlplane.features import Category
from controlplane.latest import Latest
from controlplane.learning.pressures import PressureWatch
from controlplane.model import NodeLoad, NodeSession, Override
from controlplane.policy.estimator import Calibration, Calibrations, RatioEstimator, unlearned
from controlplane.policy.settings import ContextClass, GainRules, Policy
from controlplane.publisher import Publisher
from controlplane.registry.state import FleetState
from controlplane.view import CurrentView, View
from ext_proc.table_reader import TableReader
from support.logs import logged
from support.nodes import node
from support.waiting import until

CONFIGURED = Policy()
OPERATORS = replace(CONFIGURED, context_classes=(ContextClass("all"),))


def state_of(*node_ids: str, policy: bytes | None = None) -> FleetState:
    sessions = {
        name: NodeSession(name, node(name, f"10.0.0.{number}:8000"), registered_at=0.0)
        for number, name in enumerate(node_ids)
    }
    return FleetState(sessions=sessions, policy=policy)


@dataclass
class Published:
    """A publisher at work. `refuse` is raised for each view while it is set."""

    states: Latest[FleetState | None] = field(default_factory=lambda: Latest[FleetState | None](None))
    current: CurrentView = field(default_factory=lambda: CurrentView(None))
    views: list[View] = field(default_factory=list)
    faults: int = 0
    refuse: Exception | None = None
    now: float = 1000.0
    learned: Calibrations = field(default_factory=Calibrations)

    def __post_init__(self) -> None:
        self.publisher = Publisher(
            CONFIGURED,
            self.current,
            self._take,
            self._count,
            lambda: self.now,
            pressures=PressureWatch(dict, 1.0),
            learned=lambda: self.learned,
        )

    async def _take(self, view: View) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.views.append(view)

    def _count(self) -> None:
        self.faults += 1

    async def put(self, state: FleetState) -> View:
        """The view that follows from it."""
        following = self.current.next()
        self.states.put(state)
        async with asyncio.timeout(60):
            while (view := await following) is None or view.sessions is not state.sessions:
                following = self.current.next()
        return view


@asynccontextmanager
async def publishing() -> AsyncIterator[Published]:
    published = Published()
    running = asyncio.ensure_future(published.publisher.run(published.states.changes()))
    try:
        yield published
    finally:
        running.cancel()
        await asyncio.wait((running,))
    assert running.cancelled()


async def test_a_registration_is_in_force_at_once_and_not_with_the_next_refresh(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """How soon that is, `bench/fleet_changes.py` measures."""
    monkeypatch.setattr(publisher, "REFRESH_SECONDS", 3600.0)
    async with publishing() as published:
        for names in (("a",), ("a", "b"), ("a", "b", "c")):
            view = await published.put(state_of(*names))
            assert tuple(view.sessions) == names
            assert view.fleet.pools[0].nodes == len(names)
            assert [pool.nodes for pool in view.table_message.pools] == [len(names)]


async def test_changes_that_come_at_once_are_published_together() -> None:
    async with publishing() as published:
        await published.put(state_of("a"))
        for number in range(100):
            published.states.put(state_of("a", f"b{number}"))
            await asyncio.sleep(0)  # the publisher's turn: it is to see each of them, and no event says that it has
        view = await published.put(state_of("a", "last"))
        assert "last" in view.sessions
        assert len(published.views) <= 4


async def test_loads_that_age_are_noticed_without_any_change() -> None:
    async with publishing() as published:
        state = replace(state_of("a"), loads={"a": NodeLoad(running=1, waiting=0, reported_at=1000.0)})
        assert (await published.put(state)).fleet.pools[0].load is not None
        published.now = 2000.0
        view = await published.current.next()
        assert view is not None
        assert view.fleet.pools[0].load is None


async def test_an_override_ends_on_time_though_etcd_still_holds_it() -> None:
    async with publishing() as published:
        overrides = {"llama/full/short/on_demand": Override(expires_at=1001.0, waiting=100)}
        view = await published.put(replace(state_of("a"), overrides=overrides))
        assert view.table_message.pools[0].load.waiting == 100
        assert list(view.table_message.pools[0].overridden) == ["waiting"]
        published.now = 1001.0
        later = await published.current.next()
        assert later is not None
        assert not later.table_message.pools[0].HasField("load")
        assert later.table.version != view.table.version


async def test_a_view_that_is_refused_leaves_the_last_one_in_force_and_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "controlplane.publisher")
    async with publishing() as published:
        good = await published.put(state_of("a"))
        published.refuse = ValueError("10.0.0.x is no address")
        published.states.put(state_of("a", "b"))
        await until(lambda: published.faults >= 2)  # it tries again
        assert published.current.value is not None
        assert published.current.value.sessions is good.sessions
        assert published.publisher.view_fault == "ValueError: 10.0.0.x is no address"
        published.refuse = None
        view = await published.put(state_of("a", "b", "c"))
        assert len(view.sessions) == 3
        assert published.publisher.view_fault is None
    assert [record.getMessage().partition(" revision")[0] for record in logged(caplog, "controlplane.publisher")] == [
        "the fleet cannot be published, the last view stays",
        "the fleet is published again",
    ]


async def test_a_view_that_cannot_be_made_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("format")

    async with publishing() as published:
        await published.put(state_of("a"))
        with monkeypatch.context() as broken:
            broken.setattr("controlplane.publisher.form_fleet", fail)
            published.states.put(state_of("b"))
            await until(lambda: published.faults)
        assert "b" in (await published.put(state_of("b", "c"))).sessions


async def test_an_operators_policy_replaces_the_configured_one_until_it_is_gone() -> None:
    async with publishing() as published:
        view = await published.put(state_of("a", policy=dump(OPERATORS).encode()))
        assert (view.table.policy, view.policy_overridden) == (OPERATORS, True)
        assert view.fleet.pools[0].context_class == "all"
        view = await published.put(state_of("a"))
        assert (view.table.policy, view.policy_overridden) == (CONFIGURED, False)


@pytest.mark.parametrize("unreadable", [b"from_the_future: 1\n", b"\xff", b"{", b""])
async def test_an_unreadable_policy_leaves_the_last_one_in_force(unreadable: bytes) -> None:
    async with publishing() as published:
        view = await published.put(state_of("a", policy=unreadable))
        fault = published.publisher.policy_fault
        if unreadable:  # an empty document changes no default
            assert fault
        assert (view.table.policy, view.policy_overridden) == (CONFIGURED, not fault)

        await published.put(state_of("a", policy=dump(OPERATORS).encode()))
        assert published.publisher.policy_fault is None
        view = await published.put(state_of("a", policy=unreadable))
        if fault:
            assert (view.table.policy, view.policy_overridden) == (OPERATORS, True)
            assert published.publisher.policy_fault == fault
        view = await published.put(state_of("a"))
        assert (view.table.policy, view.policy_overridden) == (CONFIGURED, False)
        assert published.publisher.policy_fault is None


async def test_equal_fleets_have_tables_of_equal_version() -> None:
    async with publishing() as published:
        first = await published.put(state_of("a"))
        second = await published.put(state_of("a"))
        other = await published.put(state_of("a", "b"))
    assert first.table.version == first.table_message.version == second.table.version != other.table.version


async def test_what_load_reports_tell_of_gains_reaches_the_table_of_filters() -> None:
    """Facts row: hardware."""
    rules = GainRules(enough_seconds=3, half_life_seconds=100)
    document = dump(replace(CONFIGURED, gain=rules)).encode()
    sessions = {
        name: NodeSession(name, replace(node(name, f"10.0.0.{number}:8000", form), hardware_class="a100"), 0.0)
        for number, (name, form) in enumerate((("full", "fp16"), ("quantized", "int4-awq")), start=1)
    }
    async with publishing() as published:
        for second in range(6):
            published.now = 1000.0 + second
            loads = {
                name: NodeLoad(running=4, waiting=0, tokens_per_second=speed, reported_at=published.now)
                for name, speed in (("full", 100.0), ("quantized", 105.0))
            }
            view = await published.put(FleetState(sessions=dict(sessions), loads=loads, policy=document))
            gains = [pool.gain for pool in view.table_message.pools]
            assert gains == [1.0, 1.3 if second < 3 else gains[1]]
    assert gains == [1.0, 1.05]
    assert view.fleet.learned.gains["llama", "a100"].value == 1.05


async def test_what_is_learned_of_tokens_is_in_the_table_with_the_policys_priors() -> None:
    async with publishing() as published:
        before = await published.put(state_of("a"))
        learned = Calibrations({("llama", Category.CODE): Calibration(RatioEstimator(3.0, 2.5), samples=7)})
        published.learned = learned
        after = await published.put(state_of("a", "b"))
        assert before.table.calibrations == unlearned(CONFIGURED.estimation)
        assert after.table.calibrations.learned == learned.learned
        assert after.table.calibrations.priors == before.table.calibrations.priors
        assert TableReader().read(after.table_message).calibrations == after.table.calibrations
        assert after.table.version != before.table.version
