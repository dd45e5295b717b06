"""What an operator is told to look at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controlplane.fleet import form_fleet
from controlplane.ledger.composition import Assessment, Composition
from controlplane.ledger.sla import SlaRate
from controlplane.messages import timestamp
from controlplane.model import NodeLoad, NodeSession, Override, Pressure, QosTier, TierPressure
from controlplane.policy.gain import Learned, LearnedGain
from controlplane.policy.qos import Mode, QosRules
from controlplane.policy.settings import ContextClass, Policy
from controlplane.policy.sla import Cause
from controlplane.policy.table import compile_table
from controlplane.status import Surroundings, summarise
from controlplane.view import View
from headrace_protos.headrace.v1 import calibration_pb2, fleet_pb2
from support.nodes import node

HAPPY = Surroundings(
    version="1.2.3",
    uptime_seconds=5.0,
    etcd_trouble=None,
    policy_fault=None,
    view_fault=None,
    snapshot_version="v2",
    envoys=(fleet_pb2.EnvoyStatus(node_id="e", acknowledged_version="v2"),),
    filter_workers=("host:1",),
    now=0.0,
)


def view_of(*node_ids: str, unhealthy: bool = False) -> View:
    sessions = {name: NodeSession(name, node(name), registered_at=0.0) for name in node_ids}
    loads = {name: NodeLoad(running=0, waiting=0, healthy=not unhealthy, reported_at=0.0) for name in node_ids}
    fleet = form_fleet(sessions.values(), loads, Policy(), now=0.0)
    table = compile_table("t", fleet.pools, Policy())
    return View(sessions, loads, fleet, table, fleet_pb2.RoutingTable(), policy_overridden=False)


def test_a_system_that_is_well_has_counts_and_no_conditions() -> None:
    status = summarise(view_of("a", "b"), HAPPY)
    assert (status.version, status.etcd, status.routing_table_version) == ("1.2.3", "connected", "t")
    assert (status.nodes, status.ready_nodes, status.pools) == (2, 2, 1)
    assert list(status.filter_workers) == ["host:1"]
    assert not status.conditions


@pytest.mark.parametrize(("learned", "silent", "is_told"), [(10, 80, False), (60, 55, False), (55, 60, True)])
def test_traffic_of_which_most_teaches_nothing_is_a_condition(learned: int, silent: int, is_told: bool) -> None:
    usage = (
        calibration_pb2.UsageCount(result="learned", requests=learned),
        calibration_pb2.UsageCount(result="no_usage", streamed=True, requests=silent),
        calibration_pb2.UsageCount(result="failed", requests=1000),
    )
    status = summarise(view_of("a"), replace(HAPPY, usage=usage))
    assert tuple(status.usage) == usage
    assert [condition.name for condition in status.conditions] == (["usage_missing"] if is_told else [])
    assert all("52% of 115 answered requests" in condition.message for condition in status.conditions)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"etcd_trouble": "no answer"}, ["etcd_unreachable"]),
        ({"policy_fault": "line 1: bad"}, ["policy_unreadable"]),
        ({"view_fault": "ValueError: bad"}, ["fleet_not_published"]),
        ({"envoys": ()}, ["no_envoy"]),
        ({"filter_workers": ()}, ["no_filter"]),
    ],
)
def test_each_trouble_is_a_condition(change: dict[str, Any], names: list[str]) -> None:
    status = summarise(view_of("a"), replace(HAPPY, **change))
    assert [condition.name for condition in status.conditions] == names
    trouble = next(iter(change.values()))
    if isinstance(trouble, str):
        assert trouble in status.conditions[0].message


def test_that_sensitive_requests_have_only_the_quantized_tier_is_a_condition() -> None:
    def names(*formats: str, unready_full: bool = False) -> list[str]:
        sessions = {f: NodeSession(f, node(f, format=f), registered_at=0.0) for f in formats}
        loads = {f: NodeLoad(0, 0, healthy=f != "fp16" or not unready_full, reported_at=0.0) for f in formats}
        fleet = form_fleet(sessions.values(), loads, Policy(), now=0.0)
        table = compile_table("t", fleet.pools, Policy())
        view = View(sessions, loads, fleet, table, fleet_pb2.RoutingTable(), policy_overridden=False)
        return [condition.name for condition in summarise(view, HAPPY).conditions]

    assert not names("fp16", "int4-awq")
    assert names("int4-awq") == ["sensitive_on_quantized"]
    assert "sensitive_on_quantized" in names("fp16", "int4-awq", unready_full=True)
    assert "sensitive_on_quantized" not in names("fp16", unready_full=True)


def test_a_session_store_that_workers_cannot_reach_is_a_condition() -> None:
    workers = (
        fleet_pb2.WorkerStatus(worker_id="a", session_store="redis://s:6379"),
        fleet_pb2.WorkerStatus(worker_id="b", session_store="redis://s:6379", session_store_trouble="refused"),
    )
    assert not summarise(view_of("a"), replace(HAPPY, workers=workers[:1])).conditions
    status = summarise(view_of("a"), replace(HAPPY, workers=workers))
    (condition,) = status.conditions
    assert condition.name == "session_store_unreachable"
    assert condition.message.startswith("1 of 2 filter workers cannot reach the session store: refused. ")
    assert list(status.workers) == list(workers)


def test_decisions_that_never_reached_the_ledger_are_a_condition_for_an_hour() -> None:
    ledger = fleet_pb2.LedgerStatus(store="sqlite:///x")
    missing = fleet_pb2.Unrecorded(decisions=7, overdue=5, last_overdue=timestamp(60.0))
    around = replace(HAPPY, ledger=ledger, unrecorded=missing, now=3600.0)
    status = summarise(view_of("a"), around)
    assert status.ledger.unrecorded == missing
    (condition,) = status.conditions
    assert condition.name == "decisions_unrecorded"
    assert condition.message.startswith("5 decisions of the last day never reached a control plane")
    assert not summarise(view_of("a"), replace(around, now=3661.0)).conditions
    under_way = fleet_pb2.Unrecorded(decisions=2)
    assert not summarise(view_of("a"), replace(around, unrecorded=under_way)).conditions


def test_a_refused_update_is_a_condition_until_the_envoy_holds_what_it_should() -> None:
    envoy = fleet_pb2.EnvoyStatus(
        node_id="e", acknowledged_version="v1", rejected_updates=2, last_rejection="no such filter"
    )
    (condition,) = summarise(view_of("a"), replace(HAPPY, envoys=(envoy,))).conditions
    assert condition.name == "xds_update_rejected"
    assert "no such filter" in condition.message
    envoy.acknowledged_version = "v2"
    assert not summarise(view_of("a"), replace(HAPPY, envoys=(envoy,))).conditions


def test_each_override_is_a_condition_with_the_time_it_has_left() -> None:
    view = view_of("a")
    overrides = {"full": Override(600.0, waiting=100, kv_cache_use=0.5), "gone": Override(61.0, running=0)}
    view = replace(view, fleet=replace(view.fleet, overrides=overrides))
    conditions = summarise(view, replace(HAPPY, now=1.0)).conditions
    assert [(c.name, c.message.partition(";")[0]) for c in conditions] == [
        (
            "override_active",
            "full: requests are led by waiting 100, kv_cache_use 0.5 and not by what is measured, for 599 s more",
        ),
        ("override_active", "gone: requests are led by running 0 and not by what is measured, for 60 s more"),
    ]


def test_an_empty_fleet_and_a_pool_without_a_ready_node_are_conditions() -> None:
    assert [c.name for c in summarise(view_of(), HAPPY).conditions] == ["no_nodes"]
    (condition,) = summarise(view_of("a", unhealthy=True), HAPPY).conditions
    assert condition.name == "pool_without_ready_node"
    assert condition.message.startswith("llama/full/short/on_demand: none of its 1 nodes")


def test_a_pool_whose_nodes_hold_unlike_contexts_is_a_condition_that_says_what_to_configure() -> None:
    wide = node("b", "10.0.0.2:8000")
    wide = replace(wide, models=(replace(wide.models[0], max_context=32_768),))
    sessions = {spec.node_id: NodeSession(spec.node_id, spec, registered_at=0.0) for spec in (node("a"), wide)}
    for classes, names in (
        ((ContextClass("all"),), ["context_class_too_wide"]),
        ((ContextClass("short", 8192), ContextClass("long")), []),
    ):
        policy = Policy(context_classes=classes)
        fleet = form_fleet(sessions.values(), {}, policy, now=0.0)
        table = compile_table("t", fleet.pools, policy)
        view = View(sessions, {}, fleet, table, fleet_pb2.RoutingTable(), policy_overridden=False)
        conditions = summarise(view, HAPPY).conditions
        assert [condition.name for condition in conditions] == names
        assert all("8192 to 32768 tokens" in c.message and "max_context: 8192}" in c.message for c in conditions)


def test_nodes_whose_streams_teach_nothing_are_named() -> None:
    view = view_of("a", "b", "c", "d")
    for name, told in (("a", False), ("b", True), ("c", None), ("d", False)):
        view.loads[name] = replace(view.loads[name], streams_usage=told)
    assert list(summarise(view, HAPPY).silent_nodes) == ["a", "d"]


def test_facts_limit_too_much_traffic_that_needs_full_nodes_is_a_condition_with_its_numbers() -> None:
    composition = Composition(900, sensitive=80, neutral=15, tolerant=5, needing_full=80)
    calm = summarise(view_of("a"), replace(HAPPY, assessment=Assessment(composition, is_trouble=False, changed=True)))
    assert not calm.conditions
    assert (calm.composition.requests, calm.composition.sensitive, calm.composition.neutral) == (100, 80, 15)
    assert (calm.composition.needing_full, calm.composition.window_seconds) == (80, 900)
    status = summarise(view_of("a"), replace(HAPPY, assessment=Assessment(composition, is_trouble=True, changed=False)))
    (condition,) = status.conditions
    assert condition.name == "fleet_composition"
    assert "judge less eagerly" in condition.message
    assert "more full nodes" in condition.message


def test_without_classified_requests_the_traffic_is_not_said() -> None:
    assert not summarise(view_of("a"), HAPPY).HasField("composition")
    none = Assessment(Composition(900), is_trouble=False, changed=False)
    assert not summarise(view_of("a"), replace(HAPPY, assessment=none)).HasField("composition")


def test_facts_hardware_gains_are_shown_with_where_they_are_from() -> None:
    spec = replace(node("q", format="int4-awq"), hardware_class="rtx-4090")
    sessions = {"q": NodeSession("q", spec, registered_at=0.0)}
    for learned, expected in (
        (Learned(), fleet_pb2.Gain(gain=1.4)),
        (Learned({("llama", "rtx-4090"): LearnedGain(None, 20.0)}), fleet_pb2.Gain(gain=1.4, comparable_seconds=20.0)),
        (
            Learned({("llama", "rtx-4090"): LearnedGain(1.05, 900.0)}),
            fleet_pb2.Gain(gain=1.05, learned=True, comparable_seconds=900.0),
        ),
    ):
        fleet = form_fleet(sessions.values(), {}, Policy(), 0.0, learned=learned)
        table = compile_table("t", fleet.pools, Policy())
        view = View(sessions, {}, fleet, table, fleet_pb2.RoutingTable(), policy_overridden=False)
        expected.MergeFrom(fleet_pb2.Gain(model="llama", hardware_class="rtx-4090", prior=1.4))
        assert list(summarise(view, HAPPY).gains) == [expected]
    assert not summarise(view_of("a"), HAPPY).gains


def test_before_the_first_view_there_is_a_status_too() -> None:
    status = summarise(None, replace(HAPPY, etcd_trouble="connection refused", snapshot_version=""))
    assert (status.nodes, status.routing_table_version) == (0, "")
    assert [condition.name for condition in status.conditions] == ["etcd_unreachable"]


def test_a_ledger_that_is_away_or_incomplete_is_a_condition() -> None:
    ledger = fleet_pb2.LedgerStatus(store="sqlite:///x", trouble="disk full", waiting=3, lost={"queue_full": 5})
    ledger.last_loss.FromSeconds(100)
    shown = summarise(None, replace(HAPPY, ledger=ledger, now=200.0))
    told = {condition.name: condition.message for condition in shown.conditions}
    assert told["ledger_unreachable"] == "sqlite:///x cannot be written, 3 decisions wait for it: disk full"
    assert "5 queue_full" in told["ledger_incomplete"]
    assert shown.ledger == ledger
    ledger.trouble = ""
    later = summarise(None, replace(HAPPY, ledger=ledger, now=5000.0))
    assert not [condition for condition in later.conditions if condition.name.startswith("ledger")]


def test_rates_of_violations_are_shown_of_the_fleet_first_and_the_best_tier_first() -> None:
    guaranteed, best_effort = QosTier.GUARANTEED, QosTier.BEST_EFFORT
    rates = {
        ("pool", best_effort): SlaRate(None, met=1),
        ("pool", guaranteed): SlaRate(0.5, 5, 5, 3, 2, ((Cause.CLIENT_ERROR, 2), (Cause.WHOLE, 5))),
        ("", best_effort): SlaRate(0.0, met=20),
    }
    shown = summarise(view_of("a"), replace(HAPPY, sla=rates)).sla
    assert [(rate.pool, rate.qos_tier) for rate in shown] == [
        ("", "best_effort"),
        ("pool", "guaranteed"),
        ("pool", "best_effort"),
    ]
    assert shown[1] == fleet_pb2.SlaRate(
        pool="pool",
        qos_tier="guaranteed",
        violation_rate=0.5,
        met=5,
        violated=5,
        rejected=3,
        not_counted=2,
        causes={"client_error": 2, "whole": 5},
    )
    assert shown[0].HasField("violation_rate")
    assert not shown[2].HasField("violation_rate")


def test_pressure_is_told_where_tiers_are_governed_and_a_dry_run_says_that_it_is_one() -> None:
    view = view_of("a")
    pressures = (TierPressure(QosTier.STANDARD, Pressure.CRITICAL, 1.0, "kv_cache_use"),)
    (pool,) = view.fleet.pools
    pools = (replace(pool, pressures=pressures, missing_signals=("waiting_per_node",)),)
    fleet = replace(view.fleet, pools=pools, pressures=pressures)

    def names(mode: Mode) -> list[str]:
        table = compile_table("t", pools, Policy(qos=QosRules(mode=mode)))
        status = summarise(replace(view, fleet=fleet, table=table), HAPPY)
        assert status.qos_mode == mode
        assert [(found.qos_tier, found.state) for found in status.fleet_pressures] == [("standard", "critical")]
        return [condition.name for condition in status.conditions]

    assert names(Mode.DISABLED) == []
    assert names(Mode.ENABLED) == ["signals_missing", "pressure_critical"]
    assert names(Mode.DRY_RUN) == ["qos_dry_run", "signals_missing", "pressure_critical"]
