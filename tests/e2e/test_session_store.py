"""Two filter workers that share a store of sessions: they agree, and requests go on while it is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import pytest_asyncio

from controlplane.etcd.server import free_ports
from support.engine import EngineShape, running_engine
from support.redis_server import RunningRedis, running_redis
from support.system import FREE_PORTS, RunningSystem, running_system
from support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = "test-model"
CODE = {"messages": [{"role": "user", "content": "Write a Python function."}], "temperature": 0}
STORY = {"messages": [{"role": "user", "content": "Write a short story."}], "temperature": 1}


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def store() -> AsyncIterator[RunningRedis]:
    async with running_redis() as server:
        yield server


@pytest.fixture(scope="module")
def metrics_port() -> int:
    """The first worker's; the other one has the next."""
    free = set(free_ports(500))
    return next(port for port in free if port + 1 in free)


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def system(store: RunningRedis, metrics_port: int) -> AsyncIterator[RunningSystem]:
    config = FREE_PORTS.replace('metrics: "127.0.0.1:0"}\nenvoy', f'metrics: "127.0.0.1:{metrics_port}"}}\nenvoy')
    config = config.replace("ext_proc: {", f'ext_proc: {{workers: 2, session_store: {{url: "{store.url}"}}, ')
    async with running_system(config) as running, node(running, "full", "fp16"), node(running, "small", "int4-awq"):
        await running.until_pools(f"{MODEL}/full/short/on_demand", f"{MODEL}/quantized/short/on_demand")
        yield running


@asynccontextmanager
async def node(system: RunningSystem, name: str, loaded: str) -> AsyncIterator[None]:
    async with (
        running_engine(EngineShape(model=MODEL)) as engine,
        system.node(engine.url, name, "--max-sequences", "8", "--format", loaded),
    ):
        yield


async def metrics_of_workers(first: int) -> list[str]:
    async with httpx.AsyncClient(trust_env=False) as client:
        return [(await client.get(f"http://127.0.0.1:{port}/metrics")).text for port in (first, first + 1)]


async def tiers(system: RunningSystem, session: str, *bodies: dict[str, object]) -> set[str]:
    """Where a session's requests went; all must be answered."""
    headers = {"x-session-id": session}
    answers = await asyncio.gather(
        *(
            system.http.post("/v1/chat/completions", json={"model": MODEL, "max_tokens": 2, **body}, headers=headers)
            for body in bodies
        )
    )
    assert [answer.status_code for answer in answers] == [200] * len(bodies)
    return {answer.headers["x-headrace-format"] for answer in answers}


async def test_all_workers_obey_the_tier_that_a_session_began_with(system: RunningSystem) -> None:
    assert await tiers(system, "began-tolerant", STORY) == {"quantized"}
    assert await tiers(system, "began-tolerant", *[CODE] * 20) == {"quantized"}


async def test_workers_that_race_for_a_new_session_agree(system: RunningSystem) -> None:
    for number in range(10):
        assert len(await tiers(system, f"raced-{number}", *[CODE, STORY] * 8)) == 1


async def test_requests_go_on_while_the_store_is_away_and_sessions_keep_their_tier(
    system: RunningSystem, store: RunningRedis, metrics_port: int
) -> None:
    assert await tiers(system, "outlives", STORY) == {"quantized"}
    assert await tiers(system, "outlives", *[CODE] * 20) == {"quantized"}  # both workers know it now
    await store.kill()
    assert await tiers(system, "outlives", *[CODE] * 20) == {"quantized"}
    assert await tiers(system, "began-meanwhile", STORY) == {"quantized"}
    assert all("headrace_session_store_up 0.0" in text for text in await metrics_of_workers(metrics_port))
    await store.start()

    async def back() -> bool:
        await tiers(system, "outlives", *[CODE] * 8)
        return all("headrace_session_store_up 1.0" in text for text in await metrics_of_workers(metrics_port))

    await until(back, 20)
    assert await tiers(system, "outlives", *[CODE] * 20) == {"quantized"}
