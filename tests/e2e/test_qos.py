"""QoS tiers under pressure, through real Envoy and etcd. Pressure comes from drills, so as not to hang on speed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import httpx
import pytest
import pytest_asyncio

from e2e.conftest import rejections
from headrace_protos.headrace.v1 import admin_pb2, admin_pb2_grpc
from support.engine import EngineShape, FakeEngine, Fault, running_engine
from support.system import FREE_PORTS, RunningSystem, running_system
from support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = "test-model"
SMALL = "small-model"
POOL = f"{MODEL}/full/short/on_demand"
SPOT = f"{MODEL}/full/short/spot"
SMALL_POOL = f"{SMALL}/full/short/on_demand"
SEQUENCES = 2
TIERS = ("guaranteed", "standard", "best_effort")
KNOWN = ", ".join(f"{{name: {tier}, qos_tier: {tier}}}" for tier in TIERS)


def config(qos: str) -> str:
    """What this machine is too slow for must press nobody."""
    sla = "sla: {minimum_requests: 1000000}"
    return FREE_PORTS + f"policy: {{tenants: {{header: x-tenant, known: [{KNOWN}]}}, {sla}, qos: {{{qos}}}}}\n"


def chat(text: str = "Go on", **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "temperature": 0.5, **more}


@dataclass
class World:
    """A system with one on-demand node of MODEL, for SEQUENCES requests at a time, and one of SMALL."""

    system: RunningSystem
    admin: admin_pb2_grpc.AdminStub
    engine: FakeEngine
    small: FakeEngine

    def send(self, tier: str, **more: Any) -> asyncio.Task[httpx.Response]:
        headers = {"x-tenant": tier, "x-headrace-debug": "1"}
        return asyncio.ensure_future(self.system.http.post("/v1/chat/completions", json=chat(**more), headers=headers))

    async def succeeds(self, *arguments: str) -> str:
        ended = await self.system.headrace(*arguments)
        assert ended.status == 0, ended.err
        return ended.out

    async def pressure(self, tier: str, pool: str = POOL) -> str:
        for found in await self.system.pools():
            if found.name == pool:
                return next((p.state for p in found.pressures if p.qos_tier == tier), "")
        return ""

    @asynccontextmanager
    async def drill(self, signals: dict[str, float], pool: str = POOL, **states: str) -> AsyncIterator[None]:
        """While an operator says so of the pool, from when the tiers' pressures are these until they are normal."""
        request = admin_pb2.SetOverrideRequest(pool=pool, duration_seconds=300, **signals)  # type: ignore[arg-type]
        await self.admin.SetOverride(request)
        try:
            await self.until_pressures(pool, **states)
            yield
        finally:
            await self.admin.ClearOverride(admin_pb2.ClearOverrideRequest(pool=pool))
            await self.until_pressures(pool, **dict.fromkeys(states, "normal"))
            await self.until_served_as_asked(*states)

    async def until_pressures(self, pool: str = POOL, **states: str) -> None:
        async def reached() -> bool:
            return all([await self.pressure(tier, pool) == state for tier, state in states.items()])

        await until(reached, 30)

    async def until_served_as_asked(self, *tiers: str) -> None:
        """Filters hear of a pressure's end a little later than who asks the control plane."""

        async def are() -> bool:
            responses = [await self.send(tier) for tier in tiers]
            return all(r.status_code == 200 and "x-headrace-action" not in r.headers for r in responses)

        await until(are, 30)

    async def until_answered(self, tier: str, status: int, **headers: str) -> httpx.Response:
        """The first response of this kind, which comes once the filters have heard of the pressure."""

        async def answered() -> httpx.Response | None:
            response = await self.send(tier)
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            fits = response.status_code == status and named.items() <= dict(response.headers).items()
            return response if fits else None

        found: httpx.Response = await until(answered, 30)
        return found

    async def waiting(self) -> float:
        """Requests that wait in the filter."""
        return await self.system.filter_metric("headrace_waiting_requests")

    async def until_waiting(self, count: int) -> None:
        async def wait() -> bool:
            return await self.waiting() == count

        await until(wait, 30)

    async def waits_or_is_done(self, task: asyncio.Task[httpx.Response]) -> bool:
        """Of the only request that there is."""
        return task.done() or await self.waiting() == 1

    async def until_room(self, count: int) -> None:
        async def has() -> bool:
            return any(
                pool.name == POOL and pool.HasField("free") and pool.free == count for pool in await self.system.pools()
            )

        await until(has, 30)


@asynccontextmanager
async def running_world(qos: str) -> AsyncIterator[World]:
    async with (
        running_engine(EngineShape(model=MODEL, max_num_seqs=SEQUENCES)) as engine,
        running_engine(EngineShape(model=SMALL)) as small,
        running_system(config(qos)) as system,
        system.node(engine.url, "large", "--format", "fp16", "--max-sequences", str(SEQUENCES)),
        system.node(small.url, "small", "--format", "fp16", "--max-sequences", "8"),
    ):
        await system.until_pools(POOL, SMALL_POOL)
        async with grpc.aio.insecure_channel(system.addresses["grpc"]) as channel:
            yield World(system, admin_pb2_grpc.AdminStub(channel), engine, small)
        assert await rejections(system.addresses["envoy_admin"]) == []


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def world() -> AsyncIterator[World]:
    """By the published table, but that the best tier falls back to the small model, and that nobody has waited too long
    before a busy machine has seen all of them wait."""
    fallback = f"guaranteed: {{when_elevated: fallback, fallback_model: {SMALL}}}"
    patience = ", ".join(f"{tier}: {{longest_wait_seconds: 30}}" for tier in ("standard", "best_effort"))
    async with running_world(f"mode: enabled, aged_after_seconds: 60, {fallback}, {patience}") as running:
        yield running


async def test_elevated_pressure_degrades_standard_and_best_effort_is_rejected_first(world: World) -> None:
    """Facts rows: purpose; a degraded answer says so."""
    async with world.drill({"kv_cache_use": 0.8}, standard="elevated", best_effort="critical", guaranteed="normal"):
        degraded = await world.until_answered("standard", 200, x_headrace_action="degrade")
        assert degraded.headers["x-headrace-degraded-to"] == "max_tokens=640"  # half way from 1024 to 256
        [sent] = [r for r in world.engine.requests if r.header("x-request-id") == degraded.headers["x-request-id"]]
        assert sent.body.startswith(b'{"max_tokens":640,"model"')
        assert sent.json == chat() | {"max_tokens": 640}
        decision = (await world.system.recorded(degraded)).decision
        assert (decision.action, decision.output_limit, decision.qos_tier) == ("degrade", 640, "standard")
        assert (decision.pressure.state, decision.pressure.signal) == ("elevated", "kv_cache_use")
        assert decision.alternatives[0].overridden == ["kv_cache_use"]

        own = await world.send("standard", max_tokens=3)
        assert own.json()["usage"]["completion_tokens"] == 3
        assert "x-headrace-action" not in own.headers

        rejected = await world.until_answered("best_effort", 429)
        assert rejected.headers["x-headrace-reason"] == "overloaded"
        assert rejected.headers["x-headrace-action"] == "reject"
        assert 15 <= int(rejected.headers["retry-after"]) <= 45
        error = rejected.json()["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "overloaded")
        assert (await world.system.recorded(rejected)).decision.reasons[0] == "overloaded"

        assert (await world.send("guaranteed")).status_code == 200
        status = await world.succeeds("status")
        assert f"pressure_critical: {POOL}: critical for best_effort" in status
        assert f"override_active: {POOL}: requests are led by kv_cache_use 0.8" in status


async def test_pressure_of_missed_targets_is_drilled_as_well_and_falls_back_to_the_smaller_model(world: World) -> None:
    """Facts row: a fallen-back answer says so."""
    async with world.drill({"sla_violation_rate": 0.25}, guaranteed="elevated", best_effort="critical"):
        answered = await world.until_answered("guaranteed", 200, x_headrace_action="fallback")
        assert answered.headers["x-headrace-degraded-to"] == f"model={SMALL}"
        assert answered.headers["x-headrace-pool"] == SMALL_POOL
        assert answered.json()["model"] == SMALL
        assert world.small.inference_requests[-1].json == chat() | {"model": SMALL}
        decision = (await world.system.recorded(answered)).decision
        assert (decision.action, decision.model, decision.asked_model) == ("fallback", SMALL, MODEL)
        assert "fell_back_under_pressure" in decision.reasons
        explained = await world.system.headrace(
            "explain", "-", "--json", "-H", "x-tenant: guaranteed", stdin=json.dumps(chat()).encode()
        )
        assert json.loads(explained.out)["asked_model"] == MODEL


async def test_the_better_tier_comes_first_in_the_line(world: World) -> None:
    await world.until_room(SEQUENCES)
    world.engine.set_fault(Fault.HOLD)
    held = [world.send("guaranteed", max_tokens=2) for _ in range(SEQUENCES)]
    try:
        await until(lambda: world.engine.counters.running == SEQUENCES)
        await world.until_room(0)
        tasks = []
        for number, tier in enumerate(reversed(TIERS)):
            tasks.append(world.send(tier, max_tokens=2))
            await world.until_waiting(number + 1)
    finally:
        world.engine.set_fault(Fault.NONE)
    responses = await asyncio.gather(*held, *tasks)
    assert [response.status_code for response in responses] == [200] * 5
    arrived = [request.header("x-tenant") for request in world.engine.inference_requests[-3:]]
    assert arrived == list(TIERS)


async def test_a_dry_run_changes_nothing_and_says_what_it_would_have_done() -> None:
    async with running_world("mode: dry_run") as world, world.drill({"kv_cache_use": 0.95}, standard="critical"):

        async def told() -> Any:
            response = await world.send("standard")
            assert response.status_code == 200
            assert "x-headrace-action" not in response.headers
            decision = (await world.system.recorded(response)).decision
            return decision if decision.would_do.action == "reject" else None

        decision = await until(told, 30)
        assert decision.action == "pass"
        assert decision.would_do.reasons[0] == "overloaded"
        assert "qos_dry_run" in await world.succeeds("status")


async def test_what_is_queued_is_held_until_the_pressure_falls() -> None:
    standard = "{when_elevated: queue, when_critical: queue, longest_wait_seconds: 30}"
    qos = f"mode: enabled, aged_after_seconds: 60, standard: {standard}"
    async with running_world(qos) as world:
        async with world.drill({"kv_cache_use": 0.8}, standard="elevated"):

            async def held() -> asyncio.Task[httpx.Response] | None:
                """Not before the filters have heard of the pressure: until then they answer."""
                task = world.send("standard")
                await until(lambda: world.waits_or_is_done(task), 30)
                return None if task.done() else task

            task = await until(held, 60)
            better = await world.send("guaranteed")
            assert better.status_code == 200, better.text  # nobody waits behind him
            assert not task.done()
        response = await task
        assert response.status_code == 200
        assert (await world.system.recorded(response)).decision.waited_seconds > 0


async def test_best_effort_goes_to_spot_until_pressure_or_a_notice_evicts_it() -> None:
    """Facts row: spot eviction."""
    async with running_world("mode: enabled") as world, running_engine(EngineShape(model=MODEL)) as engine:
        flags = ("--format", "fp16", "--max-sequences", "8", "--capacity-type", "spot")
        async with world.system.node(engine.url, "spot", *flags) as agent:
            await world.system.until_pools(POOL, SPOT, SMALL_POOL)
            await world.until_answered("best_effort", 200, x_headrace_pool=SPOT)
            for tier in ("guaranteed", "standard"):
                assert (await world.send(tier)).headers["x-headrace-pool"] == POOL
            async with world.drill({"kv_cache_use": 0.7}, pool=SPOT, best_effort="critical"):
                evicted = await world.until_answered("best_effort", 200, x_headrace_pool=POOL)
                assert "spot_evicted" in (await world.system.recorded(evicted)).decision.reasons
            await world.until_answered("best_effort", 200, x_headrace_pool=SPOT)
            agent.terminate()  # as on a notice of the cloud: the agent drains its node
            await world.until_answered("best_effort", 200, x_headrace_pool=POOL)
