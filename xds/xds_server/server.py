"""The gRPC service: delta ADS streams of any number of Envoys, all led to one snapshot.

Logs and metrics are the caller's, by an `Observer`. State-of-the-world ADS is not served.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import grpc

from headrace_protos.envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from xds_server.rejections import Rejections
from xds_server.resource import ResourceType
from xds_server.snapshot import InconsistentSnapshotError, Snapshot
from xds_server.stream import Acknowledged, DeltaStream, ProtocolError, Rejected

# For grpc.aio.server. A fleet's first response may exceed gRPC's 4 MiB; Envoys ping, which gRPC would punish.
SERVER_OPTIONS = (
    ("grpc.max_send_message_length", 256 << 20),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
)


class Observer(Protocol):
    """Is told what Envoys do. Called in the event loop: must not block."""

    def connected(self, node_id: str, peer: str) -> None: ...

    def acknowledged(self, node_id: str, kind: ResourceType, names: tuple[str, ...]) -> None: ...

    def rejected(self, node_id: str, rejection: Rejected) -> None: ...

    def disconnected(self, node_id: str) -> None: ...


@dataclass(frozen=True, slots=True)
class EnvoyState:
    """A connected Envoy. `acknowledged_version` is of the last snapshot that it holds whole, empty before the first;
    `rejected` counts the responses it refused on this stream."""

    node_id: str
    cluster: str
    peer: str
    acknowledged_version: str
    rejected: int
    last_rejection: Rejected | None


@dataclass(eq=False, slots=True)
class _Session:
    stream: DeltaStream
    peer: str
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    rejected: int = 0
    last_rejection: Rejected | None = None


class DiscoveryService(ads_pb2_grpc.AggregatedDiscoveryServiceServicer):
    """Add it to a `grpc.aio.server(options=SERVER_OPTIONS)`. `identifier` names this server to Envoys."""

    def __init__(self, observer: Observer, identifier: str) -> None:
        self.snapshot: Snapshot | None = None
        self._observer = observer
        self._identifier = identifier
        self._rejections = Rejections()
        self._sessions: set[_Session] = set()
        self._changed = asyncio.Event()

    def add_to(self, server: grpc.aio.Server) -> None:
        ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(self, server)

    def publish(self, snapshot: Snapshot) -> None:
        """Lead all Envoys, connected and to come, to this snapshot; returns at once.

        InconsistentSnapshotError, and the last one stays, when its resources do not fit together.
        """
        faults = snapshot.inconsistencies()
        if faults:
            raise InconsistentSnapshotError(faults)
        self.snapshot = snapshot
        self._rejections.forget_good(unless=snapshot.in_use)
        for session in self._sessions:
            session.wake.set()

    async def until_held(self) -> None:
        """Waits until every Envoy that is connected holds the snapshot that is published now, whole and in use.

        Does not end while one of them refuses a part of it, or is stuck: give it a timeout.
        """
        while not self._is_held():
            await self._changed.wait()

    def _is_held(self) -> bool:
        version = self.snapshot.version if self.snapshot else ""
        return all(s.stream.acknowledged_version == version for s in self._sessions if s.stream.node.id)

    def _tell_change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def states(self) -> tuple[EnvoyState, ...]:
        """Of the Envoys that are connected now, by node id."""
        states = [
            EnvoyState(
                node_id=s.stream.node.id,
                cluster=s.stream.node.cluster,
                peer=s.peer,
                acknowledged_version=s.stream.acknowledged_version,
                rejected=s.rejected,
                last_rejection=s.last_rejection,
            )
            for s in self._sessions
            if s.stream.node.id
        ]
        return tuple(sorted(states, key=lambda state: (state.node_id, state.peer)))

    async def DeltaAggregatedResources(  # noqa: N802 (the service's own name)
        self,
        request_iterator: AsyncIterable[discovery_pb2.DeltaDiscoveryRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> None:
        session = _Session(DeltaStream(self._rejections, self._identifier), context.peer())
        self._sessions.add(session)
        fault: ProtocolError | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                writer = tasks.create_task(self._write(session, context))
                try:
                    await self._read(session, request_iterator)
                except ProtocolError as error:
                    fault = error
                writer.cancel()
        finally:
            self._sessions.discard(session)
            self._tell_change()
            if session.stream.node.id:
                self._observer.disconnected(session.stream.node.id)
        if fault is not None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(fault))

    async def StreamAggregatedResources(  # noqa: N802
        self,
        request_iterator: AsyncIterable[discovery_pb2.DiscoveryRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> NoReturn:
        await context.abort(
            grpc.StatusCode.UNIMPLEMENTED,
            "state-of-the-world ADS is not served: set ads_config.api_type to DELTA_GRPC in the bootstrap",
        )
        raise AssertionError

    async def _read(self, session: _Session, requests: AsyncIterable[discovery_pb2.DeltaDiscoveryRequest]) -> None:
        known = False
        async for request in requests:
            verdict = session.stream.receive(request)
            node_id = session.stream.node.id
            if not known:
                known = True
                self._observer.connected(node_id, session.peer)
            match verdict:
                case Acknowledged(kind, names):
                    self._observer.acknowledged(node_id, kind, names)
                case Rejected():
                    session.rejected += 1
                    session.last_rejection = verdict
                    self._observer.rejected(node_id, verdict)
                case None:
                    pass
            session.wake.set()
            self._tell_change()

    async def _write(self, session: _Session, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Snapshots that come while an Envoy is slow to read are skipped but for the last; no other Envoy waits."""
        while True:
            await session.wake.wait()
            session.wake.clear()
            while self.snapshot is not None and (response := session.stream.respond(self.snapshot)) is not None:
                await context.write(response)
