"""The filter's router and transport in this process, and a client that speaks to it as Envoy does."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from controlplane.model import Decision
from controlplane.policy.table import RoutingTable
from ext_proc.credits import Credits
from ext_proc.debts import MemoryDebts
from ext_proc.http2_transport import Http2Transport
from ext_proc.keys import NO_KEYS, Keys
from ext_proc.limits import RateLimits
from ext_proc.pins import MemoryPins, PinStore
from ext_proc.router import Router
from ext_proc.transport import AnswerTo, GrpcAioTransport
from ext_proc.usage_log import UsedBy
from ext_proc.waiting import Line
from headrace_protos.envoy.service.ext_proc.v3 import external_processor_pb2 as messages
from headrace_protos.envoy.service.ext_proc.v3 import external_processor_pb2_grpc
from headrace_protos.headrace.v1 import decision_pb2
from support.asks import make_pool, make_table

MAX_BODY = 1 << 20
TRANSPORTS = (Http2Transport, GrpcAioTransport)
AnyTransport = type[Http2Transport | GrpcAioTransport]
READY_TABLE = make_table(
    make_pool("full"),
    make_pool("quantized", served_name="llama-awq", aliases=("llama-alias",)),
    make_pool("full", "long"),
)


@dataclass
class Decided:
    """An observer that keeps what it was told."""

    decisions: list[Decision] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    rates: list[str] = field(default_factory=list)

    def decided(self, decision: Decision, seconds: float) -> None:
        assert seconds >= 0
        self.decisions.append(decision)

    def waiting(self, count: int) -> None:
        self.counts.append(count)

    def rate_checked(self, outcome: str) -> None:
        self.rates.append(outcome)

    def rate_corrected(self, outcome: str) -> None:
        self.rates.append(f"corrected: {outcome}")

    def wait_ended(self, outcome: str, seconds: float) -> None:
        assert seconds >= 0
        self.outcomes.append(outcome)


def new_router(
    table: Callable[[], RoutingTable | None] | RoutingTable | None = READY_TABLE,
    pins: PinStore | None = None,
    observer: Decided | None = None,
    line: Line | None = None,
    *,
    keys: Keys = NO_KEYS,
    rates: RateLimits | None = None,
) -> Router:
    observer = observer or Decided()
    read = table if callable(table) else lambda: table
    return Router(
        read,
        MemoryPins(lambda: 0.0) if pins is None else pins,
        new_line(observer=observer) if line is None else line,
        observer,
        lambda: 0.5,
        rates=rates or RateLimits(MemoryDebts(time.monotonic), observer),
        keys=keys,
    )


def new_line(credits_: Credits | None = None, observer: Decided | None = None, *, max_wait: float = 30.0) -> Line:
    """Without credits of its own it is one in which nobody waits."""
    return Line(credits_ or Credits(time.monotonic), observer or Decided(), time.monotonic, max_wait=max_wait)


async def not_extended(seconds: float) -> None:
    """Of a request that Envoy waits for long enough anyway."""
    raise AssertionError(f"asked for {seconds} s more")


def not_used(note: str, tokens: int | None, *, failed: bool) -> None:
    """Of a filter that charges nobody."""
    raise AssertionError(f"told of what was used: {note}")


@dataclass(frozen=True, slots=True)
class Client:
    """Opens ext_proc streams to one filter."""

    stub: external_processor_pb2_grpc.ExternalProcessorStub
    channel: grpc.aio.Channel
    address: str

    def open(self) -> Any:
        """A stream, to write to and read from."""
        return self.stub.Process()

    async def send(self, *parts: messages.ProcessingRequest) -> list[messages.ProcessingResponse]:
        """All answers to a stream of these messages, which the client then half-closes."""
        return [answer async for answer in self.stub.Process(_each(parts))]

    async def ask(self, body: bytes | Mapping[str, Any], **headers: str) -> messages.ProcessingResponse:
        """The answer to a chat request."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        [answer] = await self.send(headers_message(named), body_message(data, end=True))
        return answer


async def _each(parts: Iterable[messages.ProcessingRequest]) -> AsyncIterator[messages.ProcessingRequest]:
    for part in parts:
        yield part


@asynccontextmanager
async def running_filter(
    answer: AnswerTo | None = None,
    *,
    used: UsedBy = not_used,
    max_body_bytes: int = MAX_BODY,
    kind: AnyTransport = Http2Transport,
) -> AsyncIterator[Client]:
    """The transport over the answers of a router with READY_TABLE, or over `answer`."""
    transport = kind("127.0.0.1:0", answer or new_router().answer, used, max_body_bytes=max_body_bytes)
    await transport.health.set_ready(True)
    await transport.start()
    try:
        async with connected(transport.address) as client:
            yield client
    finally:
        await transport.stop(0)


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Client]:
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(address, options) as channel:
        yield Client(external_processor_pb2_grpc.ExternalProcessorStub(channel), channel, address)


def headers_message(
    more: Mapping[str, str] | None = None,
    *,
    method: str = "POST",
    path: str = "/v1/chat/completions",
    end: bool = False,
) -> messages.ProcessingRequest:
    message = messages.ProcessingRequest()
    for name, value in {":method": method, ":path": path, **(more or {})}.items():
        message.request_headers.headers.headers.add(key=name, raw_value=value.encode())
    message.request_headers.end_of_stream = end
    return message


def body_message(data: bytes, *, end: bool = False) -> messages.ProcessingRequest:
    return messages.ProcessingRequest(request_body=messages.HttpBody(body=data, end_of_stream=end))


def pool_of(answer: messages.ProcessingResponse) -> str:
    """The pool that the answer sends the request to."""
    [option] = answer.request_headers.response.header_mutation.set_headers
    assert option.header.key == "x-headrace-pool"
    return bytes(option.header.raw_value).decode()


def metadata_of(answer: messages.ProcessingResponse) -> dict[str, str]:
    fields = answer.dynamic_metadata.fields["headrace"].struct_value.fields
    return {key: value.string_value for key, value in fields.items()}


def decision_of(metadata: Mapping[str, str]) -> decision_pb2.Decision:
    """The decision as the access log carries it."""
    import base64

    return decision_pb2.Decision.FromString(base64.b64decode(metadata["decision"]))


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
