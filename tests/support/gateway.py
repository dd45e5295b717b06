"""Stand-ins for what surrounds an Envoy: an engine, a filter, an observer, and the server under test."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import grpc
from google.protobuf import struct_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from headrace_protos.envoy.service.accesslog.v3 import als_pb2, als_pb2_grpc
from headrace_protos.envoy.service.ext_proc.v3 import external_processor_pb2, external_processor_pb2_grpc
from support.envoy import RunningEnvoy, running_envoy
from xds_server.assembly import gateway_snapshot
from xds_server.bootstrap import render_bootstrap
from xds_server.gateway import Endpoint, Gateway, PoolCluster
from xds_server.resource import ResourceType
from xds_server.server import SERVER_OPTIONS, DiscoveryService
from xds_server.stream import Rejected


@dataclass
class Received:
    head: str
    body: bytes
    trailers: str = ""

    def header(self, name: str) -> str | None:
        for line in self.head.split("\r\n")[1:]:
            key, _, value = line.partition(":")
            if key.lower() == name:
                return value.strip()
        return None


@dataclass
class Engine:
    """An HTTP/1.1 server that answers 200 to /health and `answer` to all else, and keeps what it received."""

    name: str
    status: str = "200 OK"
    headers: str = "content-type: application/json\r\n"
    body: bytes = b"{}"
    port: int = 0
    healthy: bool = True
    received: list[Received] = field(default_factory=list)
    server: asyncio.Server | None = None
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("127.0.0.1", self.port)

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 24)
        self.port = self.server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self.server is not None
        self.server.close()
        for writer in list(self.writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().removesuffix("\r\n\r\n")
                request = await _read_rest(head, reader)
                if head.split(" ")[1] == "/health":
                    status, headers, body = ("200 OK" if self.healthy else "500 Ill"), "", b""
                else:
                    self.received.append(request)
                    status, headers, body = self.status, self.headers, self.body
                if status == "abort":
                    return
                lines = f"HTTP/1.1 {status}\r\nengine: {self.name}\r\n{headers}content-length: {len(body)}\r\n\r\n"
                writer.write(lines.encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.writers.discard(writer)
            writer.transport.abort()


async def _read_rest(head: str, reader: asyncio.StreamReader) -> Received:
    request = Received(head, b"")
    if request.header("transfer-encoding") == "chunked":
        body = bytearray()
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        trailers = []
        while (line := await reader.readline()) != b"\r\n":
            trailers.append(line.decode())
        request.body, request.trailers = bytes(body), "".join(trailers)
    else:
        request.body = await reader.readexactly(int(request.header("content-length") or 0))
    return request


@dataclass
class Seen:
    """A request as the filter saw it whole."""

    headers: dict[str, list[str]]
    body_bytes: int


Answer = external_processor_pb2.ProcessingResponse


def to_pool(pool: str, /, **metadata: str) -> Answer:
    answer = Answer()
    common = answer.request_headers.response
    common.clear_route_cache = True
    option = common.header_mutation.set_headers.add(append_action="OVERWRITE_IF_EXISTS_OR_ADD")
    option.header.key, option.header.raw_value = "x-headrace-pool", pool.encode()
    if metadata:
        answer.dynamic_metadata["headrace"] = struct_pb2.Struct(
            fields={key: struct_pb2.Value(string_value=value) for key, value in metadata.items()}
        )
    return answer


@dataclass
class StubFilter(external_processor_pb2_grpc.ExternalProcessorServicer):
    """An ext_proc service that answers each request, once it is whole, by `decide`, or fails as it is told."""

    decide: Callable[[Seen], Answer] = lambda _: to_pool("p1")
    seen: list[Seen] = field(default_factory=list)
    failure: str | None = None
    hold: asyncio.Event | None = None

    async def Process(  # noqa: N802
        self, request_iterator: AsyncIterator[object], context: grpc.aio.ServicerContext
    ) -> None:
        seen, whole = Seen({}, 0), False
        async for message in request_iterator:
            match message.WhichOneof("request"):
                case "request_headers":
                    for header in message.request_headers.headers.headers:
                        seen.headers.setdefault(header.key, []).append(header.raw_value.decode())
                    whole = message.request_headers.end_of_stream
                case "request_body":
                    seen.body_bytes += len(message.request_body.body)
                    whole = message.request_body.end_of_stream
                    if self.failure == "before the body's end":
                        await context.abort(grpc.StatusCode.INTERNAL, self.failure)
            if whole and self.failure == "after it":
                await context.abort(grpc.StatusCode.INTERNAL, self.failure)
            if whole and self.failure is None:
                self.seen.append(seen)
                if self.hold is not None:
                    await self.hold.wait()
                await context.write(self.decide(seen))
                return


@dataclass
class StubAccessLog(als_pb2_grpc.AccessLogServiceServicer):
    entries: list[object] = field(default_factory=list)

    async def StreamAccessLogs(  # noqa: N802
        self, request_iterator: AsyncIterator[object], context: object
    ) -> object:
        async for message in request_iterator:
            self.entries.extend(message.http_logs.log_entry)
        return als_pb2.StreamAccessLogsResponse()


@dataclass
class Notes:
    """An observer that writes everything down."""

    events: list[tuple[object, ...]] = field(default_factory=list)

    def connected(self, node_id: str, peer: str) -> None:
        self.events.append(("connected", node_id))

    def acknowledged(self, node_id: str, kind: ResourceType, names: tuple[str, ...]) -> None:
        self.events.append(("acknowledged", node_id, kind.name, names))

    def rejected(self, node_id: str, rejection: Rejected) -> None:
        self.events.append(("rejected", node_id, rejection))

    def disconnected(self, node_id: str) -> None:
        self.events.append(("disconnected", node_id))

    def rejections(self) -> list[Rejected]:
        return [event[2] for event in self.events if event[0] == "rejected"]


@asynccontextmanager
async def serving(service: DiscoveryService, port: int = 0) -> AsyncIterator[int]:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    service.add_to(server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


@dataclass
class World:
    """A filter, an access-log receiver and a discovery service, ready for Envoys."""

    stack: AsyncExitStack
    filter: StubFilter
    log: StubAccessLog
    gateway: Gateway
    notes: Notes
    service: DiscoveryService
    xds_port: int

    async def engine(self, name: str, **answer: object) -> Engine:
        engine = Engine(name, **answer)
        await engine.start()
        self.stack.push_async_callback(engine.stop)
        return engine

    async def envoy(self, node_id: str = "envoy-1") -> RunningEnvoy:
        bootstrap = render_bootstrap(
            node_id=node_id, cluster="test", xds_host="127.0.0.1", xds_port=self.xds_port, admin_port=0
        )
        return await self.stack.enter_async_context(running_envoy(bootstrap))

    def publish(self, *pools: PoolCluster) -> None:
        self.service.publish(gateway_snapshot(self.gateway, pools))

    def all_hold_it(self) -> bool:
        states = self.service.states()
        snapshot = self.service.snapshot
        return bool(states) and snapshot is not None and all(s.acknowledged_version == snapshot.version for s in states)


@asynccontextmanager
async def running_world() -> AsyncIterator[World]:
    """All but engines and Envoys, which are made as a test needs them and end with it."""
    async with AsyncExitStack() as stack:
        side = grpc.aio.server(options=SERVER_OPTIONS)
        stub_filter, log = StubFilter(), StubAccessLog()
        external_processor_pb2_grpc.add_ExternalProcessorServicer_to_server(stub_filter, side)
        als_pb2_grpc.add_AccessLogServiceServicer_to_server(log, side)
        checks = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(checks, side)
        await checks.set("", health_pb2.HealthCheckResponse.SERVING)
        side_port = side.add_insecure_port("127.0.0.1:0")
        await side.start()
        stack.push_async_callback(side.stop, None)
        notes = Notes()
        service = DiscoveryService(notes, "test")
        xds_port = await stack.enter_async_context(serving(service))
        address = f"127.0.0.1:{side_port}"
        gateway = Gateway(ext_proc=(address,), access_log=address, host="127.0.0.1", port=0)
        yield World(stack, stub_filter, log, gateway, notes, service, xds_port)


def body_of(size: int) -> bytes:
    frame = json.dumps({"prompt": ""})
    return json.dumps({"prompt": "x" * (size - len(frame))}).encode()


async def run_filter(address: str) -> None:
    """A stub filter in a process of its own, until that is killed."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    external_processor_pb2_grpc.add_ExternalProcessorServicer_to_server(StubFilter(), server)
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    await checks.set("", health_pb2.HealthCheckResponse.SERVING)
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(run_filter(sys.argv[1]))
