"""Nodes that register anew while sessions run. Facts rows: immutability, quiescence, session affinity."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import grpc
import httpx
import pytest
import pytest_asyncio

from e2e.conftest import rejections
from headrace_protos.headrace.v1 import decision_pb2, fleet_pb2, node_pb2, registry_pb2, registry_pb2_grpc
from support.engine import EngineShape, FakeEngine, running_engine
from support.system import FREE_PORTS, RunningSystem, running_system
from support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = "test-model"
FULL = f"{MODEL}/full/short/on_demand"
QUANTIZED = f"{MODEL}/quantized/short/on_demand"
CODE = {"model": MODEL, "temperature": 0, "max_tokens": 2, "messages": [{"role": "user", "content": "Python code!"}]}
STORY = {
    "model": MODEL,
    "temperature": 0.9,
    "max_tokens": 2,
    "messages": [{"role": "user", "content": "A story!"}],
}
SECONDS = 15.0  # enough for a busy machine to look before it is over
SHORT = f"policy: {{sessions: {{quiescence: {{seconds: {SECONDS:g}}}}}}}\n"
EXEMPT = SHORT.replace("seconds", "exempt_same_engine: true, seconds")
FP16, AWQ, GPTQ = "org/test-model-fp16", "org/test-model-awq", "org/test-model-gptq"


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def system() -> AsyncIterator[RunningSystem]:
    async with running_system(FREE_PORTS + SHORT) as running:
        yield running
        assert await rejections(running.addresses["envoy_admin"]) == []


@dataclass(frozen=True, slots=True)
class Nodes:
    """Two nodes that serve the same."""

    system: RunningSystem
    stays: FakeEngine
    changes: FakeEngine
    name: str

    async def session(self) -> fleet_pb2.Node:
        """The present session of the node that changes."""
        return next(node for node in await self.system.nodes() if node.spec.node_id == self.name)

    async def is_another_than(self, session_id: str) -> fleet_pb2.Node | None:
        found = [node for node in await self.system.nodes() if node.spec.node_id == self.name]
        is_another = found and found[0].session_id != session_id and found[0].ready
        return found[0] if is_another and await self.system.leads_to_all_pools() else None


@asynccontextmanager
async def two_nodes(system: RunningSystem, root: str, pool: str, name: str) -> AsyncIterator[Nodes]:
    """`name` tells the tests' nodes apart: one that was seen before would quiesce."""
    shape = EngineShape(model=MODEL, root=root, max_num_seqs=64)
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(running_engine(shape)) for _ in range(2)]
        for engine, node_id in zip(engines, (f"{name}-stays", f"{name}-changes"), strict=True):
            await stack.enter_async_context(system.node(engine.url, node_id, "--max-sequences", "64"))

        async def both_serve() -> bool:
            known = await system.leads_to_all_pools()
            return known and any(
                p.name == pool and p.ready_nodes == 2 and not p.quiescing_nodes for p in await system.pools()
            )

        await until(both_serve, 30)
        yield Nodes(system, *engines, f"{name}-changes")


async def ask(system: RunningSystem, session: str, body: dict[str, Any]) -> httpx.Response:
    return await system.http.post("/v1/chat/completions", json=body, headers={"x-session-id": session})


async def ask_all(system: RunningSystem, sessions: list[str], body: dict[str, Any]) -> list[httpx.Response]:
    responses = await asyncio.gather(*(ask(system, session, body) for session in sessions))
    assert [r.text for r in responses if r.status_code != 200] == []
    return list(responses)


def sessions_at(engine: FakeEngine, since: int = 0) -> set[str]:
    """The client sessions whose requests reached an engine."""
    return {session for r in engine.inference_requests[since:] if (session := r.header("x-session-id"))}


@asynccontextmanager
async def steady(
    system: RunningSystem, sessions: list[str], body: dict[str, Any]
) -> AsyncIterator[list[httpx.Response]]:
    """The sessions' requests, one after the other, for as long as the context lasts."""
    responses: list[httpx.Response] = []

    async def keep_asking() -> None:
        while len(responses) < 20_000:
            responses.append(await ask(system, sessions[len(responses) % len(sessions)], body))

    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(keep_asking())
        await until(lambda: len(responses) > 10)
        yield responses
        done = len(responses)
        await until(lambda: len(responses) > done + 10)
        asking.cancel()


async def served_by(system: RunningSystem, node_session: str) -> list[decision_pb2.RecordedDecision]:
    answer = await system.fleet.ListDecisions(fleet_pb2.ListDecisionsRequest(limit=10_000))
    return [d for d in answer.decisions if d.outcome.node_session_id == node_session]


async def test_after_a_reload_in_another_tier_old_sessions_avoid_the_node_and_new_ones_reach_it(
    system: RunningSystem,
) -> None:
    old = [f"a{number}" for number in range(20)]
    async with two_nodes(system, FP16, FULL, "tiers") as nodes:
        await ask_all(system, old, CODE)
        before = await nodes.session()
        assert before.quiescing_seconds == 0
        nodes.changes.shape = replace(nodes.changes.shape, root=AWQ, started_at=nodes.changes.shape.started_at + 60)
        after = await until(lambda: nodes.is_another_than(before.session_id), 30)
        assert after.quiescing_seconds > 0
        count = len(nodes.changes.inference_requests)

        for response in await ask_all(system, old, CODE):
            assert response.headers["x-headrace-pool"] == FULL
        assert sessions_at(nodes.changes, count) == set()

        fresh = await ask(system, "tiers-fresh", STORY)
        assert (fresh.status_code, fresh.headers["x-headrace-pool"]) == (200, QUANTIZED)
        assert sessions_at(nodes.changes, count) == {"tiers-fresh"}
        await ask_all(system, ["tiers-fresh"] * 3, STORY)  # it goes on where it began

        nodes.changes.shape = replace(nodes.changes.shape, root=GPTQ)
        await until(lambda: nodes.is_another_than(after.session_id), 30)
        refused = await ask(system, "tiers-fresh", STORY)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "tier_quiescing")
        assert 1 <= int(refused.headers["retry-after"]) <= SECONDS

        async def goes_on() -> bool:
            return (await ask(system, "tiers-fresh", STORY)).status_code == 200

        await until(goes_on, 30)
        assert (await nodes.session()).quiescing_seconds == 0


async def test_after_a_reload_inside_one_tier_old_sessions_keep_to_settled_nodes_until_it_has_settled(
    system: RunningSystem,
) -> None:
    old, fresh = [f"b{number}" for number in range(30)], [f"c{number}" for number in range(30)]
    async with two_nodes(system, AWQ, QUANTIZED, "inside") as nodes:
        await ask_all(system, old, STORY)
        before = await nodes.session()
        async with steady(system, old, STORY) as responses:
            nodes.changes.shape = replace(nodes.changes.shape, root=GPTQ)
            after = await until(lambda: nodes.is_another_than(before.session_id), 30)
            count = len(nodes.changes.inference_requests)
            await ask_all(system, fresh, STORY)
            reached = sessions_at(nodes.changes, count)
            assert reached
            assert reached <= set(fresh)
            pool = next(p for p in await system.pools() if p.name == QUANTIZED)
            assert (pool.ready_nodes, pool.quiescing_nodes) == (2, 1)
            held = await ask(system, old[0], STORY)
            recorded = await system.recorded(held)
            assert "settled_nodes_only" in recorded.decision.reasons
            assert (recorded.decision.pool, recorded.outcome.node_id) == (QUANTIZED, "inside-stays")

            async def comes_back() -> bool:
                return bool(sessions_at(nodes.changes, count) & set(old))

            await until(comes_back, 30)
            assert (await nodes.session()).quiescing_seconds == 0
        assert [r.text for r in responses if r.status_code != 200] == []
        settles_at = after.registered_at.ToNanoseconds() / 1e9 + SECONDS
        too_early = [
            d
            for d in await served_by(system, after.session_id)
            if d.decision.pinned and d.time.ToNanoseconds() / 1e9 < settles_at
        ]
        assert too_early == []


async def test_what_runs_on_a_node_that_registers_anew_finishes_and_is_accounted_to_the_old_session(
    system: RunningSystem,
) -> None:
    async with two_nodes(system, AWQ, QUANTIZED, "running") as nodes:
        for engine in (nodes.stays, nodes.changes):
            engine.shape = replace(engine.shape, time_scale=1.0, decode_rate=10.0)
        before = await nodes.session()
        long = {**STORY, "stream": True, "max_tokens": 600}
        running = [asyncio.create_task(ask(system, f"d{number}", long)) for number in range(8)]
        await until(lambda: nodes.stays.counters.running + nodes.changes.counters.running == 8)
        on_old = nodes.changes.counters.running
        assert on_old > 0
        nodes.changes.shape = replace(nodes.changes.shape, root=GPTQ)
        after = await until(lambda: nodes.is_another_than(before.session_id), 30)
        assert nodes.changes.counters.running == on_old
        for engine in (nodes.stays, nodes.changes):
            engine.shape = replace(engine.shape, time_scale=0.0)
        responses = await asyncio.gather(*running)
        assert all(r.status_code == 200 and r.text.endswith("data: [DONE]\n\n") for r in responses)
        accounted = [(await system.recorded(r)).outcome for r in responses]
        there = [o.node_session_id for o in accounted if o.node_id == "running-changes"]
        assert there == [before.session_id] * on_old
        assert after.session_id not in {o.node_session_id for o in accounted}
        listed = (await system.headrace("decisions", "--json", "--number", "50")).out
        assert before.session_id in listed


async def test_a_restarted_agent_quiesces_and_a_node_that_was_never_seen_does_not(system: RunningSystem) -> None:
    async with running_engine(EngineShape(model=MODEL, root=FP16)) as engine:
        assert (await registered(system, engine, "restarted")).quiescing_seconds == 0
        assert (await registered(system, engine, "restarted")).quiescing_seconds > 0
    async with running_engine(EngineShape(model=MODEL, root=FP16)) as engine:
        assert (await registered(system, engine, "first-name")).quiescing_seconds == 0
        assert (await registered(system, engine, "second-name")).quiescing_seconds > 0


async def test_the_first_node_that_settles_is_sent_nothing_before_envoy_has_found_it_healthy() -> None:
    async with (
        running_system(FREE_PORTS + SHORT.replace(f"{SECONDS:g}", "3")) as system,
        running_engine(EngineShape(model=MODEL, root=AWQ)) as engine,
        grpc.aio.insecure_channel(system.addresses["grpc"]) as channel,
    ):
        engine.health_seconds = 0.25
        model = node_pb2.ServedModel(id=MODEL, format="int4-awq", max_context=4096, max_sequences=8)
        spec = node_pb2.NodeSpec(node_id="checked", address=engine.address, models=[model], health_path="/health")
        registry = registry_pb2_grpc.RegistryStub(channel)
        await registry.Register(registry_pb2.RegisterRequest(node=spec))

        async def served() -> bool:
            return (await ask(system, "old", STORY)).status_code == 200

        await until(served, 30)
        await registry.Register(registry_pb2.RegisterRequest(node=spec))
        codes = set()
        async with asyncio.timeout(60):
            while (response := await ask(system, "old", STORY)).status_code != 200:
                codes.add(response.json()["error"]["code"])
        assert codes == {"tier_quiescing"}


async def registered(system: RunningSystem, engine: FakeEngine, name: str) -> fleet_pb2.Node:
    """The node as its agent registers it, and leaves again."""
    async with system.node(engine.url, name, "--max-sequences", "8"):
        return await system.until_node(name)


async def test_no_request_of_an_old_session_reaches_a_node_that_registers_anew_again_and_again(
    system: RunningSystem,
) -> None:
    """Without a pause in which the engine is away: the node goes from one session to the next."""
    old = [f"e{number}" for number in range(20)]
    async with (
        two_nodes(system, AWQ, QUANTIZED, "again") as nodes,
        grpc.aio.insecure_channel(system.addresses["grpc"]) as channel,
    ):
        registry = registry_pb2_grpc.RegistryStub(channel)
        await ask_all(system, old, STORY)
        spec = node_pb2.NodeSpec()
        spec.CopyFrom((await nodes.session()).spec)
        async with steady(system, old, STORY) as responses:
            sessions = []
            for format_ in ("int4-gptq", "int4-awq", "int4-awq", "int4-gptq"):
                spec.models[0].format = format_
                sessions.append((await registry.Register(registry_pb2.RegisterRequest(node=spec))).session_id)
                done = len(responses)
                await until(lambda done=done: len(responses) > done + 50)
        assert [r.text for r in responses if r.status_code != 200] == []
        await system.recorded(responses[-1])
        for session in sessions:
            assert [d.request_id for d in await served_by(system, session) if d.decision.pinned] == []


async def test_with_the_option_an_engine_that_never_reloaded_takes_all_sessions_at_once() -> None:
    async with (
        running_system(FREE_PORTS + EXEMPT) as system,
        running_engine(EngineShape(model=MODEL, root=FP16)) as engine,
    ):
        assert (await registered(system, engine, "same")).quiescing_seconds == 0
        assert (await registered(system, engine, "same")).quiescing_seconds == 0
        engine.shape = replace(engine.shape, started_at=engine.shape.started_at + 1)
        assert (await registered(system, engine, "same")).quiescing_seconds > 0
