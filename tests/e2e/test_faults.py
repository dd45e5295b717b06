"""What dies and comes back while requests run: nodes, the control plane, etcd. Requests are bounded in count."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import httpx
import pytest
import pytest_asyncio

from controlplane.etcd.client import EtcdClient
from controlplane.etcd.connection import EtcdAccess
from e2e.conftest import rejections
from headrace_protos.headrace.v1 import fleet_pb2, node_pb2, registry_pb2, registry_pb2_grpc
from support.engine import EngineShape, FakeEngine, Fault, running_engine
from support.system import FREE_PORTS, RunningSystem, running_system
from support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = "test-model"
FLAGS = ("--max-sequences", "8")  # what vLLM does not tell
FULL = f"{MODEL}/full/short/on_demand"
QUANTIZED = f"{MODEL}/quantized/short/on_demand"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def system() -> AsyncIterator[RunningSystem]:
    # On a busy machine a control plane takes seconds to start, and agents as long to find it: no lease may end then.
    patient = FREE_PORTS.replace("control_plane: {", "control_plane: {lease: 20s, ")
    async with running_system(patient) as running:
        yield running
        assert await rejections(running.addresses["envoy_admin"]) == []


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def forgetful() -> AsyncIterator[RunningSystem]:
    """Leases run out within a few seconds of the control plane's absence."""
    short = FREE_PORTS.replace("control_plane: {", "control_plane: {lease: 4s, heartbeat: 500ms, ")
    async with running_system(short) as running:
        yield running
        assert await rejections(running.addresses["envoy_admin"]) == []


@asynccontextmanager
async def node(system: RunningSystem, name: str, format_: str = "fp16") -> AsyncIterator[FakeEngine]:
    async with (
        running_engine(EngineShape(model=MODEL)) as engine,
        system.node(engine.url, name, *FLAGS, "--format", format_),
    ):
        await system.until_node(name)
        yield engine


async def is_ready(system: RunningSystem, name: str) -> bool:
    return any(node.spec.node_id == name and node.ready for node in await system.nodes())


async def send(system: RunningSystem) -> httpx.Response:
    return await system.http.post("/v1/chat/completions", json=BODY)


@asynccontextmanager
async def steady_requests(system: RunningSystem) -> AsyncIterator[list[httpx.Response]]:
    """One request after another for as long as the context lasts, at most 20,000."""
    responses: list[httpx.Response] = []

    async def keep_sending() -> None:
        while len(responses) < 20_000:
            responses.append(await send(system))

    async with asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(keep_sending())
        await until(lambda: len(responses) > 10)
        yield responses
        done = len(responses)
        await until(lambda: len(responses) > done + 10)
        sending.cancel()


def failures(responses: list[httpx.Response]) -> list[str]:
    return [f"{r.status_code} {r.text}" for r in responses if r.status_code != 200]


async def test_without_a_node_requests_get_503_and_when_to_retry(system: RunningSystem) -> None:
    response = await send(system)
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "no_ready_node"
    assert int(response.headers["retry-after"]) >= 1


async def test_a_node_that_registers_gets_traffic_and_one_that_leaves_gets_none(system: RunningSystem) -> None:
    async with node(system, "comes-and-goes") as engine:
        assert (await send(system)).status_code == 200
        served = len(engine.inference_requests)
        assert served == 1
    assert (await send(system)).status_code in (404, 503)


async def test_the_first_request_that_a_filter_sends_to_a_new_pool_is_answered(system: RunningSystem) -> None:
    async with (
        running_engine(EngineShape(model=MODEL)) as engine,
        grpc.aio.insecure_channel(system.addresses["grpc"]) as channel,
    ):
        registry = registry_pb2_grpc.RegistryStub(channel)
        for number in range(10):
            model = node_pb2.ServedModel(
                id=f"new-{number}", served_name=MODEL, format="fp16", max_context=4096, max_sequences=8
            )
            spec = node_pb2.NodeSpec(node_id="new", address=engine.address, models=[model], health_path="/health")
            registered = await registry.Register(registry_pb2.RegisterRequest(node=spec))
            while True:
                response = await system.http.post("/v1/chat/completions", json={**BODY, "model": f"new-{number}"})
                if response.status_code == 200:
                    break
                # Filters have not heard of it yet; with an empty fleet they cannot call the model unknown.
                assert response.json()["error"]["code"] in {"model_not_found", "no_ready_node"}, response.text
        await registry.Deregister(registry_pb2.DeregisterRequest(session_id=registered.session_id))


async def test_a_node_whose_agent_is_killed_leaves_within_its_lease(system: RunningSystem) -> None:
    async def gone() -> bool:
        return not any(node.spec.node_id == "killed" for node in await system.nodes())

    async with (
        running_engine(EngineShape(model=MODEL)) as engine,
        system.node(engine.url, "killed", *FLAGS, "--format", "fp16") as agent,
    ):
        await system.until_node("killed")
        agent.kill()
        await agent.wait()
        await until(gone, 30)


async def test_an_engine_that_dies_is_not_sent_to_while_another_serves(system: RunningSystem) -> None:
    async with node(system, "stays") as stays, node(system, "hangs") as hangs:
        for _ in range(20):
            assert (await send(system)).status_code == 200
        assert stays.inference_requests
        assert hangs.inference_requests
        hangs.set_fault(Fault.UNAVAILABLE)
        await until(lambda: is_not_ready(system, "hangs"), 30)
        before = len(hangs.inference_requests)
        for _ in range(20):
            assert (await send(system)).status_code == 200
        assert len(hangs.inference_requests) == before
        hangs.set_fault(Fault.NONE)
        await until(lambda: is_ready(system, "hangs"), 30)


async def is_not_ready(system: RunningSystem, name: str) -> bool:
    return not await is_ready(system, name)


async def test_a_killed_control_plane_changes_nothing_for_running_traffic(system: RunningSystem) -> None:
    async with node(system, "a"), node(system, "b"):
        sessions = {node.session_id for node in await system.nodes()}
        async with steady_requests(system) as responses:
            await system.kill("controlplane")
            await until(lambda: is_ready_again(system), 30)
        assert failures(responses) == []
        assert {node.session_id for node in await system.nodes()} == sessions


async def is_ready_again(system: RunningSystem) -> bool:
    """Whether a control plane answers that knows both nodes, and that an Envoy and a filter have come back to."""
    try:
        status = await system.fleet.GetStatus(fleet_pb2.GetStatusRequest())
    except grpc.aio.AioRpcError:
        return False
    return status.ready_nodes == 2 and bool(status.envoys) and bool(status.filter_workers)


async def test_a_control_plane_away_for_longer_than_the_leases_changes_nothing_for_running_traffic(
    forgetful: RunningSystem,
) -> None:
    async with two_nodes(forgetful, "away") as former:
        changes = await membership_changes(forgetful)
        async with steady_requests(forgetful) as responses:
            await be_away_for_longer_than_the_leases(forgetful)
            await until(lambda: both_go_on_as(forgetful, former), 30)
        assert failures(responses) == []
        assert await membership_changes(forgetful) == changes


async def test_sessions_go_on_after_an_absence_longer_than_the_leases(forgetful: RunningSystem) -> None:
    async with two_nodes(forgetful, "goes-on") as former:
        bound = {"x-session-id": "bound"}
        assert (await forgetful.http.post("/v1/chat/completions", json=BODY, headers=bound)).status_code == 200
        async with steady_requests(forgetful) as responses:
            await be_away_for_longer_than_the_leases(forgetful)
            await until(lambda: both_go_on_as(forgetful, former), 60)
            assert not any(node.quiescing_seconds for node in await forgetful.nodes())
        assert failures(responses) == []
        assert (await forgetful.http.post("/v1/chat/completions", json=BODY, headers=bound)).status_code == 200


async def be_away_for_longer_than_the_leases(system: RunningSystem) -> None:
    os.kill(system.pid_of("controlplane"), signal.SIGSTOP)
    await until(lambda: has_let_all_leases_go(system), 60)
    await system.kill("controlplane")


async def test_a_control_plane_that_stood_still_changes_nothing_for_running_traffic(forgetful: RunningSystem) -> None:
    async with two_nodes(forgetful, "still") as former:
        changes = await membership_changes(forgetful)
        async with steady_requests(forgetful) as responses:
            control_plane = forgetful.pid_of("controlplane")
            os.kill(control_plane, signal.SIGSTOP)
            began = time.monotonic()
            await until(lambda: time.monotonic() > began + 4, 30)
            await until(lambda: has_let_all_leases_go(forgetful), 30)
            os.kill(control_plane, signal.SIGCONT)
            await until(lambda: both_go_on_as(forgetful, former), 30)
        assert failures(responses) == []
        assert await membership_changes(forgetful) == changes


@asynccontextmanager
async def two_nodes(system: RunningSystem, name: str) -> AsyncIterator[set[str]]:
    """Nodes in one pool, in Envoy too; gives the ids of their sessions. `name` is new, or they would quiesce."""
    async with node(system, f"{name}-a"), node(system, f"{name}-b"):
        await until(lambda: endpoints_of(system, FULL, 2))
        yield {node.session_id for node in await system.nodes()}


async def has_let_all_leases_go(system: RunningSystem) -> bool:
    """Whether etcd has no node session any more."""
    async with EtcdClient(EtcdAccess((system.addresses["etcd"],))) as client:
        records = (await client.list("/headrace/")).records
    return not any("/nodes/" in record.key for record in records)


async def both_go_on_as(system: RunningSystem, former: set[str]) -> bool:
    """Whether the nodes are back, as the sessions that they were, with leases again."""
    if not await is_ready_again(system) or await has_let_all_leases_go(system):
        return False
    return former == {node.session_id for node in await system.nodes()}


async def membership_changes(system: RunningSystem) -> str:
    """Envoy's counts of endpoints that came or went, by cluster."""
    async with httpx.AsyncClient(trust_env=False) as admin:
        url = f"http://{system.addresses['envoy_admin']}/stats"
        counts = (await admin.get(url, params={"filter": f"{MODEL}.*membership_change"})).text
    assert FULL in counts
    return counts


async def test_a_killed_etcd_changes_nothing_for_running_traffic(system: RunningSystem) -> None:
    async with node(system, "a"), node(system, "b"):
        async with steady_requests(system) as responses:
            etcd = system.pid_of("--initial-cluster")
            os.kill(etcd, signal.SIGKILL)
            ready = await system.http.get(f"http://{system.addresses['metrics']}/readyz")
            assert ready.status_code == 200  # it goes on serving what it knows
            await until(lambda: system.etcd_is_another_than(etcd), 30)
            await until(lambda: is_ready_again(system), 30)
        assert failures(responses) == []
        async with node(system, "c"):
            assert (await send(system)).status_code == 200


async def test_nodes_come_back_by_themselves_when_etcd_lost_everything(system: RunningSystem) -> None:
    async with node(system, "a"), node(system, "b"):
        deleted = await system.delete_everything_in_etcd()
        assert deleted > 0
        await until(lambda: is_ready_again(system), 30)
        assert (await send(system)).status_code == 200


async def test_a_drained_node_gets_nothing_new(system: RunningSystem) -> None:
    async with node(system, "stays") as stays, node(system, "drained") as drained:
        ended = await system.headrace("drain", "drained")
        assert ended.status == 0, ended.err
        await until(lambda: is_not_ready(system, "drained"))
        await until(lambda: endpoints_of(system, FULL, 1))
        before = len(drained.inference_requests)
        for _ in range(10):
            assert (await send(system)).status_code == 200
        assert len(drained.inference_requests) == before
        assert len(stays.inference_requests) >= 10


async def endpoints_of(system: RunningSystem, cluster: str, count: int) -> bool:
    """Whether Envoy holds so many endpoints of a cluster."""
    async with httpx.AsyncClient(trust_env=False) as admin:
        text = (await admin.get(f"http://{system.addresses['envoy_admin']}/clusters?format=json")).json()
    statuses = {c["name"]: c.get("host_statuses", []) for c in text["cluster_statuses"]}
    return len(statuses.get(cluster, [])) == count
