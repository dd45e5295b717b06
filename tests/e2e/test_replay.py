"""`headrace replay` on what a real system recorded under one policy, against another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.engine import EngineShape, running_engine
from support.system import FREE_PORTS, running_system
from support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = "test-model"
POOL = f"{MODEL}/full/short/on_demand"
TENANTS = "tenants: {header: x-tenant, known: [{name: batch, qos_tier: best_effort}, {name: chat}]}"
CALM = "sla: {minimum_requests: 1000000}"
DRY_RUN = FREE_PORTS + f"policy: {{{TENANTS}, {CALM}, qos: {{mode: dry_run}}}}\n"


async def test_what_a_dry_run_recorded_says_whom_governance_would_turn_away(tmp_path: Path) -> None:
    enabled, same, picture = tmp_path / "enabled.yaml", tmp_path / "same.yaml", tmp_path / "replay.png"
    enabled.write_text(f"{TENANTS}\n{CALM}\nqos: {{mode: enabled}}\n")
    async with (
        running_engine(EngineShape(model=MODEL)) as engine,
        running_system(DRY_RUN) as system,
        system.node(engine.url, "node", "--format", "fp16", "--max-sequences", "8"),
    ):
        await system.until_pools(POOL)
        drill = await system.headrace("override", "set", POOL, "--kv-cache-use", "0.8", "--for", "5m")
        assert drill.status == 0, drill.err
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Go on"}], "temperature": 0.5, "max_tokens": 4}

        async def pressed() -> bool:
            response = await system.http.post("/v1/chat/completions", json=body, headers={"x-tenant": "batch"})
            return (await system.recorded(response)).decision.would_do.action == "reject"

        await until(pressed, 30)
        since = (await system.headrace("decisions", "--json", "-n", "1")).out
        first = json.loads(since)["decisions"][0]["recorded"]
        for tenant in ("batch", "chat"):
            response = await system.http.post("/v1/chat/completions", json=body, headers={"x-tenant": tenant})
            assert response.status_code == 200
            await system.recorded(response)

        same.write_text((await system.headrace("policy", "get")).out)
        unchanged = await system.headrace("replay", str(same), "--json")
        assert unchanged.status == 0, unchanged.err
        overall = json.loads(unchanged.out)["overall"]
        assert overall["would_change"] == 0
        # Requests before the filter knew a pool are outside.
        assert overall["standings"]["certain"] >= 3
        assert overall["standings"]["unknown"] == overall["standings"]["likely"] == 0

        ended = await system.headrace("replay", str(enabled), "--since", first, "--json", "--png", str(picture))
        assert ended.status == 0, ended.err
        found = {group["name"]: group for group in json.loads(ended.out)["tenants"]}
        assert found["name:batch"]["actions"] == [{"from": "pass", "to": "reject", "requests": 2}]
        assert found["name:batch"]["standings"]["certain"] == 2
        assert found["name:batch"]["tokens"]["rejected"] > 0
        assert found["name:chat"]["actions"] == [{"from": "pass", "to": "pass", "requests": 1}]
        assert picture.read_bytes().startswith(b"\x89PNG")

        decisions = await system.headrace("decisions", "--json", "--tenant", "batch", "--since", first)
    file = tmp_path / "decisions.json"
    file.write_text(decisions.out)
    # With --from and --under nobody is asked.
    offline = await system.headrace("replay", str(enabled), "--from", str(file), "--under", str(same))
    assert offline.status == 0, offline.err
    assert "2 of 2 requests would change, 2 of them for certain" in offline.out
