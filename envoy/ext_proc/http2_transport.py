"""The filter on our own HTTP/2: the same streams and answers as `transport` on grpc.aio, for a fraction of the CPU."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

import msgspec
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from controlplane.grpc_serving import Health
from controlplane.model import HttpRequest
from ext_proc import eager, raw, usage_log, wire
from ext_proc.exchange import Exchange, TooLarge
from ext_proc.http2.connection import Limits
from ext_proc.http2.grpc import Call, Receiver, Status, StatusError
from ext_proc.http2.server import GrpcServer
from ext_proc.transport import MAX_CONCURRENT_STREAMS, MESSAGE_OVERHEAD_BYTES, SERVICE, AnswerTo
from ext_proc.usage_log import UsageLog, UsedBy
from headrace_protos.envoy.service.accesslog.v3 import als_pb2

_log = logging.getLogger(__name__)

_SERVICES: Final = (SERVICE, usage_log.SERVICE)


class Http2Transport:
    """A NewTransport."""

    def __init__(self, listen: str, answer: AnswerTo, used: UsedBy, *, max_body_bytes: int) -> None:
        self.health = Health(_SERVICES)
        self._answers: set[asyncio.Task[None]] = set()
        log = UsageLog(used)
        named = reflection.ReflectionServicer((*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME))
        reader = raw.Reader()

        def process(call: Call) -> Receiver:
            return _Process(call, reader, Exchange(max_body_bytes), answer, self._answers)

        self._server = GrpcServer(
            listen,
            {
                f"/{SERVICE}/Process": process,
                f"/{usage_log.SERVICE}/StreamAccessLogs": partial(_StreamAccessLogs, log),
                f"/{health.SERVICE_NAME}/Check": partial(_Check, self.health),
                f"/{health.SERVICE_NAME}/Watch": partial(_Watch, self.health),
                f"/{reflection.SERVICE_NAME}/ServerReflectionInfo": partial(_Reflect, named),
            },
            limits=Limits(concurrent_streams=MAX_CONCURRENT_STREAMS),
            most_message_bytes=max_body_bytes + MESSAGE_OVERHEAD_BYTES,  # Envoy may send a body in one piece
        )
        self.address = self._server.address

    async def start(self) -> None:
        await self._server.start()

    async def stop(self, grace: float) -> None:
        """Refuse new streams, and give those that run `grace` seconds to be answered."""
        await self.health.set_ready(False)
        await self._server.stop(grace)
        await asyncio.gather(*self._answers, return_exceptions=True)


class _Process(msgspec.Struct, eq=False):
    """ext_proc about one request. An answer that has to wait is a task, which stands in `answers` while it runs."""

    call: Call
    reader: raw.Reader
    exchange: Exchange
    answer: AnswerTo
    answers: set[asyncio.Task[None]]
    task: asyncio.Task[None] | None = None

    def take(self, message: bytes) -> None:
        if self.task is not None:
            return
        try:
            request = self.reader.take(self.exchange, message)
        except DecodeError as error:
            raise StatusError(Status.INTERNAL, "no ProcessingRequest") from error
        if request is not None:
            task = self.task = eager.begin(self._run(request))
            if task is not None:
                self.answers.add(task)
                task.add_done_callback(self.answers.discard)

    def half_close(self) -> None:
        if self.task is None:
            self.call.finish()

    def end(self) -> None:
        if self.task is not None:
            self.task.cancel()

    async def _run(self, request: HttpRequest | TooLarge) -> None:
        try:
            answer = raw.response(await self.answer(request, self._extend))
        except Exception as error:
            _log.error("internal error while answering error=%s", type(error).__name__)
            self.call.finish(Status.INTERNAL, "internal error")
        else:
            self.call.answer(answer)

    async def _extend(self, seconds: float) -> None:
        self.call.send(wire.extension(seconds).SerializeToString())


class _StreamAccessLogs:
    def __init__(self, log: UsageLog, call: Call) -> None:
        self._log = log
        self._call = call

    def take(self, message: bytes) -> None:
        self._log.take(als_pb2.StreamAccessLogsMessage.FromString(message))

    def half_close(self) -> None:
        self._call.send(als_pb2.StreamAccessLogsResponse().SerializeToString())
        self._call.finish()

    def end(self) -> None:
        pass


class _Check:
    """https://github.com/grpc/grpc/blob/master/doc/health-checking.md"""

    def __init__(self, told: Health, call: Call) -> None:
        self._told = told
        self._call = call

    def take(self, message: bytes) -> None:
        status = self._told.statuses.get(health_pb2.HealthCheckRequest.FromString(message).service)
        if status is None:
            raise StatusError(Status.NOT_FOUND, "unknown service")
        self._call.send(health_pb2.HealthCheckResponse(status=status).SerializeToString())
        self._call.finish()

    def half_close(self) -> None:
        raise StatusError(Status.INTERNAL, "no request")

    def end(self) -> None:
        pass


class _Watch:
    """Tells the status now, and whenever it is another."""

    def __init__(self, told: Health, call: Call) -> None:
        self._told = told
        self._call = call
        self._service = ""
        self._last: object = None

    def take(self, message: bytes) -> None:
        self._service = health_pb2.HealthCheckRequest.FromString(message).service
        self._told.watchers.add(self._tell)
        self._tell()

    def half_close(self) -> None:
        pass

    def end(self) -> None:
        self._told.watchers.discard(self._tell)

    def _tell(self) -> None:
        unknown = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        status = self._told.statuses.get(self._service, unknown)
        if status != self._last:
            self._last = status
            self._call.send(health_pb2.HealthCheckResponse(status=status).SerializeToString())


class _Reflect:
    """https://github.com/grpc/grpc/blob/master/doc/server-reflection.md"""

    def __init__(self, named: reflection.ReflectionServicer, call: Call) -> None:
        self._named = named
        self._call = call

    def take(self, message: bytes) -> None:
        request = reflection_pb2.ServerReflectionRequest.FromString(message)
        for answer in self._named.ServerReflectionInfo((request,), None):
            self._call.send(answer.SerializeToString())

    def half_close(self) -> None:
        self._call.finish()

    def end(self) -> None:
        pass
