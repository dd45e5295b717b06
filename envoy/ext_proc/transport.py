"""The gRPC side of the filter: streams from Envoy in, one answer each out.

A transport drives one Exchange per stream, asks `answer` once the request is whole, sends the answer and ends the
stream. `answer` may have Envoy told that it takes longer, and is cancelled when Envoy ends the stream meanwhile, as it
does when the client leaves. The one here runs on grpc.aio and is the reference; `http2_transport` has our own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import grpc

from controlplane.grpc_serving import Health, bind, new_server
from controlplane.model import HttpRequest
from ext_proc import usage_log, wire
from ext_proc.answer import Answer
from ext_proc.exchange import Exchange, TooLarge
from ext_proc.usage_log import UsageLog, UsageLogServicer, UsedBy
from ext_proc.waiting import Extend
from headrace_protos.envoy.service.accesslog.v3 import als_pb2_grpc
from headrace_protos.envoy.service.ext_proc.v3 import external_processor_pb2 as messages
from headrace_protos.envoy.service.ext_proc.v3 import external_processor_pb2_grpc

SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
MAX_CONCURRENT_STREAMS = 10_000
MESSAGE_OVERHEAD_BYTES = 1 << 20

AnswerTo = Callable[[HttpRequest | TooLarge, Extend], Awaitable[Answer]]


class Transport(Protocol):
    """Serves ext_proc, Envoy's access log of what requests used, health and reflection, at `address`."""

    health: Health
    address: str

    async def start(self) -> None: ...

    async def stop(self, grace: float) -> None:
        """Refuse new streams, and give those that run `grace` seconds to be answered."""


class NewTransport(Protocol):
    """Makes a transport that serves at `listen`. `answer` must not raise; `used` is told what requests used that were
    charged. Raises OSError when the address cannot be had."""

    def __call__(self, listen: str, answer: AnswerTo, used: UsedBy, *, max_body_bytes: int) -> Transport: ...


class GrpcAioTransport:
    """A NewTransport."""

    def __init__(self, listen: str, answer: AnswerTo, used: UsedBy, *, max_body_bytes: int) -> None:
        self.health = Health([SERVICE, usage_log.SERVICE])
        self._server = new_server(
            [SERVICE, usage_log.SERVICE],
            self.health,
            max_message_bytes=max_body_bytes + MESSAGE_OVERHEAD_BYTES,  # Envoy may send a body in one piece
            max_concurrent_streams=MAX_CONCURRENT_STREAMS,
        )
        external_processor_pb2_grpc.add_ExternalProcessorServicer_to_server(
            _Servicer(answer, max_body_bytes), self._server
        )
        als_pb2_grpc.add_AccessLogServiceServicer_to_server(UsageLogServicer(UsageLog(used)), self._server)
        self.address = bind(self._server, listen)

    async def start(self) -> None:
        await self._server.start()

    async def stop(self, grace: float) -> None:
        """Refuse new streams, and give those that run `grace` seconds to be answered."""
        await self.health.set_ready(False)
        await self._server.stop(grace)


class _Servicer(external_processor_pb2_grpc.ExternalProcessorServicer):
    def __init__(self, answer: AnswerTo, max_body_bytes: int) -> None:
        self._answer = answer
        self._max_body_bytes = max_body_bytes

    async def Process(  # noqa: N802 - gRPC's name
        self,
        request_iterator: AsyncIterator[messages.ProcessingRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> None:
        async def extend(seconds: float) -> None:
            await context.write(wire.extension(seconds))

        exchange = Exchange(self._max_body_bytes)
        async for message in request_iterator:
            request = wire.take(exchange, message)
            if request is not None:
                await context.write(wire.response(await self._answer(request, extend)))
                return
