"""The agent's metrics: every series is there from the start, with labels of closed sets."""

from __future__ import annotations

import math

from prometheus_client import CollectorRegistry, generate_latest

from controlplane.model import NodeLoad
from node_agent.metrics import AgentMetrics


def test_before_anything_happens_every_series_is_there() -> None:
    registry = CollectorRegistry()
    AgentMetrics(registry, lambda: 0.0)
    text = generate_latest(registry).decode()
    shown = {line for line in text.splitlines() if not line.startswith("#") and "_created" not in line}
    assert shown == {
        "headrace_node_registered 0.0",
        'headrace_node_registrations_total{result="ok"} 0.0',
        'headrace_node_registrations_total{result="refused"} 0.0',
        'headrace_node_registrations_total{result="unavailable"} 0.0',
        'headrace_node_heartbeats_total{result="ok"} 0.0',
        'headrace_node_heartbeats_total{result="session_lost"} 0.0',
        'headrace_node_heartbeats_total{result="refused"} 0.0',
        'headrace_node_heartbeats_total{result="unavailable"} 0.0',
        "headrace_node_heartbeat_acknowledged_timestamp_seconds 0.0",
        "headrace_node_engine_healthy 0.0",
        "headrace_node_running 0.0",
        "headrace_node_waiting 0.0",
        "headrace_node_kv_cache_use NaN",
    }


def test_a_kv_cache_of_unknown_use_is_not_an_empty_one() -> None:
    registry = CollectorRegistry()
    metrics = AgentMetrics(registry, lambda: 0.0)
    metrics.reading(NodeLoad(running=0, waiting=0, kv_cache_use=0.25))
    assert registry.get_sample_value("headrace_node_kv_cache_use") == 0.25
    metrics.reading(NodeLoad(running=0, waiting=0))
    assert math.isnan(registry.get_sample_value("headrace_node_kv_cache_use") or 0.0)


def test_only_an_acknowledged_heartbeat_moves_the_timestamp() -> None:
    now = 100.0
    registry = CollectorRegistry()
    metrics = AgentMetrics(registry, lambda: now)
    metrics.heartbeat("ok")
    now = 200.0
    metrics.heartbeat("unavailable")
    metrics.heartbeat("session_lost")
    assert registry.get_sample_value("headrace_node_heartbeat_acknowledged_timestamp_seconds") == 100.0
