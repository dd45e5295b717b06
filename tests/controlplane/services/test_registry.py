"""Nodes join, report and leave over gRPC, on a real etcd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from controlplane.messages import node_spec_message
from headrace_protos.headrace.v1 import fleet_pb2, node_pb2, registry_pb2
from support.nodes import node
from support.services import Services, status_of
from support.waiting import until

POOL = "llama/full/short/on_demand"


async def register(services: Services, node_id: str = "a", address: str = "10.0.0.1:8000") -> Any:
    request = registry_pb2.RegisterRequest(node=node_spec_message(node(node_id, address)))
    return await services.registry.Register(request)


async def nodes(services: Services) -> list[fleet_pb2.Node]:
    return list((await services.fleet.ListNodes(fleet_pb2.ListNodesRequest())).nodes)


class Heartbeats:
    """One stream of a node; each report is answered before the next one is sent."""

    def __init__(self, services: Services, session_id: str) -> None:
        self._session_id = session_id
        self._reports: asyncio.Queue[registry_pb2.HeartbeatRequest] = asyncio.Queue()
        self.call = services.registry.Heartbeat(self._requests())

    async def _requests(self) -> AsyncIterator[registry_pb2.HeartbeatRequest]:
        while True:
            yield await self._reports.get()

    async def report(self, **load: Any) -> registry_pb2.HeartbeatResponse:
        self._reports.put_nowait(
            registry_pb2.HeartbeatRequest(session_id=self._session_id, load=node_pb2.LoadReport(**load))
        )
        return await self.call.read()  # type: ignore[no-any-return]


async def test_facts_registration_a_node_says_what_it_serves_and_is_seen_in_its_pool(services: Services) -> None:
    answer = await register(services)
    assert answer.session_id
    assert (answer.lease_seconds, answer.heartbeat_seconds) == (5.0, 1.0)
    assert list(answer.pools) == [POOL]
    await until(lambda: nodes(services))
    (seen,) = await nodes(services)
    assert seen.session_id == answer.session_id
    assert list(seen.pools) == [POOL]
    assert services.counted.registrations == {"ok": 1}


async def test_a_bad_description_is_refused_with_every_fault(services: Services) -> None:
    bad = node_pb2.NodeSpec(node_id="a b", address="localhost", models=[node_pb2.ServedModel(id="", format="fp3")])
    code, details = await status_of(services.registry.Register(registry_pb2.RegisterRequest(node=bad)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    fields = {line.partition(":")[0] for line in details.splitlines()}
    assert {"node_id", "address", "models[0].id", "models[0].format", "models[0].max_context"} <= fields
    assert services.counted.registrations == {"invalid_argument": 1}
    assert not await nodes(services)


async def test_a_description_of_thousands_of_faults_is_refused_and_told_in_part(services: Services) -> None:
    models = [node_pb2.ServedModel(id="ä" * 300, format="fp3", aliases=["ö"] * 40) for _ in range(150)]
    bad = node_pb2.NodeSpec(node_id="x" * 100_000, address="1.2.3.4:1", models=models)
    code, details = await status_of(services.registry.Register(registry_pb2.RegisterRequest(node=bad)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details


async def test_an_address_that_another_node_holds_is_refused(services: Services) -> None:
    await register(services, "a")
    request = registry_pb2.RegisterRequest(node=node_spec_message(node("b", "10.0.0.1:8000")))
    code, details = await status_of(services.registry.Register(request))
    assert code is grpc.StatusCode.ALREADY_EXISTS
    assert "held by node a" in details
    assert services.counted.registrations == {"ok": 1, "already_exists": 1}


async def test_reports_are_seen_as_load(services: Services) -> None:
    beats = Heartbeats(services, (await register(services)).session_id)
    answer = await beats.report(running=3, waiting=1, kv_cache_use=0.5, healthy=True)
    assert answer.WhichOneof("instruction") is None
    await until(lambda: _load_is(services, 3))
    beats.call.cancel()
    assert services.counted.heartbeats == {"ok": 1}


async def test_a_draining_node_is_told_and_loses_traffic(services: Services) -> None:
    beats = Heartbeats(services, (await register(services)).session_id)
    await beats.report(healthy=True)
    await services.registry.Drain(registry_pb2.DrainRequest(node_id="a"))
    assert (await beats.report(healthy=True)).HasField("drain")
    await until(lambda: _is_draining(services))
    beats.call.cancel()


async def test_the_stream_of_a_replaced_session_is_told_to_register_anew(services: Services) -> None:
    first = await register(services)
    second = await register(services)
    assert first.session_id != second.session_id
    beats = Heartbeats(services, first.session_id)
    answer = await beats.report(healthy=True)
    assert answer.re_register.within_seconds == 2.0
    # The stream goes on: the agent decides what to do with it.
    assert (await beats.report(healthy=True)).HasField("re_register")
    beats.call.cancel()
    assert services.counted.heartbeats == {"not_found": 2}


async def test_an_impossible_load_is_refused(services: Services) -> None:
    session_id = (await register(services)).session_id
    request = registry_pb2.HeartbeatRequest(session_id=session_id, load=node_pb2.LoadReport(kv_cache_use=7))
    code, details = await status_of(_drained(services.registry.Heartbeat(iter([request]))))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith("load.kv_cache_use: 7.0 is no share")
    assert services.counted.heartbeats == {"invalid_argument": 1}


async def test_a_node_that_leaves_is_gone_at_once_and_twice_is_not_found(services: Services) -> None:
    session_id = (await register(services)).session_id
    await until(lambda: nodes(services))
    await services.registry.Deregister(registry_pb2.DeregisterRequest(session_id=session_id))
    await until(lambda: _is_empty(services), 2)
    again = services.registry.Deregister(registry_pb2.DeregisterRequest(session_id=session_id))
    assert (await status_of(again))[0] is grpc.StatusCode.NOT_FOUND


async def test_draining_a_node_that_is_not_there_is_not_found(services: Services) -> None:
    for name in ("b", "", "x/../y"):
        code, details = await status_of(services.registry.Drain(registry_pb2.DrainRequest(node_id=name)))
        assert code is grpc.StatusCode.NOT_FOUND
        assert details == f"node {name} is not registered"


async def test_without_etcd_calls_are_unavailable_and_say_so(services: Services) -> None:
    session_id = (await register(services)).session_id
    await until(lambda: nodes(services))
    await services.etcd.kill()
    request = registry_pb2.RegisterRequest(node=node_spec_message(node("b", "10.0.0.2:8000")))
    report = registry_pb2.HeartbeatRequest(session_id=session_id)
    for call in (
        services.registry.Register(request),
        services.registry.Drain(registry_pb2.DrainRequest(node_id="a")),
        services.registry.Deregister(registry_pb2.DeregisterRequest(session_id=session_id)),
        _drained(services.registry.Heartbeat(iter([report]))),
    ):
        code, details = await status_of(call)
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "etcd" in details
    # What is known goes on being shown.
    assert [seen.session_id for seen in await nodes(services)] == [session_id]


async def _drained(stream: Any) -> None:
    async for _ in stream:
        pass


async def _load_is(services: Services, running: int) -> bool:
    return any(seen.load.running == running and seen.load_age_seconds < 5 for seen in await nodes(services))


async def _is_draining(services: Services) -> bool:
    return all(seen.draining and not seen.ready for seen in await nodes(services))


async def _is_empty(services: Services) -> bool:
    return not await nodes(services)
