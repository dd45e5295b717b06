"""The HTTP server beside gRPC, over real sockets: what it answers, and what it does not put up with."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import httpx
import pytest
import pytest_asyncio

from controlplane import http_serving
from controlplane.http_serving import JSON, MOST_CONNECTIONS, MOST_HEAD_BYTES, Answer, Question, serving_http
from support.waiting import until

LARGE = b"x" * 20_000_000


async def echo(question: Question) -> Answer:
    return Answer(200, repr(question.parameters).encode(), JSON, (("x-seen", question.headers.get("x-sent", "")),))


async def fail(_: Question) -> Answer:
    raise ValueError("the secret is 42")


async def large(_: Question) -> Answer:
    return Answer(200, LARGE)


async def unsendable(_: Question) -> Answer:
    return Answer(200, b"", headers=(("x", "a\r\nb"),))


ROUTES = {"/echo": echo, "/fail": fail, "/large": large, "/unsendable": unsendable}


@pytest_asyncio.fixture
async def address() -> AsyncIterator[str]:
    async with serving_http("127.0.0.1:0", ROUTES) as address:
        yield address


@asynccontextmanager
async def client(address: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False, timeout=30) as http:
        yield http


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def said(address: str, raw: bytes) -> bytes:
    """All that is answered to these bytes."""
    async with connected(address) as (reader, writer):
        writer.write(raw)
        return await reader.read()


async def test_a_question_is_answered_with_its_parameters_and_headers_and_the_connection_closed(address: str) -> None:
    async with client(address) as http:
        answer = await http.get("/echo?a=1&b=%20x&a=", headers={"X-Sent": "yes"})
    assert answer.status_code == 200
    assert answer.text == "(('a', '1'), ('b', ' x'), ('a', ''))"
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-seen"] == "yes"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["connection"] == "close"


async def test_head_gets_the_head_alone(address: str) -> None:
    answer = await said(address, b"HEAD /echo HTTP/1.1\r\nhost: x\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-length: 2" in head
    assert body == b""


async def test_http_1_0_is_answered_too(address: str) -> None:
    assert (await said(address, b"GET /echo HTTP/1.0\r\n\r\n")).endswith(b"\r\n\r\n()")


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n", 404),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n", 405),
        (b"GET /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello", 413),
        (b"GET /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 413),
        (b"GET /echo?a=%ff HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET /echo?" + b"a&" * 65 + b" HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET http://[x/ HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\n\r\n", 400),  # HTTP/1.1 needs a host
        (b"hello\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),  # TLS
        (b"GET /echo HTTP/1.1\r\nhost: x\r\nx: " + b"y" * MOST_HEAD_BYTES, 431),
    ],
)
async def test_what_cannot_be_asked_is_refused_with_its_reason(address: str, raw: bytes, status: int) -> None:
    answer = await said(address, raw)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert answer.partition(b"\r\n\r\n")[2].strip()


async def test_a_fault_is_logged_and_not_told(address: str, caplog: pytest.LogCaptureFixture) -> None:
    async with client(address) as http:
        answer = await http.get("/fail")
        assert (await http.get("/echo")).status_code == 200
    assert answer.status_code == 500
    assert "42" not in answer.text
    assert "the secret is 42" in caplog.text


async def test_an_answer_that_cannot_be_sent_ends_its_own_connection_alone(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert await said(address, b"GET /unsendable HTTP/1.1\r\nhost: x\r\n\r\n") == b""
    assert "an HTTP connection failed" in caplog.text
    async with client(address) as http:
        assert (await http.get("/echo")).status_code == 200


async def test_whoever_says_too_little_too_slowly_is_cut_off(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_serving, "QUESTION_SECONDS", 0.05)
    for beginning in (b"", b"GET /echo HTTP/1.1\r\nhost:"):
        assert await said(address, beginning) == b""


async def test_whoever_does_not_take_the_answer_is_cut_off(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_serving, "ANSWER_SECONDS", 0.2)
    idle = len(asyncio.all_tasks())
    with socket.create_connection(address.rsplit(":", 1)) as taker:
        taker.sendall(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
        await until(lambda: len(asyncio.all_tasks()) > idle)
        await until(lambda: len(asyncio.all_tasks()) == idle)
        taken = 0
        with suppress(ConnectionResetError):
            while piece := taker.recv(65536):
                taken += len(piece)
    assert taken < len(LARGE)


async def test_idle_connections_keep_nobody_out(address: str) -> None:
    async with AsyncExitStack() as stack:
        idle = [await stack.enter_async_context(connected(address)) for _ in range(3 * MOST_CONNECTIONS)]
        async with client(address) as http:
            for _ in range(5):
                assert (await http.get("/echo")).status_code == 200
        oldest, _ = idle[0]
        assert await asyncio.wait_for(oldest.read(), 60) == b""


async def test_the_end_closes_what_is_open() -> None:
    async with AsyncExitStack() as stack:
        async with serving_http("127.0.0.1:0", ROUTES) as address:
            reader, writer = await stack.enter_async_context(connected(address))
            writer.write(b"GET")
            await said(address, b"GET /echo HTTP/1.1\r\nhost: x\r\n\r\n")  # so the other one has been taken
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        with pytest.raises(ConnectionRefusedError):
            await said(address, b"")


async def test_an_address_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(OSError, match=f"cannot serve HTTP on {address}: Address already in use"):
            async with serving_http(address, ROUTES):
                pass


async def test_a_named_host_and_ipv6_can_be_listened_on() -> None:
    async with serving_http("localhost:0", ROUTES) as address, client(address) as http:
        assert (await http.get("/echo")).status_code == 200
    async with serving_http("[::1]:0", ROUTES) as address, client(address) as http:
        assert address.startswith("[::1]:")
        assert (await http.get("/echo")).status_code == 200
