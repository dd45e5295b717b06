"""The Registry service as a node's agent meets it, with the faults that a test sets. Keeps everything in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from headrace_protos.headrace.v1 import node_pb2, registry_pb2, registry_pb2_grpc


class ScriptedRegistry(registry_pb2_grpc.RegistryServicer):
    """`refusal` is answered to registrations while it is set; `silent` leaves heartbeats unanswered;
    `unavailable` refuses every call as a control plane does that has lost its store."""

    def __init__(self, lease_seconds: float, heartbeat_seconds: float) -> None:
        self.lease_seconds = lease_seconds
        self.heartbeat_seconds = heartbeat_seconds
        self.refusal: tuple[grpc.StatusCode, str] | None = None
        self.unavailable = False
        self.silent = False
        self.draining = False
        self.not_found_by_status = False
        self.registered: list[node_pb2.NodeSpec] = []
        self.sessions: set[str] = set()
        self.reports: list[registry_pb2.HeartbeatRequest] = []
        self.streams = 0
        self.drained: list[str] = []
        self.deregistered: list[str] = []
        self.events: list[str] = []
        self.authorizations: set[str | None] = set()
        self.address = "127.0.0.1:0"
        self._server: grpc.aio.Server | None = None
        self._heartbeats: set[asyncio.Task[Any]] = set()

    # --- what tests do ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """On a free port, or where it was before."""
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        registry_pb2_grpc.add_RegistryServicer_to_server(self, server)
        port = server.add_insecure_port(self.address)
        self.address = f"127.0.0.1:{port}"
        await server.start()
        self._server = server

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def break_streams(self) -> None:
        for heartbeat in list(self._heartbeats):
            heartbeat.cancel()

    def forget_sessions(self) -> None:
        self.sessions.clear()

    @property
    def last_load(self) -> node_pb2.LoadReport:
        return self.reports[-1].load

    # --- what agents call ------------------------------------------------------------------------------------------

    async def Register(self, request: registry_pb2.RegisterRequest, context: Any) -> registry_pb2.RegisterResponse:  # noqa: N802
        await self._check(context)
        if self.refusal is not None:
            self.events.append("refused")
            await context.abort(*self.refusal)
        self.registered.append(request.node)
        session = f"session-{len(self.registered)}"
        self.sessions.add(session)
        self.events.append("registered")
        return registry_pb2.RegisterResponse(
            session_id=session,
            lease_seconds=self.lease_seconds,
            heartbeat_seconds=self.heartbeat_seconds,
            pools=["some/pool"],
        )

    async def Heartbeat(  # noqa: N802
        self, request_iterator: AsyncIterator[registry_pb2.HeartbeatRequest], context: Any
    ) -> AsyncIterator[registry_pb2.HeartbeatResponse]:
        task = asyncio.current_task()
        assert task is not None
        self._heartbeats.add(task)
        self.streams += 1
        try:
            await self._check(context)
            async for request in request_iterator:
                if request.session_id not in self.sessions:
                    if self.not_found_by_status:
                        await context.abort(grpc.StatusCode.NOT_FOUND, "no such session")
                    instruction = registry_pb2.ReRegisterInstruction(within_seconds=1.0)
                    yield registry_pb2.HeartbeatResponse(re_register=instruction)
                    continue
                self.reports.append(request)
                if self.silent:
                    continue
                drain = registry_pb2.DrainInstruction() if self.draining else None
                yield registry_pb2.HeartbeatResponse(drain=drain)
        finally:
            self._heartbeats.discard(task)

    async def Drain(self, request: registry_pb2.DrainRequest, context: Any) -> registry_pb2.DrainResponse:  # noqa: N802
        await self._check(context)
        self.drained.append(request.node_id)
        self.events.append("drained")
        return registry_pb2.DrainResponse()

    async def Deregister(  # noqa: N802
        self, request: registry_pb2.DeregisterRequest, context: Any
    ) -> registry_pb2.DeregisterResponse:
        await self._check(context)
        self.deregistered.append(request.session_id)
        self.events.append("deregistered")
        return registry_pb2.DeregisterResponse()

    async def _check(self, context: Any) -> None:
        self.authorizations.add(dict(context.invocation_metadata()).get("authorization"))
        if self.unavailable:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the store cannot be reached")


@asynccontextmanager
async def running_registry(
    *, lease_seconds: float = 4.0, heartbeat_seconds: float = 0.01
) -> AsyncIterator[ScriptedRegistry]:
    registry = ScriptedRegistry(lease_seconds, heartbeat_seconds)
    await registry.start()
    try:
        yield registry
    finally:
        await registry.stop()
