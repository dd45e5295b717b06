"""A node that no agent speaks for: listed in a file, its load read from Prometheus, governed by it. Facts row:
signals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.engine import EngineShape, running_engine
from support.prometheus import running_prometheus
from support.system import FREE_PORTS, running_system
from support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = "test-model"
POOL = f"{MODEL}/full/short/on_demand"
QUERY = "max by (pod) (my_cache_use)"
POLICY = """
policy:
  tenants: {header: x-tenant, known: [{name: batch, qos_tier: best_effort}]}
  sla: {minimum_requests: 1000000}
  qos: {mode: enabled}
"""


async def test_pressure_of_an_agentless_node_comes_from_prometheus_and_missing_is_none(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.yaml"
    async with running_engine(EngineShape(model=MODEL)) as engine, running_prometheus() as prometheus:
        model = {"id": MODEL, "format": "bf16", "max_context": 4096, "max_sequences": 8}
        node = {"node_id": "lonely", "address": engine.url.removeprefix("http://"), "models": [model]}
        nodes.write_text(json.dumps([node]))
        prometheus.answers[QUERY] = [({"pod": "lonely"}, "0.1")]
        config = FREE_PORTS.replace("control_plane: {", f"control_plane: {{nodes_file: {nodes}, ") + POLICY
        asking = f"url: '{prometheus.url}', every: 0.2s, node_label: pod, kv_cache_use: '{QUERY}'"
        config += f"prometheus: {{{asking}, running: null, waiting: null}}\n"
        async with running_system(config) as system:
            await system.until_pools(POOL)
            body = {"model": MODEL, "messages": [{"role": "user", "content": "Go on"}], "max_tokens": 4}

            async def answers_with(status: int) -> bool:
                asked = await system.http.post("/v1/chat/completions", json=body, headers={"x-tenant": "batch"})
                return asked.status_code == status

            await until(lambda: answers_with(200))
            prometheus.answers[QUERY] = [({"pod": "lonely"}, "0.97")]
            await until(lambda: answers_with(429))
            shown = json.loads((await system.headrace("status", "--json")).out)
            assert (shown["prometheus"]["nodes"], shown["prometheus"]["trouble"]) == (1, "")
            prometheus.status = 500
            await until(lambda: answers_with(200))
            status = await system.headrace("status")
            assert "prometheus_unusable: loads that " in status.out
            assert f"of 0 nodes from {prometheus.url}: in trouble" in status.out
            assert "kv_cache_use" in status.out.partition("signals_missing")[2]
