"""The agent's metrics: every series is there from the start, with labels of closed sets."""

from __future__ import annotations

import asyncio
import math
import sys

import httpx
from prometheus_client import CollectorRegistry, generate_latest

from controlplane import child
from controlplane.etcd.server import free_ports
from controlplane.model import NodeLoad
from node_agent.metrics import AgentMetrics
from support.engine import running_engine
from support.registry import running_registry
from support.waiting import until


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


async def test_the_command_serves_them_where_it_is_told() -> None:
    (port,) = free_ports(1)
    async with (
        running_engine() as engine,
        running_registry() as registry,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as prometheus,
    ):
        argv = [sys.executable, "-m", "headrace", "node", "--engine-url", engine.url, "--max-sequences", "8"]
        argv += ["--control-plane", registry.address, "--metrics", f"127.0.0.1:{port}"]
        process = await child.start(argv, stdout=asyncio.subprocess.DEVNULL)
        try:
            await until(lambda: registry.reports, 20)

            async def shown() -> bool:
                text = (await prometheus.get("/metrics")).text
                return "headrace_node_registered 1.0" in text and "process_cpu_seconds_total" in text

            await until(shown)
        finally:
            await child.stop(process, 10.0)
