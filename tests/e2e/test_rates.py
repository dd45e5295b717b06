"""Rates behind a real Envoy: OpenAI's headers, 429, charges that real usage puts right, and workers that share them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from e2e.conftest import rejections
from support.engine import EngineShape, running_engine
from support.redis_server import running_redis
from support.system import FREE_PORTS, START_SECONDS, RunningSystem, running_system
from support.waiting import until

SECONDS = 30.0
MODEL = "llama"
POLICY = "policy: {tenants: {header: x-tenant, known: [{name: acme, RATES}]}}\n"


def chat(**more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": "Hello."}], **more}


@asynccontextmanager
async def running_world(config: str) -> AsyncIterator[RunningSystem]:
    async with (
        running_engine(EngineShape(model=MODEL, max_num_seqs=256)) as engine,
        running_system(config) as system,
        system.node(engine.url, "n", "--model", MODEL, "--format", "bf16", "--max-sequences", "256"),
    ):

        async def flows() -> bool:
            """Through each of the filter's workers."""
            return all([(await send(system, chat(), tenant="other")).status_code == 200 for _ in range(4)])

        await until(flows, START_SECONDS)
        yield system
        assert await rejections(system.addresses["envoy_admin"]) == []


async def send(system: RunningSystem, body: dict[str, Any], tenant: str = "acme") -> httpx.Response:
    return await system.http.post("/v1/chat/completions", json=body, headers={"x-tenant": tenant})


def left(response: httpx.Response) -> int:
    return int(response.headers["x-ratelimit-remaining-tokens"])


async def test_a_tenant_has_its_rate_and_gets_back_what_it_did_not_use() -> None:
    async with running_world(
        FREE_PORTS + POLICY.replace("RATES", "requests_per_minute: 1000, tokens_per_minute: 10000")
    ) as system:
        answer = await send(system, chat(max_tokens=1000, metadata={"stop_after": 16}))
        assert answer.status_code == 200
        assert answer.headers["x-ratelimit-limit-requests"] == "1000"
        assert answer.headers["x-ratelimit-remaining-requests"] == "999"
        assert answer.headers["x-ratelimit-reset-requests"] == "60ms"
        assert answer.headers["x-ratelimit-limit-tokens"] == "10000"
        # The answer may have 1000 tokens. It has 16, and the access log says so. Without a cap it would be
        # charged what answers were learned to have, which the answers before this one have lowered.
        assert 8900 < left(answer) < 9000
        assert answer.json()["usage"]["completion_tokens"] == 16

        async def corrected() -> bool:
            return left(await send(system, chat(max_tokens=1))) > 9500

        await until(corrected, SECONDS)
        assert "x-ratelimit-limit-tokens" not in (await send(system, chat(), tenant="other")).headers

        refused = await send(system, chat(max_tokens=50_000))
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert refused.headers["x-ratelimit-limit-tokens"] == "10000"
        assert "retry-after" not in refused.headers

        for _ in range(20):  # whose usage nobody tells
            answer = await send(system, chat(stream=True, max_tokens=1000, metadata={"stop_after": 16}))
            if answer.status_code != 200:
                break
        assert answer.status_code == 429
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert (await system.recorded(answer)).decision.reasons[0] == "rate_limited"
        assert (await send(system, chat(), tenant="other")).status_code == 200


async def test_a_rate_that_comes_with_a_new_policy_is_told_too() -> None:
    async with running_world(FREE_PORTS) as system:
        file = system.folder / "policy.yaml"
        file.write_text("tenants: {header: x-tenant, requests_per_minute: 1000}")
        assert (await system.headrace("policy", "set", str(file))).status == 0

        async def is_told() -> bool:
            return (await send(system, chat())).headers.get("x-ratelimit-limit-requests") == "1000"

        await until(is_told, SECONDS)


async def test_workers_share_a_rate_and_admit_all_while_their_store_is_away() -> None:
    async with running_redis() as server:
        store = f'ext_proc: {{workers: 2, session_store: {{url: "{server.url}"}}, '
        policy = POLICY.replace("RATES", "requests_per_minute: 6")
        async with running_world(FREE_PORTS.replace("ext_proc: {", store) + policy) as system:
            answers = await asyncio.gather(*(send(system, chat()) for _ in range(20)))
            admitted = sum(answer.status_code == 200 for answer in answers)
            # One more for each 10 s that this took.
            assert 6 <= admitted <= 8, [answer.text for answer in answers[:3]]
            assert all(answer.status_code in {200, 429} for answer in answers)

            await server.kill()

            async def all_admitted() -> bool:
                return all([(await send(system, chat())).status_code == 200 for _ in range(10)])

            await until(all_admitted, SECONDS)
            assert await system.filter_metric('headrace_rate_checks_total{outcome="unchecked"}') >= 10
            await server.start()

            async def some_refused() -> bool:
                return (await send(system, chat())).status_code == 429

            await until(some_refused, SECONDS)
