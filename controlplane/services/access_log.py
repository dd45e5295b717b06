"""Receives Envoy's access log: one stream per Envoy worker, each entry a request with its decision and outcome."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from controlplane.ledger.ended import Ended
from controlplane.ledger.entry import ended_request
from controlplane.ledger.sessions import SessionHistory
from headrace_protos.envoy.service.accesslog.v3 import als_pb2, als_pb2_grpc

SERVICE = "envoy.service.accesslog.v3.AccessLogService"


class AccessLogServicer(als_pb2_grpc.AccessLogServiceServicer):
    def __init__(self, tell: Callable[[Ended], None], sessions: SessionHistory) -> None:
        self._tell = tell
        self._sessions = sessions

    async def StreamAccessLogs(  # noqa: N802 - gRPC's name
        self,
        request_iterator: AsyncIterator[als_pb2.StreamAccessLogsMessage],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> als_pb2.StreamAccessLogsResponse:
        async for message in request_iterator:
            for entry in message.http_logs.log_entry:
                self._tell(ended_request(entry, self._sessions))
        return als_pb2.StreamAccessLogsResponse()
