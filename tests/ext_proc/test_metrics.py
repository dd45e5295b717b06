"""The filter's metrics: nothing is left of pools that are gone."""

from __future__ import annotations

from msgspec import structs
from prometheus_client import CollectorRegistry, generate_latest

from controlplane.model import Action, QosTier, Reason, WouldDo
from controlplane.policy.decide import decide
from ext_proc.metrics import FilterMetrics
from support.asks import make_chat, make_pool, make_table

FULL, QUANTIZED = make_pool("full"), make_pool("quantized")


def test_series_of_a_pool_end_when_a_table_no_longer_has_it_also_late_ones() -> None:
    registry = CollectorRegistry()
    metrics = FilterMetrics(registry)
    decision = decide(make_chat("hello"), make_table(FULL), None)
    assert decision.pool == FULL
    metrics.table_received([FULL, QUANTIZED], at=1.0)
    metrics.decided(decision, 0.001)
    assert f'pool="{FULL.name}"'.encode() in generate_latest(registry)
    metrics.table_received([FULL], at=2.0)
    assert f'pool="{FULL.name}"'.encode() in generate_latest(registry)
    metrics.table_received([QUANTIZED], at=3.0)
    assert FULL.name.encode() not in generate_latest(registry)
    metrics.decided(decision, 0.001)  # was begun by the former table
    metrics.table_received([QUANTIZED], at=4.0)
    assert FULL.name.encode() not in generate_latest(registry)
    assert registry.get_sample_value("headrace_routing_table_pools") == 1
    assert registry.get_sample_value("headrace_routing_table_ready_nodes") == QUANTIZED.ready_nodes > 0
    assert registry.get_sample_value("headrace_routing_table_received_timestamp_seconds") == 4.0


def test_actions_are_counted_by_tier_and_in_a_dry_run_by_what_would_have_been_done() -> None:
    registry = CollectorRegistry()
    metrics = FilterMetrics(registry)
    decision = structs.replace(decide(make_chat("hello"), make_table(FULL), None), qos_tier=QosTier.BEST_EFFORT)
    metrics.decided(decision, 0.001)
    metrics.decided(structs.replace(decision, would_do=WouldDo(Action.REJECT, (Reason.OVERLOADED,))), 0.001)
    labels = {"qos_tier": "best_effort", "action": "pass"}
    assert registry.get_sample_value("headrace_qos_actions_total", {**labels, "would_do": "none"}) == 1
    assert registry.get_sample_value("headrace_qos_actions_total", {**labels, "would_do": "reject"}) == 1
