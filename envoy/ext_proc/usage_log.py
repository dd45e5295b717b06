"""Receives Envoy's access log of requests that were charged, and tells what they really used."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

import grpc

from ext_proc.names import KEY_BILL, NAMESPACE, USAGE_KEYS, USAGE_NAMESPACE
from headrace_protos.envoy.data.accesslog.v3 import accesslog_pb2
from headrace_protos.envoy.service.accesslog.v3 import als_pb2, als_pb2_grpc

MOST_TOKENS = 2**31
SERVICE = "envoy.service.accesslog.v3.AccessLogService"


class UsedBy(Protocol):
    """`RateLimits.used`."""

    def __call__(self, note: str, tokens: int | None, *, failed: bool) -> None: ...


class UsageLog:
    """Passes on to `used` what stands in the messages."""

    def __init__(self, used: UsedBy) -> None:
        self._used = used

    def take(self, message: als_pb2.StreamAccessLogsMessage) -> None:
        for entry in message.http_logs.log_entry:
            self._take(entry)

    def _take(self, entry: accesslog_pb2.HTTPAccessLogEntry) -> None:
        metadata = entry.common_properties.metadata.filter_metadata
        if NAMESPACE not in metadata or KEY_BILL not in metadata[NAMESPACE].fields:
            return
        counts = metadata[USAGE_NAMESPACE].fields if USAGE_NAMESPACE in metadata else {}
        found = [int(n) for key in USAGE_KEYS if key in counts and 0 <= (n := counts[key].number_value) < MOST_TOKENS]
        self._used(
            metadata[NAMESPACE].fields[KEY_BILL].string_value,
            sum(found) if found else None,
            failed=entry.response.response_code.value >= 400,
        )


class UsageLogServicer(als_pb2_grpc.AccessLogServiceServicer):
    """For grpc.aio."""

    def __init__(self, log: UsageLog) -> None:
        self._log = log

    async def StreamAccessLogs(  # noqa: N802 - gRPC's name
        self,
        request_iterator: AsyncIterator[als_pb2.StreamAccessLogsMessage],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> als_pb2.StreamAccessLogsResponse:
        async for message in request_iterator:
            self._log.take(message)
        return als_pb2.StreamAccessLogsResponse()
