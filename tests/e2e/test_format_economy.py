"""What quantized formats gain, and what the traffic consists of, on a whole system. Facts rows: hardware, limit."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from support.engine import EngineShape, running_engine
from support.system import FREE_PORTS, RunningSystem, running_system
from support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = "test-model"
FULL, QUANTIZED = f"{MODEL}/full/short/on_demand", f"{MODEL}/quantized/short/on_demand"
CODE = {"model": MODEL, "temperature": 0, "messages": [{"role": "user", "content": "Write Python code."}]}
STORY = {"model": MODEL, "temperature": 0.9, "messages": [{"role": "user", "content": "Tell a story of a dragon."}]}
# As many as the test sends: nothing is said before the ledger has all of them.
SOON = "policy: {composition: {minimum_requests: 10}}\n"


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def system() -> AsyncIterator[RunningSystem]:
    async with (
        running_system(FREE_PORTS + SOON) as system,
        running_engine(EngineShape(model=MODEL)) as full,
        running_engine(EngineShape(model=MODEL)) as quantized,
        system.node(full.url, "full", "--max-sequences", "8", "--format", "fp16"),
        system.node(
            quantized.url, "quantized", "--max-sequences", "8", "--format", "int4-awq", "--hardware-class", "rtx-4090"
        ),
    ):
        await system.until_pools(FULL, QUANTIZED)
        yield system


async def ask(system: RunningSystem, body: dict[str, Any]) -> httpx.Response:
    response = await system.http.post("/v1/chat/completions", json=body)
    assert response.status_code == 200
    return response


async def status_of(system: RunningSystem) -> dict[str, Any]:
    end = await system.headrace("status", "--json")
    assert end.status == 0, end.err
    status: dict[str, Any] = json.loads(end.out)
    return status


async def until_conditions(system: RunningSystem, *names: str) -> dict[str, Any]:
    async def shown() -> dict[str, Any] | None:
        status = await status_of(system)
        return status if [condition["name"] for condition in status["conditions"]] == list(names) else None

    found: dict[str, Any] = await until(shown, 30)
    return found


async def metrics_with(system: RunningSystem, line: str) -> str | None:
    """The control plane's, once they have this; it looks at the composition by itself, not when status is asked for."""
    text = (await system.http.get(f"http://{system.addresses['metrics']}/metrics")).text
    return text if line in text else None


async def test_traffic_that_needs_full_nodes_is_said_in_status_metric_and_log_once_and_ends(
    system: RunningSystem,
) -> None:
    for body in [CODE] * 9 + [STORY]:
        await ask(system, body)
    status = await until_conditions(system, "fleet_composition")
    assert status["composition"]["requests"] == "10"
    assert status["composition"]["needing_full"] == "9"
    message = status["conditions"][0]["message"]
    assert message.startswith("90% of the 10 classified requests of the last 15 min need the full tier")
    assert "Either judge less eagerly" in message
    assert "Or have more full nodes: of 2 ready nodes there are 1 full" in message

    told = (await system.headrace("status")).out
    assert (
        "traffic         10 requests in 15 min: 90% sensitive, 0% neutral, 10% tolerant; 90% need the full tier" in told
    )
    assert "fleet_composition: 90% of the 10" in told
    metrics = await until(lambda: metrics_with(system, "headrace_fleet_composition_trouble 1.0"))
    assert 'headrace_window_share{verdict="sensitive"} 0.9' in metrics
    assert 'headrace_quantized_gain{hardware_class="rtx-4090",model="test-model",source="prior"} 1.4' in metrics

    for _ in range(5):
        await ask(system, STORY)
    await until_conditions(system)
    await until(lambda: "fleet composition: well again" in system.log("control-plane"))
    log = system.log("control-plane")
    assert log.count("fleet composition: 90% of the") == 1
    assert log.count("fleet composition: well again") == 1


async def test_a_gain_of_the_policy_leads_tolerant_requests_at_once(system: RunningSystem) -> None:
    def explained(end: str) -> dict[str, Any]:
        decision: dict[str, Any] = json.loads(end)
        return decision

    assert (await ask(system, STORY)).headers["x-headrace-pool"] == QUANTIZED
    gains = (await status_of(system))["gains"]
    assert [(gain["hardware_class"], gain["gain"], gain["learned"]) for gain in gains] == [("rtx-4090", 1.4, False)]
    said = explained((await system.headrace("explain", "--json", stdin=json.dumps(STORY).encode())).out)
    assert any(f"a gain below 1.1 by quantized formats would send it to {FULL}" in s for s in said["would_change"])

    policy = system.folder / "policy.yaml"
    policy.write_text("gain: {priors: [{hardware_class: rtx-4090, gain: 1.0}]}\n")
    assert (await system.headrace("policy", "set", str(policy))).status == 0

    async def goes_full() -> bool:
        return (await ask(system, STORY)).headers["x-headrace-pool"] == FULL

    await until(goes_full, 30)
    said = explained((await system.headrace("explain", "--json", stdin=json.dumps(STORY).encode())).out)
    assert said["reasons"] == ["tolerant_gains_too_little"]
    assert (await ask(system, CODE)).headers["x-headrace-pool"] == FULL
    assert (await system.headrace("policy", "reset")).status == 0
