"""Two filter workers that share a store of sessions: they agree, and requests go on while it is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from operator import lt

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from headrace_protos.headrace.v1 import fleet_pb2
from support.engine import EngineShape, running_engine
from support.redis_server import RunningRedis, running_redis
from support.system import FREE_PORTS, RunningSystem, running_system
from support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = "test-model"
WORKERS = 2
CODE = {"messages": [{"role": "user", "content": "Write a Python function."}], "temperature": 0}
STORY = {"messages": [{"role": "user", "content": "Write a short story."}], "temperature": 1}


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def store() -> AsyncIterator[RunningRedis]:
    async with running_redis() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def system(store: RunningRedis) -> AsyncIterator[RunningSystem]:
    config = FREE_PORTS.replace(
        "ext_proc: {", f'ext_proc: {{workers: {WORKERS}, session_store: {{url: "{store.url}"}}, '
    )
    async with running_system(config) as running, node(running, "full", "fp16"), node(running, "small", "int4-awq"):
        await running.until_pools(f"{MODEL}/full/short/on_demand", f"{MODEL}/quantized/short/on_demand")
        yield running


@asynccontextmanager
async def node(system: RunningSystem, name: str, loaded: str) -> AsyncIterator[None]:
    async with (
        running_engine(EngineShape(model=MODEL)) as engine,
        system.node(engine.url, name, "--max-sequences", "64", "--format", loaded),
    ):
        yield


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


async def test_requests_go_on_while_the_store_dies_and_sessions_keep_their_tier(
    system: RunningSystem, store: RunningRedis
) -> None:
    assert await tiers(system, "outlives", STORY) == {"quantized"}
    await until(lambda: all_workers_see(system, "outlives"), 20)
    async with steady_requests(system, "outlives") as seen:
        await store.kill()
        await until(lambda: are_up(system, 0), 20)
        await until(lambda: is_a_condition(system), 20)
        assert await tiers(system, "began-meanwhile", STORY) == {"quantized"}
        await store.start()
        await until(lambda: are_up(system, WORKERS), 20)
        await until(lambda: is_a_condition(system, stands=False), 20)
        assert await tiers(system, "began-afterwards", STORY) == {"quantized"}
    assert seen == {"quantized"}
    assert await tiers(system, "began-afterwards", *[CODE] * 20) == {"quantized"}
    async with Redis.from_url(store.url) as client:
        kept = await client.keys("headrace:headrace:pin:*")
    assert len(kept) == 3  # both sessions that went on, and what connections are tried with
    assert await system.filter_metric('headrace_session_store_failures_total{operation="get"}') > 0
    for number in range(WORKERS):
        assert system.log(f"filter-{number}").count("session store is away") == 1
        assert system.log(f"filter-{number}").count("session store is back") == 1


async def test_requests_go_on_while_the_store_hangs(system: RunningSystem, store: RunningRedis) -> None:
    assert await tiers(system, "patient", STORY) == {"quantized"}
    assert await tiers(system, "patient", *[CODE] * 20) == {"quantized"}
    async with steady_requests(system, "patient") as seen:
        store.freeze()
        await until(lambda: are_up(system, 0), 20)
        store.thaw()
        await until(lambda: are_up(system, WORKERS), 20)
    assert seen == {"quantized"}


@asynccontextmanager
async def steady_requests(system: RunningSystem, session: str) -> AsyncIterator[set[str]]:
    """The tiers of a session's requests, four at a time for as long as the context lasts; all must be answered."""
    seen: set[str] = set()
    rounds = 0

    async def keep_sending() -> None:
        nonlocal rounds
        while rounds < 5_000:
            seen.update(await tiers(system, session, *[CODE] * 4))
            rounds += 1

    async with asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(keep_sending())
        yield seen
        done = rounds
        await until(lambda: rounds > done + 3)
        sending.cancel()


async def all_workers_see(system: RunningSystem, session: str) -> bool:
    """Whether each worker got some of 20 requests, so that it knows the session."""
    before = await system.filter_metrics("headrace_decision_seconds_count")
    assert await tiers(system, session, *[CODE] * 20) == {"quantized"}
    after = await system.filter_metrics("headrace_decision_seconds_count")
    return len(before) == len(after) == WORKERS and all(map(lt, before, after))


async def is_a_condition(system: RunningSystem, *, stands: bool = True) -> bool:
    """Whether the control plane has heard of all workers how they do."""
    status = await system.fleet.GetStatus(fleet_pb2.GetStatusRequest())
    away = [bool(worker.session_store_trouble) for worker in status.workers]
    names = [condition.name for condition in status.conditions]
    return away == [stands] * WORKERS and ("session_store_unreachable" in names) is stands


async def are_up(system: RunningSystem, count: int) -> bool:
    """Whether the store is up for just so many of the workers."""
    return await system.filter_metric("headrace_session_store_up") == count
