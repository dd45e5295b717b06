"""Whether tiers get what they are promised, as real Envoy measures it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from headrace_protos.headrace.v1 import decision_pb2, fleet_pb2
from support.engine import EngineShape, running_engine
from support.system import FREE_PORTS, RunningSystem, running_system
from support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

POOL = "m/full/short/on_demand"
# A prompt of 2000 tokens takes two seconds to be read, and each token of the answer 20 ms.
SLOW_READER = EngineShape(model="m", prefill_rate=1000.0, decode_rate=50.0, time_scale=1.0)
CONFIG = (
    FREE_PORTS
    + """
policy:
  tenants:
    header: x-tenant
    known: [{name: gold, qos_tier: guaranteed}]
  sla:
    guaranteed: {first_token_ms: 1000}
    standard: {first_token_ms: null, output_token_ms: null}
    window_seconds: 600
    minimum_requests: 2
    stale_seconds: 600
"""
)


def chat(prompt_tokens: int, **more: object) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": "x" * 4 * prompt_tokens}], "max_tokens": 4, **more}


async def send(system: RunningSystem, tenant: str, body: dict[str, object]) -> decision_pb2.RecordedDecision:
    response = await system.http.post("/v1/chat/completions", json=body, headers={"x-tenant": tenant})
    return await system.recorded(response)


async def slowly(body: bytes, seconds: float) -> AsyncIterator[bytes]:
    yield body[:10]
    await asyncio.sleep(seconds)  # the client's own slowness is what is tested
    yield body[10:]


async def test_a_first_token_is_measured_and_not_the_headers_before_it_nor_the_clients_own_slowness() -> None:
    async with (
        running_engine(SLOW_READER) as engine,
        running_system(CONFIG) as system,
        system.node(engine.url, "n", "--max-sequences", "4", "--format", "fp16"),
    ):
        await system.until_pools(POOL)
        late = await send(system, "gold", chat(2000, stream=True))
        assert late.decision.qos_tier == "guaranteed"
        assert late.outcome.first_byte_seconds < 1.0
        assert late.outcome.first_content_seconds - late.outcome.received_seconds >= 2.0
        assert late.outcome.last_byte_seconds >= late.outcome.first_content_seconds
        await send(system, "another", chat(2000, stream=True))

        response = await system.http.post(
            "/v1/chat/completions",
            content=slowly(json.dumps(chat(10, stream=True)).encode(), 2.0),
            headers={"x-tenant": "gold", "content-type": "application/json"},
        )
        patient = await system.recorded(response)
        assert patient.outcome.received_seconds >= 2.0
        assert patient.outcome.first_content_seconds - patient.outcome.received_seconds < 1.0

        rates = {rate.qos_tier: rate for rate in await sla_of(system, "")}
        assert (rates["guaranteed"].met, rates["guaranteed"].violated) == (1, 1)
        assert rates["guaranteed"].violation_rate == 0.5
        assert dict(rates["guaranteed"].causes) == {"first_token": 1}
        assert (rates["standard"].met, rates["standard"].HasField("violation_rate")) == (1, False)
        assert [rate.qos_tier for rate in await sla_of(system, POOL)] == ["guaranteed", "standard"]

        async def shown() -> bool:
            async with httpx.AsyncClient(trust_env=False) as client:
                text = (await client.get(f"http://{system.addresses['metrics']}/metrics")).text
            return f'headrace_sla_violation_rate{{pool="{POOL}",qos_tier="guaranteed"}} 0.5' in text

        await until(shown)
        assert "guaranteed: 50.0% of 2 violated (1 first_token)" in (await system.headrace("status")).out


async def sla_of(system: RunningSystem, pool: str) -> list[fleet_pb2.SlaRate]:
    status = await system.fleet.GetStatus(fleet_pb2.GetStatusRequest())
    return [rate for rate in status.sla if rate.pool == pool]
