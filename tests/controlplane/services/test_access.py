"""Who may call what, by a real server and a real client."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from controlplane.services.access import BearerTokens
from headrace_protos.headrace.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    fleet_pb2,
    fleet_pb2_grpc,
    registry_pb2,
    registry_pb2_grpc,
)
from support.grpc_server import serving

NODE, OPERATOR = "node-token-7f3a", "operator-token-91bc"
OK, REFUSED = grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED


class Registry(registry_pb2_grpc.RegistryServicer):
    async def Register(self, request: Any, context: Any) -> registry_pb2.RegisterResponse:  # noqa: N802
        return registry_pb2.RegisterResponse()

    async def Heartbeat(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        async for _ in request_iterator:
            yield registry_pb2.HeartbeatResponse()


class Fleet(fleet_pb2_grpc.FleetServicer):
    async def ListNodes(self, request: Any, context: Any) -> fleet_pb2.ListNodesResponse:  # noqa: N802
        return fleet_pb2.ListNodesResponse()

    async def WatchRoutingTable(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        yield fleet_pb2.WatchRoutingTableResponse()


class Admin(admin_pb2_grpc.AdminServicer):
    async def SetPolicy(self, request: Any, context: Any) -> admin_pb2.SetPolicyResponse:  # noqa: N802
        return admin_pb2.SetPolicyResponse()


SERVICES = (
    lambda server: registry_pb2_grpc.add_RegistryServicer_to_server(Registry(), server),
    lambda server: fleet_pb2_grpc.add_FleetServicer_to_server(Fleet(), server),
    lambda server: admin_pb2_grpc.add_AdminServicer_to_server(Admin(), server),
)
METHODS = ("Register", "Heartbeat", "WatchRoutingTable", "ListNodes", "SetPolicy")


async def code_of(channel: grpc.aio.Channel, method: str, authorization: str | bytes | None) -> grpc.StatusCode:
    metadata = () if authorization is None else (("authorization", authorization),)
    options: dict[str, Any] = {"metadata": metadata, "timeout": 10}
    registry, fleet = registry_pb2_grpc.RegistryStub(channel), fleet_pb2_grpc.FleetStub(channel)
    try:
        match method:
            case "Register":
                await registry.Register(registry_pb2.RegisterRequest(), **options)
            case "Heartbeat":
                assert [_ async for _ in registry.Heartbeat(iter([registry_pb2.HeartbeatRequest()]), **options)]
            case "WatchRoutingTable":
                assert [_ async for _ in fleet.WatchRoutingTable(fleet_pb2.WatchRoutingTableRequest(), **options)]
            case "ListNodes":
                await fleet.ListNodes(fleet_pb2.ListNodesRequest(), **options)
            case "SetPolicy":
                await admin_pb2_grpc.AdminStub(channel).SetPolicy(admin_pb2.SetPolicyRequest(), **options)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return OK


# What each shown authorization may call, in the order of METHODS, with tokens of both kinds configured.
TABLE: list[tuple[str | None, tuple[grpc.StatusCode, ...]]] = [
    (None, (REFUSED, REFUSED, REFUSED, REFUSED, REFUSED)),
    (f"Bearer {NODE}", (OK, OK, OK, REFUSED, REFUSED)),
    (f"Bearer {OPERATOR}", (OK, OK, OK, OK, OK)),
    ("Bearer second-node", (OK, OK, OK, REFUSED, REFUSED)),
    (f"bearer  {NODE} ", (OK, OK, OK, REFUSED, REFUSED)),
    (f"Basic {NODE}", (REFUSED, REFUSED, REFUSED, REFUSED, REFUSED)),
    (NODE, (REFUSED, REFUSED, REFUSED, REFUSED, REFUSED)),
    (f"Bearer {NODE}x", (REFUSED, REFUSED, REFUSED, REFUSED, REFUSED)),
    (f"Bearer {NODE[:-1]}", (REFUSED, REFUSED, REFUSED, REFUSED, REFUSED)),
    ("Bearer ", (REFUSED, REFUSED, REFUSED, REFUSED, REFUSED)),
    ("", (REFUSED, REFUSED, REFUSED, REFUSED, REFUSED)),
]


@pytest.mark.parametrize(("authorization", "codes"), TABLE)
async def test_each_call_needs_its_kind_of_token(
    authorization: str | None, codes: tuple[grpc.StatusCode, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """Facts row: its own gaps (overrides without authentication)."""
    caplog.set_level(logging.DEBUG)
    tokens = BearerTokens([NODE, "second-node"], [OPERATOR])
    async with serving(*SERVICES, interceptors=[tokens]) as channel:
        assert tuple([await code_of(channel, method, authorization) for method in METHODS]) == codes
    assert NODE not in caplog.text
    assert OPERATOR not in caplog.text


@pytest.mark.parametrize(
    ("nodes", "operators", "codes"),
    [
        ([], [], (OK, OK, OK, OK, OK)),
        ([NODE], [], (REFUSED, REFUSED, REFUSED, OK, OK)),
        ([], [OPERATOR], (OK, OK, OK, REFUSED, REFUSED)),
    ],
)
async def test_a_kind_without_configured_tokens_is_open(
    nodes: list[str], operators: list[str], codes: tuple[grpc.StatusCode, ...]
) -> None:
    async with serving(*SERVICES, interceptors=[BearerTokens(nodes, operators)]) as channel:
        assert tuple([await code_of(channel, method, None) for method in METHODS]) == codes


@pytest.mark.parametrize(
    ("shown", "says"),
    [
        (None, ""),
        ("no-such", ", and the one shown is not known here"),
        (NODE, ", and the one shown is a node's"),
    ],
)
async def test_a_refusal_says_what_is_needed_and_what_was_shown(shown: str | None, says: str) -> None:
    metadata = () if shown is None else (("authorization", f"Bearer {shown}"),)
    async with serving(*SERVICES, interceptors=[BearerTokens([NODE], [OPERATOR])]) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await fleet_pb2_grpc.FleetStub(channel).ListNodes(fleet_pb2.ListNodesRequest(), metadata=metadata)
        assert refused.value.details() == f"this call needs `authorization: Bearer <operator token>`{says}"


async def test_refusals_are_logged_now_and_then_without_the_token(caplog: pytest.LogCaptureFixture) -> None:
    moments = iter((0.0, 1.0, 9.0, 11.0))
    tokens = BearerTokens([NODE], [OPERATOR], lambda: next(moments))
    async with serving(*SERVICES, interceptors=[tokens]) as channel:
        for _ in range(4):
            assert await code_of(channel, "ListNodes", "Bearer guessed-token") is REFUSED
    first, second = (record.getMessage() for record in caplog.records if "call refused" in record.getMessage())
    assert "call=/headrace.v1.Fleet/ListNodes peer=ipv4:127.0.0.1:" in first
    assert "no operator token, and the one shown is not known here" in first
    assert second.endswith("others_since_the_last_line=2")
    assert "guessed-token" not in caplog.text


async def test_health_and_reflection_stay_open_and_unknown_methods_unimplemented() -> None:
    async with serving(
        *SERVICES, names=["headrace.v1.Fleet"], interceptors=[BearerTokens([NODE], [OPERATOR])]
    ) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check  # type: ignore[attr-defined]
        answer = await check(health_pb2.HealthCheckRequest(service="headrace.v1.Fleet"))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)  # type: ignore[arg-type]
        reflect = stub.ServerReflectionInfo
        listing = [each async for each in reflect(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))]
        assert "headrace.v1.Fleet" in {each.name for each in listing[0].list_services_response.service}
        unknown: Any = channel.unary_unary("/headrace.v1.Fleet/Nothing")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await unknown(b"")
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
