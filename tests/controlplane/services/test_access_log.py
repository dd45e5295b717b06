"""Envoy's access log stream, as a real client sends it."""

from __future__ import annotations

from controlplane.ledger.sessions import SessionHistory
from controlplane.services.access_log import AccessLogServicer
from headrace_protos.envoy.service.accesslog.v3 import als_pb2, als_pb2_grpc
from headrace_protos.headrace.v1 import decision_pb2
from support.grpc_server import serving


def message(*request_ids: str) -> als_pb2.StreamAccessLogsMessage:
    made = als_pb2.StreamAccessLogsMessage()
    for request_id in request_ids:
        made.http_logs.log_entry.add().request.request_id = request_id
    return made


async def test_each_entry_of_each_message_is_recorded_in_order() -> None:
    recorded: list[decision_pb2.RecordedDecision] = []
    servicer = AccessLogServicer(recorded.append, SessionHistory(60.0))
    async with serving(lambda server: als_pb2_grpc.add_AccessLogServiceServicer_to_server(servicer, server)) as channel:
        stub = als_pb2_grpc.AccessLogServiceStub(channel)
        tcp = als_pb2.StreamAccessLogsMessage()
        tcp.tcp_logs.log_entry.add()
        await stub.StreamAccessLogs(iter([message("a", "b"), message(), tcp, message("c")]))
    assert [each.request_id for each in recorded] == ["a", "b", "c"]
