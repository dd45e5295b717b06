"""headrace.v1.Registry: nodes join, report and leave."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import grpc
from opentelemetry import trace

from controlplane.errors import HeadraceError, UnknownSessionError
from controlplane.messages import node_load, node_spec
from controlplane.model import NodeSpec
from controlplane.registry.store import NodeStore
from controlplane.services.refusing import code_of, refuse, shortened
from headrace_protos.headrace.v1 import registry_pb2, registry_pb2_grpc

_log = logging.getLogger(__name__)
_tracer = trace.get_tracer(__name__)

SERVICE = "headrace.v1.Registry"

# A fleet that registers anew after an outage spreads over this many seconds.
RE_REGISTER_WITHIN_SECONDS = 2.0
SHOWN_NAME = 128


class Observer(Protocol):
    """Told what nodes do, for metrics. `result` is a gRPC code's name in lower case."""

    def registered(self, result: str) -> None: ...

    def heartbeat(self, result: str) -> None: ...


class RegistryServicer(registry_pb2_grpc.RegistryServicer):
    """`pools_of` names the pools of a description; `clock` gives Unix seconds."""

    def __init__(
        self,
        store: NodeStore,
        observer: Observer,
        pools_of: Callable[[NodeSpec], tuple[str, ...]],
        clock: Callable[[], float],
        *,
        lease_seconds: float,
        heartbeat_seconds: float,
    ) -> None:
        self._store = store
        self._observer = observer
        self._pools_of = pools_of
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._heartbeat_seconds = heartbeat_seconds

    async def Register(  # noqa: N802
        self, request: registry_pb2.RegisterRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> registry_pb2.RegisterResponse:
        spec = node_spec(request.node)
        name = spec.node_id[:SHOWN_NAME]  # not checked yet
        with _tracer.start_as_current_span("headrace.register") as span:
            span.set_attribute("headrace.node_id", name)
            try:
                session = await self._store.register(spec)
            except HeadraceError as error:
                code = code_of(error).name
                self._observer.registered(code.lower())
                _log.warning("registration refused node=%r code=%s fault=%r", name, code, shortened(error))
                await refuse(context, error)
        self._observer.registered("ok")
        return registry_pb2.RegisterResponse(
            session_id=session.session_id,
            lease_seconds=self._lease_seconds,
            heartbeat_seconds=self._heartbeat_seconds,
            pools=self._pools_of(session.spec),
        )

    async def Heartbeat(  # noqa: N802
        self,
        request_iterator: AsyncIterator[registry_pb2.HeartbeatRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[registry_pb2.HeartbeatResponse]:
        async for request in request_iterator:
            try:
                session = await self._store.heartbeat(request.session_id, node_load(request.load, self._clock()))
            except UnknownSessionError:
                self._observer.heartbeat("not_found")
                yield registry_pb2.HeartbeatResponse(
                    re_register=registry_pb2.ReRegisterInstruction(within_seconds=RE_REGISTER_WITHIN_SECONDS)
                )
            except HeadraceError as error:
                self._observer.heartbeat(code_of(error).name.lower())
                await refuse(context, error)
            else:
                self._observer.heartbeat("ok")
                drain = registry_pb2.DrainInstruction() if session.draining else None
                yield registry_pb2.HeartbeatResponse(drain=drain)

    async def Drain(  # noqa: N802
        self, request: registry_pb2.DrainRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> registry_pb2.DrainResponse:
        await _done(self._store.drain(request.node_id), context)
        _log.info("node draining node=%s", request.node_id)
        return registry_pb2.DrainResponse()

    async def Deregister(  # noqa: N802
        self, request: registry_pb2.DeregisterRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> registry_pb2.DeregisterResponse:
        await _done(self._store.deregister(request.session_id), context)
        return registry_pb2.DeregisterResponse()


async def _done(change: Awaitable[object], context: grpc.aio.ServicerContext[Any, Any]) -> None:
    try:
        await change
    except HeadraceError as error:
        await refuse(context, error)
