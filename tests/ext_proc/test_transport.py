"""Both transports by gRPC's own client, driven as Envoy drives them and as nothing sane would."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from controlplane.model import HttpRequest
from ext_proc.answer import Answer, Route
from ext_proc.exchange import TooLarge
from ext_proc.transport import SERVICE
from ext_proc.waiting import Extend
from headrace_protos.envoy.service.ext_proc.v3 import external_processor_pb2 as messages
from support.filter import (
    TRANSPORTS,
    AnyTransport,
    Client,
    body_message,
    connected,
    headers_message,
    not_used,
    pool_of,
    running_filter,
)
from support.waiting import until


@pytest.fixture(params=TRANSPORTS)
def kind(request: pytest.FixtureRequest) -> AnyTransport:
    kind: AnyTransport = request.param
    return kind


class Pending:
    """Answers when it is told to, and counts who waits and who left."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.waiting = 0
        self.most_waiting = 0
        self.left = 0
        self.requests: list[HttpRequest | TooLarge] = []

    async def answer(self, request: HttpRequest | TooLarge, extend: Extend) -> Answer:
        self.requests.append(request)
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.left += 1
            raise
        finally:
            self.waiting -= 1
        size = len(request.body) if isinstance(request, HttpRequest) else -1
        return Route(f"pool-{size}", {})


async def test_the_answer_comes_once_the_body_has_ended_and_then_the_stream_ends(kind: AnyTransport) -> None:
    async with running_filter(kind=kind) as client:
        call = client.open()
        await call.write(headers_message())
        await call.write(body_message(b'{"model": "llama",'))
        reading = asyncio.create_task(call.read())
        await call.write(body_message(b' "temperature": 0}', end=True))
        answer = await reading
        assert pool_of(answer) == "llama/full/short/on_demand"
        assert answer.request_headers.response.clear_route_cache
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_a_request_without_a_body_is_answered_by_its_headers(kind: AnyTransport) -> None:
    async with running_filter(kind=kind) as client:
        [answer] = await client.send(headers_message(method="GET", path="/v1/models", end=True))
        assert answer.immediate_response.status.code == 200


async def test_many_streams_at_once_are_kept_apart(kind: AnyTransport) -> None:
    pending = Pending()
    async with running_filter(pending.answer, kind=kind) as client:
        sent = [
            asyncio.create_task(client.send(headers_message(), body_message(b"x" * n, end=True))) for n in range(300)
        ]
        await until(lambda: pending.waiting == 300)
        pending.go.set()
        answers = await asyncio.gather(*sent)
    assert [[pool_of(answer) for answer in each] for each in answers] == [[f"pool-{n}"] for n in range(300)]


async def test_more_streams_than_allowed_wait_or_are_refused_as_envoy_retries(
    kind: AnyTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[kind.__module__], "MAX_CONCURRENT_STREAMS", 3)
    pending = Pending()
    async with running_filter(pending.answer, kind=kind) as client:
        sent = [asyncio.create_task(client.send(headers_message(end=True))) for _ in range(9)]
        await until(lambda: pending.waiting == 3)
        pending.go.set()
        ended = await asyncio.gather(*sent, return_exceptions=True)
    answered = [answers for answers in ended if isinstance(answers, list)]
    refused = [error for error in ended if isinstance(error, grpc.aio.AioRpcError)]
    assert len(answered) >= 3
    assert len(answered) + len(refused) == 9
    # gRPC's client says INTERNAL where it was still writing when it was refused.
    assert {error.code() for error in refused} <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL}
    assert pending.most_waiting == 3


async def test_a_client_that_resets_the_stream_within_the_body_leaves_nothing_behind(kind: AnyTransport) -> None:
    pending = Pending()
    before = len(asyncio.all_tasks())
    async with running_filter(pending.answer, kind=kind) as client:
        for _ in range(20):
            call = client.open()
            await call.write(headers_message())
            await call.write(body_message(b"{"))
            call.cancel()
        await client.send(headers_message(), body_message(b"", end=False))
        assert pending.requests == []
    await until(lambda: len(asyncio.all_tasks()) <= before)


async def test_a_client_that_leaves_while_it_waits_is_noticed(kind: AnyTransport) -> None:
    pending = Pending()
    async with running_filter(pending.answer, kind=kind) as client:
        calls = [client.open() for _ in range(20)]
        for call in calls:
            await call.write(headers_message(end=True))
        await until(lambda: pending.waiting == 20)
        for call in calls[:15]:
            call.cancel()
        await until(lambda: pending.left == 15)
        pending.go.set()
        for call in calls[15:]:
            assert pool_of(await call.read()) == "pool-0"
    assert pending.waiting == 0


async def test_a_stream_that_the_client_ends_before_the_request_is_whole_ends_without_an_answer(
    kind: AnyTransport,
) -> None:
    async with running_filter(kind=kind) as client:
        assert await client.send() == []
        assert await client.send(headers_message()) == []
        assert await client.send(headers_message(), body_message(b"{}")) == []


async def test_messages_of_other_kinds_are_passed_over(kind: AnyTransport) -> None:
    async with running_filter(kind=kind) as client:
        answers = await client.send(
            messages.ProcessingRequest(),
            headers_message(),
            messages.ProcessingRequest(response_headers=messages.HttpHeaders(end_of_stream=True)),
            messages.ProcessingRequest(request_trailers=messages.HttpTrailers()),
            body_message(b'{"model": "llama"}', end=True),
        )
        assert len(answers) == 1


async def test_a_body_over_the_limit_is_a_413_however_it_comes(kind: AnyTransport) -> None:
    async with running_filter(max_body_bytes=1000, kind=kind) as client:
        whole = await client.send(headers_message(), body_message(b"x" * 1001, end=True))
        pieces = await client.send(headers_message(), body_message(b"x" * 600), body_message(b"x" * 600))
        announced = await client.send(headers_message({"content-length": "1001"}))
    for [answer] in (whole, pieces, announced):
        assert answer.immediate_response.status.code == 413


async def test_a_message_that_is_far_too_large_ends_only_its_own_stream(kind: AnyTransport) -> None:
    async with running_filter(max_body_bytes=1000, kind=kind) as client:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await client.send(headers_message(), body_message(b"x" * (3 << 20), end=True))
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await client.ask({"model": "llama"})).HasField("request_headers")


async def test_a_body_as_large_as_allowed_is_taken_in_one_message(kind: AnyTransport) -> None:
    pending = Pending()
    pending.go.set()
    size = 10 << 20
    async with running_filter(pending.answer, kind=kind, max_body_bytes=size) as client:
        [answer] = await client.send(headers_message(), body_message(b"x" * size, end=True))
    assert pool_of(answer) == f"pool-{size}"


async def health(client: Client, service: str = "") -> str:
    check = health_pb2_grpc.HealthStub(client.channel).Check  # type: ignore[attr-defined]
    answer = await check(health_pb2.HealthCheckRequest(service=service))
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


async def test_health_is_that_of_the_router_and_liveness_that_of_the_process(kind: AnyTransport) -> None:
    served = kind("127.0.0.1:0", Pending().answer, not_used, max_body_bytes=10)
    await served.health.set_ready(False)
    await served.start()
    async with connected(served.address) as client:
        names = ("", "readiness", SERVICE, "liveness")
        assert [await health(client, name) for name in names] == ["NOT_SERVING"] * 3 + ["SERVING"]
        await served.health.set_ready(True)
        assert [await health(client, name) for name in names] == ["SERVING"] * 4
    await served.stop(0)


async def test_it_serves_on_a_unix_socket(kind: AnyTransport, tmp_path: Path) -> None:
    pending = Pending()
    pending.go.set()
    served = kind(f"unix:{tmp_path}/filter.sock", pending.answer, not_used, max_body_bytes=10)
    await served.start()
    async with connected(served.address) as client:
        [answer] = await client.send(headers_message(), body_message(b"four", end=True))
        assert pool_of(answer) == "pool-4"
    await served.stop(0)


async def test_watching_health_tells_each_change(kind: AnyTransport) -> None:
    served = kind("127.0.0.1:0", Pending().answer, not_used, max_body_bytes=10)
    await served.health.set_ready(False)
    await served.start()
    async with connected(served.address) as client:
        watch = health_pb2_grpc.HealthStub(client.channel).Watch  # type: ignore[attr-defined]
        calls = [watch(health_pb2.HealthCheckRequest(service=name)) for name in (SERVICE, "no such service")]
        told = [await call.read() for call in calls]
        await served.health.set_ready(True)
        told.append(await calls[0].read())
        statuses = [health_pb2.HealthCheckResponse.ServingStatus.Name(each.status) for each in told]
        assert statuses == ["NOT_SERVING", "SERVICE_UNKNOWN", "SERVING"]
        for call in calls:
            call.cancel()
    await served.stop(0)


async def test_a_deadline_ends_the_wait(kind: AnyTransport) -> None:
    pending = Pending()
    async with running_filter(pending.answer, kind=kind) as client:
        call = client.stub.Process(timeout=0.2)
        await call.write(headers_message(end=True))
        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: pending.left == 1)


async def test_bytes_that_are_no_message_end_only_their_stream(kind: AnyTransport) -> None:
    async with running_filter(kind=kind) as client:
        process = client.channel.stream_stream(f"/{SERVICE}/Process")
        call = process()
        await call.write(b"\xff\xff")
        assert await call.code() in {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}
        unknown = client.channel.unary_unary("/no.Such/Method")(b"")
        assert await unknown.code() is grpc.StatusCode.UNIMPLEMENTED
        assert (await client.ask({"model": "llama"})).HasField("request_headers")


async def test_a_stop_lets_requests_be_answered_that_have_begun(kind: AnyTransport) -> None:
    pending = Pending()
    served = kind("127.0.0.1:0", pending.answer, not_used, max_body_bytes=10)
    await served.start()
    async with connected(served.address) as client, connected(served.address) as late:
        begun = asyncio.create_task(client.send(headers_message(end=True)))
        await until(lambda: pending.waiting == 1)
        stopping = asyncio.create_task(served.stop(30.0))
        await asyncio.sleep(0)  # lets it begin
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await late.send(headers_message(end=True))
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        pending.go.set()
        [answer] = await begun
        assert pool_of(answer) == "pool-0"
        await stopping


async def test_a_stop_waits_no_longer_than_its_grace(kind: AnyTransport) -> None:
    pending = Pending()
    served = kind("127.0.0.1:0", pending.answer, not_used, max_body_bytes=10)
    await served.start()
    async with connected(served.address) as client:
        begun = asyncio.create_task(client.send(headers_message(end=True)))
        await until(lambda: pending.waiting == 1)
        await served.stop(0.05)
        with pytest.raises(grpc.aio.AioRpcError):
            await begun
        await until(lambda: pending.left == 1)


async def test_an_answer_that_takes_longer_says_so_before_it_comes(kind: AnyTransport) -> None:
    async def answer(_: HttpRequest | TooLarge, extend: Extend) -> Answer:
        await extend(31.5)
        return Route("pool", {})

    async with running_filter(answer, kind=kind) as client:
        first, last = await client.send(headers_message(end=True))
        assert first.override_message_timeout.ToTimedelta().total_seconds() == 31.5
        assert first.WhichOneof("response") is None
        assert pool_of(last) == "pool"
