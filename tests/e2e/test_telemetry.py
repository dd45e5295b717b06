"""Spans of a running system reach an OpenTelemetry collector, and nothing of what clients write is in them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2

from support.engine import EngineShape, running_engine
from support.system import FREE_PORTS, running_system
from support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")


@dataclass
class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps what is exported to it."""

    address: str = ""
    received: list[trace_service_pb2.ExportTraceServiceRequest] = field(default_factory=list)

    async def Export(  # noqa: N802
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: object
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        self.received.append(request)
        return trace_service_pb2.ExportTraceServiceResponse()

    def spans(self, service: str) -> Iterator[trace_pb2.Span]:
        for request in self.received:
            for resource in request.resource_spans:
                if _attributes(resource.resource)["service.name"] == service:
                    for scope in resource.scope_spans:
                        yield from scope.spans


@asynccontextmanager
async def running_collector() -> AsyncIterator[Collector]:
    collector = Collector()
    server = grpc.aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    collector.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield collector
    finally:
        await server.stop(None)


async def test_spans_of_decisions_and_registrations_reach_the_collector_without_prompts() -> None:
    async with running_collector() as collector:
        config = (
            FREE_PORTS
            + f"telemetry: {{otlp_endpoint: 'http://{collector.address}', log_format: json, log_decisions: 1.0}}\n"
        )
        async with (
            running_engine(EngineShape(model="m")) as engine,
            running_system(config) as system,
            system.node(engine.url, "n", "--max-sequences", "4", "--format", "fp16"),
        ):
            await system.until_pools("m/full/short/on_demand")
            body = {"model": "m", "messages": [{"role": "user", "content": "the word is xylophonist"}]}
            headers = {"authorization": "Bearer sk-secret-key", "x-session-id": "session-of-a-client"}
            response = await system.http.post("/v1/chat/completions", json=body, headers=headers)
            assert response.status_code == 200
            await system.recorded(response)
            request_id = response.headers["x-request-id"]
            await until(lambda: request_id in system.log("control-plane"))
            log = system.log("control-plane")
        decisions = [json.loads(line).get("decision", {}) for line in log.splitlines()]
        (decision,) = (each for each in decisions if each.get("request_id") == request_id)
        assert (decision["pool"], decision["status"], decision["sla"]) == ("m/full/short/on_demand", 200, "met")
        # The batches that were not sent yet are sent at the end.
        await until(lambda: any(s.name == "headrace.register" for s in collector.spans("headrace-controlplane")))
        await until(lambda: any(_pool_of(s) for s in collector.spans("headrace-ext-proc")))
        decided = [s for s in collector.spans("headrace-ext-proc") if _pool_of(s)]
        assert [span.name for span in decided] == ["headrace.decide"]
        assert _pool_of(decided[0]) == "m/full/short/on_demand"
        registered = next(s for s in collector.spans("headrace-controlplane") if s.name == "headrace.register")
        assert _attributes(registered)["headrace.node_id"] == "n"
        everything = b"".join(request.SerializeToString() for request in collector.received)
        for secret in (b"xylophonist", b"sk-secret-key", b"session-of-a-client"):
            assert secret not in everything
            assert secret.decode() not in log


def _pool_of(span: trace_pb2.Span) -> str:
    return _attributes(span).get("headrace.pool", "")


def _attributes(of: object) -> dict[str, str]:
    return {attribute.key: attribute.value.string_value for attribute in getattr(of, "attributes")}  # noqa: B009
