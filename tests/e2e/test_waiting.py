"""Waiting for the tier, through real Envoy and etcd. Facts row: pinned and busy."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio

from e2e.conftest import rejections
from ext_proc.waiting import EXTEND_AFTER_SECONDS
from headrace_protos.headrace.v1 import fleet_pb2
from support.engine import EngineShape, FakeEngine, Fault, running_engine
from support.system import FREE_PORTS, TWO_WORKERS, RunningSystem, running_system
from support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = "test-model"
FULL = f"{MODEL}/full/short/on_demand"
QUANTIZED = f"{MODEL}/quantized/short/on_demand"
SEQUENCES = 2
SHORT_WAITS = FREE_PORTS + "policy: {waiting: {longest_seconds: 1.5}, selection: {retry_after_seconds: 7}}\n"


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 2, **more}


SENSITIVE = chat("Write a Python function that sorts a list. Return only code.", temperature=0)
NEUTRAL = chat("Go on", temperature=0.5)
TOLERANT = chat("Tell me a short story about a dragon.", temperature=0.9)


@dataclass
class World:
    """A system with one node of either tier, each for two requests at a time."""

    system: RunningSystem
    full: FakeEngine
    quantized: FakeEngine

    async def until_workers(self, count: int) -> None:
        async def watch() -> bool:
            status = await self.system.fleet.GetStatus(fleet_pb2.GetStatusRequest())
            return len(status.filter_workers) == count

        await until(watch, 30)

    def send(self, body: dict[str, Any], session: str = "", **more: Any) -> asyncio.Task[httpx.Response]:
        headers = {"x-headrace-debug": "1"} | ({"x-session-id": session} if session else {})
        return asyncio.ensure_future(
            self.system.http.post("/v1/chat/completions", json={**body, **more}, headers=headers)
        )

    async def room_for(self, pool: str) -> int | None:
        for found in await self.system.pools():
            if found.name == pool:
                return int(found.free) if found.HasField("free") else None
        return None

    async def until_room(self, pool: str, count: int) -> None:
        async def has() -> bool:
            return await self.room_for(pool) == count

        await until(has, 30)

    @asynccontextmanager
    async def full_tier_busy(self) -> AsyncIterator[list[asyncio.Task[httpx.Response]]]:
        """While it lasts the full node works on two requests and finishes none; then it does both."""
        await self.until_room(FULL, SEQUENCES)
        self.full.set_fault(Fault.HOLD)
        held = [self.send(SENSITIVE) for _ in range(SEQUENCES)]
        try:
            await until(lambda: self.full.counters.running == SEQUENCES)
            await self.until_room(FULL, 0)
            yield held
        finally:
            self.full.set_fault(Fault.NONE)
            await asyncio.gather(*held)

    async def waiting(self) -> int:
        """Requests that wait in filters."""
        return int(await self.system.filter_metric("headrace_waiting_requests"))

    async def until_waiting(self, count: int) -> None:
        async def wait() -> bool:
            return await self.waiting() == count

        await until(wait)

    async def wait_in_order(self, count: int, body: dict[str, Any]) -> list[asyncio.Task[httpx.Response]]:
        """Requests that wait, each sent when the one before does."""
        before = await self.waiting()
        tasks = []
        for number in range(count):
            tasks.append(self.send(body))
            await self.until_waiting(before + number + 1)
        return tasks


def waited(response: httpx.Response) -> float:
    """How long it waited in the filter."""
    assert response.status_code == 200, response.text
    seconds = json.loads(response.headers["x-headrace-decision"]).get("waited_seconds", 0.0)
    return float(seconds)


def tier(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return response.headers["x-headrace-format"]


@asynccontextmanager
async def running_world(config: str) -> AsyncIterator[World]:
    flags = ("--max-sequences", str(SEQUENCES))
    shape = EngineShape(model=MODEL, max_num_seqs=SEQUENCES)
    async with (
        running_engine(shape) as full,
        running_engine(shape) as quantized,
        running_system(config) as system,
        system.node(full.url, "full", *flags, "--format", "fp16"),
        system.node(quantized.url, "quantized", *flags, "--format", "int4-awq"),
    ):
        await system.until_pools(FULL, QUANTIZED)
        yield World(system, full, quantized)
        assert await rejections(system.addresses["envoy_admin"]) == []


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def world() -> AsyncIterator[World]:
    async with running_world(FREE_PORTS) as running:
        yield running


async def test_a_pinned_session_waits_for_its_tier_while_the_other_one_is_free(world: World) -> None:
    await world.until_room(FULL, SEQUENCES)
    assert tier(await world.send(SENSITIVE, "pinned")) == "full"
    async with world.full_tier_busy():
        later = world.send(TOLERANT, "pinned")
        await world.until_waiting(1)
        assert [tier(await world.send(body)) for body in (NEUTRAL, TOLERANT)] == ["quantized"] * 2
        assert world.full.counters.waiting == 0  # it waits here, not in the engine
        assert not later.done()
    response = await later
    assert tier(response) == "full"
    assert waited(response) > 0
    recorded = await world.system.recorded(response)
    assert list(recorded.decision.reasons) == ["session_pinned"]
    assert recorded.decision.waited_seconds == pytest.approx(waited(response), abs=0.001)
    await world.until_waiting(0)


async def test_who_waits_is_served_in_order(world: World) -> None:
    async with world.full_tier_busy():
        first, second, third, fourth = await world.wait_in_order(4, SENSITIVE)
    responses = await asyncio.gather(first, second, third, fourth)
    ends = [(await world.system.recorded(response)).decision.waited_seconds for response in responses]
    assert all(ends)
    arrived = [request.header("x-request-id") for request in world.full.inference_requests[-4:]]
    assert arrived == [response.headers["x-request-id"] for response in responses]


async def test_a_neutral_request_spills_only_while_the_full_tier_has_no_room(world: World) -> None:
    async with world.full_tier_busy():
        response = await world.send(NEUTRAL)
        assert tier(response) == "quantized"
        reasons = (await world.system.recorded(response)).decision.reasons
        assert list(reasons) == ["neutral_prefers_full", "spilled_under_load"]

    async def goes_full() -> bool:
        """Filters hear a little later of the room."""
        return tier(await world.send(NEUTRAL)) == "full"

    await until(goes_full, 30)


async def test_a_client_that_leaves_frees_its_place(world: World) -> None:
    async with world.full_tier_busy():
        (leaving,) = await world.wait_in_order(1, SENSITIVE)
        (staying,) = await world.wait_in_order(1, SENSITIVE)
        leaving.cancel()
        await world.until_waiting(1)
    assert waited(await staying) > 0
    await world.until_waiting(0)
    assert await world.system.filter_metric('headrace_wait_seconds_count{outcome="left"}') == 1


async def test_a_wait_longer_than_envoy_waits_for_other_answers_holds(world: World) -> None:
    async with world.full_tier_busy():
        (long,) = await world.wait_in_order(1, SENSITIVE)
        others = 0
        async with asyncio.timeout(30):
            while not long.done() and others < 10:  # one a second: nobody else is held up
                assert tier(await world.send(NEUTRAL)) == "quantized"
                others += 1
                await asyncio.wait((long,), timeout=1.1)
        assert not long.done()
    assert waited(await long) > 10


async def test_what_waits_for_a_pool_is_told_before_it_is_sent(world: World) -> None:
    async with world.full_tier_busy():
        body = json.dumps(SENSITIVE).encode()
        explained = json.loads((await world.system.headrace("explain", "-", "--json", stdin=body)).out)
        assert (explained["action"], explained["waits_for"]) == ("queue", [FULL])
        assert explained["reasons"] == ["sensitive_needs_full", "waiting_for_room"]
        line = next(line for line in (await world.system.headrace("pools")).out.splitlines() if FULL in line)
        assert line.split()[-1] == "0"


async def test_who_has_waited_too_long_is_asked_to_come_back() -> None:
    async with running_world(SHORT_WAITS) as world, world.full_tier_busy():
        response = await world.send(SENSITIVE)
        assert response.status_code == 429
        assert response.headers["retry-after"] == "7"
        assert response.headers["x-headrace-reason"] == "no_capacity"
        error = response.json()["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "no_capacity")
        decision = (await world.system.recorded(response)).decision
        assert list(decision.reasons) == ["wait_too_long", "sensitive_needs_full"]
        assert decision.waited_seconds == pytest.approx(1.5, abs=1.0)


async def test_the_share_of_a_worker_that_is_killed_goes_to_the_other() -> None:
    async with running_world(TWO_WORKERS) as world:
        await world.until_workers(2)
        async with world.full_tier_busy():
            sent = time.monotonic()
            tasks = [world.send(SENSITIVE) for _ in range(6)]  # Envoy spreads them over both
            await world.until_waiting(6)
            os.kill(world.system.pid_of("ext-proc"), signal.SIGKILL)
            waited_for = time.monotonic() - sent
        statuses = [response.status_code for response in await asyncio.gather(*tasks)]
        # Envoy asks the other worker, unless this one had to tell it that the answer takes longer.
        assert 200 in statuses
        assert set(statuses) == {200} or (waited_for > EXTEND_AFTER_SECONDS and set(statuses) == {200, 503})
        await world.until_waiting(0)
        await world.until_workers(2)
        await world.until_room(FULL, SEQUENCES)
        assert [tier(await task) for task in [world.send(SENSITIVE) for _ in range(SEQUENCES)]] == ["full"] * SEQUENCES
