"""The server on real sockets: what only they can do wrong."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from ext_proc.http2 import frames, server
from ext_proc.http2.connection import Limits
from ext_proc.http2.grpc import Call
from ext_proc.http2.server import GrpcServer
from support.filter import headers_message, pool_of, running_filter
from support.http2 import OPENING, data, request, said
from support.waiting import until

LARGE = 256 << 10


class Large:
    """Answers each message by a large one."""

    answered = 0

    def __init__(self, call: Call) -> None:
        self._call = call

    def take(self, message: bytes) -> None:
        Large.answered += 1
        self._call.send(b"x" * LARGE)
        self._call.finish()

    def half_close(self) -> None:
        pass

    def end(self) -> None:
        pass


@asynccontextmanager
async def serving(listen: str = "127.0.0.1:0") -> AsyncIterator[GrpcServer]:
    served = GrpcServer(listen, {"/test.Test/Test": Large}, limits=Limits(), most_message_bytes=100)
    await served.start()
    try:
        yield served
    finally:
        await served.stop(0.0)


async def connected(served: GrpcServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if served.address.startswith("unix:"):
        return await asyncio.open_unix_connection(served.address.removeprefix("unix:"))
    host, _, port = served.address.rpartition(":")
    return await asyncio.open_connection(host.strip("[]"), int(port))


async def exchanged(served: GrpcServer) -> None:
    """One call, to its end."""
    reader, writer = await connected(served)
    windows = frames.settings([(frames.INITIAL_WINDOW_SIZE, 1 << 20)]) + frames.window_update(0, 1 << 20)
    writer.write(frames.PREFACE + windows + request() + data(1, b"\0\0\0\0\1x", end=True))
    frame_reader = frames.FrameReader(1 << 14)
    list(frame_reader.take(frames.PREFACE))
    while True:
        for kind, flags, _, _ in frame_reader.take(await reader.read(1 << 16)):
            if kind == frames.HEADERS and flags & frames.END_STREAM:
                writer.close()
                await writer.wait_closed()
                return


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0"])
async def test_it_listens_where_it_is_told(host: str) -> None:
    if host == "[::1]" and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    async with serving(f"{host}:0") as served:
        assert served.address.rpartition(":")[0] == host
        await exchanged(served)


async def test_a_unix_socket_left_by_a_killed_server_is_taken_over_and_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "filter.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    async with serving(f"unix:{path}") as served:
        await exchanged(served)
    assert not path.exists()


async def test_an_address_that_is_taken_is_an_error_that_names_it(tmp_path: Path) -> None:
    async with serving() as served:
        with pytest.raises(OSError, match=f"cannot listen on {served.address}"):
            GrpcServer(served.address, {}, limits=Limits(), most_message_bytes=100)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match="cannot listen on unix:"):
        GrpcServer(f"unix:{tmp_path}/file", {}, limits=Limits(), most_message_bytes=100)
    assert (tmp_path / "file").read_text() == "mine"


async def test_a_client_that_does_not_read_is_not_read_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Large, "answered", 0)
    calls = 400
    async with serving() as served:
        reader, writer = await connected(served)
        # Windows that never end: only the socket holds the server back.
        windows = frames.settings([(frames.INITIAL_WINDOW_SIZE, (1 << 31) - 1)]) + frames.window_update(0, 1 << 30)
        writer.write(frames.PREFACE + windows)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        for n in range(calls):
            writer.write(request(2 * n + 1) + data(2 * n + 1, b"\0\0\0\0\1x", end=True))
            await asyncio.sleep(0)
        [peer] = served._peers
        await until(lambda: not peer._transport.is_reading())
        assert Large.answered < calls
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        frame_reader = frames.FrameReader(1 << 14)
        list(frame_reader.take(frames.PREFACE))
        ended = 0
        while ended < calls:
            for kind, flags, _, _ in frame_reader.take(await reader.read(1 << 20)):
                ended += kind == frames.HEADERS and bool(flags & frames.END_STREAM)
        writer.close()


async def test_a_client_that_vanished_is_let_go_and_one_that_answers_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SILENCE_SECONDS", 0.1)
    async with serving() as served:
        silent = await connected(served)
        silent[1].write(OPENING)
        lively = await connected(served)
        lively[1].write(OPENING)
        await until(lambda: len(served._peers) == 2)

        answered = 0

        async def answer_pings() -> None:
            nonlocal answered
            while out := await lively[0].read(1 << 16):
                for kind, flags, _, payload in said(out):
                    if kind == frames.PING and not flags & frames.ACK:
                        lively[1].write(frames.frame(frames.PING, frames.ACK, 0, payload))
                        answered += 1

        async with asyncio.TaskGroup() as tasks:
            answering = tasks.create_task(answer_pings())
            await until(lambda: len(served._peers) == 1)
            assert (await silent[0].read())[:9]  # and is told no more
            before = answered
            await until(lambda: answered >= before + 3)
            assert len(served._peers) == 1
            answering.cancel()
        for _, writer in (silent, lively):
            writer.close()


async def test_it_stops_while_a_client_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as served:
        _, writer = await connected(served)
        windows = frames.settings([(frames.INITIAL_WINDOW_SIZE, (1 << 31) - 1)]) + frames.window_update(0, 1 << 30)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        calls = b"".join(request(n) + data(n, b"\0\0\0\0\1x") for n in range(1, 200, 2))
        writer.write(frames.PREFACE + windows + calls)
        await until(lambda: served._peers and not next(iter(served._peers))._transport.is_reading())
        await served.stop(0.05)
        assert not served._peers
        writer.close()


def test_it_serves_on_uvloop() -> None:
    async def ask() -> None:
        async with running_filter() as client:
            [answer] = await client.send(headers_message(method="GET", path="/v1/models", end=True))
            assert answer.immediate_response.status.code == 200
            assert pool_of(await client.ask({"model": "llama", "temperature": 0})) == "llama/full/short/on_demand"

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(ask())
