"""A drill: an operator has a pool taken for loaded, and requests go elsewhere until it is over."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from e2e.conftest import rejections
from support.engine import EngineShape, running_engine
from support.system import RunningSystem, running_system
from support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = "test-model"
FLAGS = ("--max-sequences", "8")  # what vLLM does not tell
FULL = f"{MODEL}/full/short/on_demand"
QUANTIZED = f"{MODEL}/quantized/short/on_demand"
NEUTRAL = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Go on"}],
    "temperature": 0.5,
    "max_tokens": 2,
}


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def system() -> AsyncIterator[RunningSystem]:
    """With one node of either tier."""
    async with (
        running_engine(EngineShape(model=MODEL)) as full,
        running_engine(EngineShape(model=MODEL)) as quantized,
        running_system() as running,
        running.node(full.url, "full", *FLAGS, "--format", "fp16"),
        running.node(quantized.url, "quantized", *FLAGS, "--format", "int4-awq"),
    ):
        await running.until_pools(FULL, QUANTIZED)
        yield running
        assert await rejections(running.addresses["envoy_admin"]) == []


async def until_sent_to(system: RunningSystem, pool: str) -> list[str]:
    """Sends neutral requests until one goes to `pool`, and returns that one's reasons."""

    async def reasons() -> list[str] | None:
        response = await system.http.post("/v1/chat/completions", json=NEUTRAL)
        if response.headers.get("x-headrace-pool") != pool:
            return None
        return list((await system.recorded(response)).decision.reasons)

    found: list[str] = await until(reasons, 30)
    return found


async def succeeds(system: RunningSystem, *arguments: str) -> str:
    ended = await system.headrace(*arguments)
    assert ended.status == 0, ended.err
    return ended.out


async def test_requests_spill_while_an_override_says_that_a_pool_is_loaded(system: RunningSystem) -> None:
    assert await until_sent_to(system, FULL) == ["neutral_prefers_full"]

    signals = ("--waiting", "100", "--sla-violation-rate", "0.4")
    told = await succeeds(system, "override", "set", FULL, *signals, "--for", "10m")
    assert told.startswith(f"the load of {FULL} is overridden until ")
    assert await until_sent_to(system, QUANTIZED) == ["neutral_prefers_full", "spilled_under_load"]

    (override,) = json.loads(await succeeds(system, "override", "list", "--json"))["overrides"]
    assert (override["pool"], override["waiting"], override["sla_violation_rate"]) == (FULL, 100, 0.4)
    assert 0 < override["seconds_left"] <= 600
    assert "running" not in override
    assert FULL in await succeeds(system, "override", "list")
    assert "100 OVERRIDDEN" in await succeeds(system, "pools")
    assert "spilled_under_load OVERRIDDEN" in await succeeds(system, "decisions")
    assert f"override_active: {FULL}: requests are led by waiting 100, sla_violation_rate 0.4 and" in await succeeds(
        system, "status"
    )

    assert await succeeds(system, "override", "clear", FULL) == f"the load of {FULL} is the measured one again\n"
    assert await until_sent_to(system, FULL) == ["neutral_prefers_full"]
    assert "OVERRIDDEN" not in await succeeds(system, "pools")


async def test_an_override_outlasts_its_control_plane_and_ends_by_itself(system: RunningSystem) -> None:
    """Facts row: surface (overrides for drills)."""
    await succeeds(system, "override", "set", FULL, "--kv-cache-use", "1", "--for", "10m")
    await until_sent_to(system, QUANTIZED)
    await system.kill("controlplane")

    async def still_overridden() -> bool:
        listed = await system.headrace("override", "list")
        return listed.status == 0 and FULL in listed.out

    await until(still_overridden, 30)
    await system.until_pools(FULL, QUANTIZED)
    await until_sent_to(system, QUANTIZED)
    await succeeds(system, "override", "set", FULL, "--kv-cache-use", "1", "--for", "2s")
    assert await until_sent_to(system, FULL) == ["neutral_prefers_full"]


async def test_what_cannot_be_overridden_is_told(system: RunningSystem) -> None:
    await system.until_pools(FULL, QUANTIZED)
    ended = await system.headrace("override", "set", "nowhere", "--waiting", "1", "--for", "10m")
    assert (ended.status, ended.err) == (1, f"error: there is no pool 'nowhere'; there are: {FULL}, {QUANTIZED}\n")
    ended = await system.headrace("override", "set", FULL, "--for", "2d")
    assert ended.status == 1
    assert ended.err.splitlines() == [
        "error: no signal is given; give at least one of waiting, running, kv_cache_use, sla_violation_rate",
        "duration_seconds: 172800 is not more than 0 and at most 86400",
    ]
