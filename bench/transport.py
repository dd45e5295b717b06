"""What one exchange with Envoy costs the filter, by transport: exchanges per second, and CPU of the filter for each.

    python bench/transport.py [--sizes 2 50 500] [--seconds 3] [--streams 64] [--profile ANSWER FILE]

A client of raw frames keeps so many exchanges going on one Unix socket, each a message of the headers that Envoy sends
and one of the body, as in the filter's mode (docs/decisions/0005-ext-proc-mode.md), in frames as Envoy makes them. The
filter is a process of its own. It answers by a constant, which leaves the transport, and by the router.
`transport_soak.py` looks for leaks.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import uvloop
from filter_alone import ANSWERS, READY, TRANSPORTS, argv
from policy import _chat

from ext_proc.http2 import fields, frames
from ext_proc.transport import SERVICE
from headrace_protos.envoy.extensions.filters.http.ext_proc.v3 import processing_mode_pb2
from headrace_protos.envoy.service.ext_proc.v3 import external_processor_pb2 as messages

TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[2, 50, 500], help="of bodies, in KB")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--streams", type=int, default=64, help="that are open at a time")
    parser.add_argument(
        "--profile", nargs=2, metavar=("ANSWER", "FILE"), help="profile our transport with this answer, for pstats"
    )
    given = parser.parse_args()
    if given.profile:
        uvloop.run(_measure("h2", given.profile[0], 2, given, given.profile[1]))
        return
    print(f"{'transport':<10}{'answer':<10}{'body':>8}{'exchanges/s':>14}{'CPU of the filter for each':>28}")
    for size in given.sizes:
        for answer in ANSWERS:
            for transport in TRANSPORTS:
                rate, cpu = uvloop.run(_measure(transport, answer, size, given))
                print(f"{transport:<10}{answer:<10}{size:>5} KB{rate:>14,.0f}{cpu * 1e6:>25.1f} us")


async def _measure(
    transport: str, answer: str, size: int, given: argparse.Namespace, profile: str = ""
) -> tuple[float, float]:
    """Exchanges per second, and the filter's CPU seconds for each."""
    with (
        tempfile.TemporaryDirectory() as folder,
        filter_process(transport, answer, Path(folder) / "filter.log", profile) as (pid, address),
    ):
        client = await connected(address, size * 1000, given.streams)
        await client.do(200)
        cpu, began, done = _cpu_seconds(pid), time.perf_counter(), 0
        while (taken := time.perf_counter() - began) < given.seconds:
            await client.do(500)
            done += 500
        used = _cpu_seconds(pid) - cpu
        client.close()
    return done / taken, used / done


@contextmanager
def filter_process(transport: str, answer: str, log: Path, profile: str = "") -> Iterator[tuple[int, str]]:
    """A filter's process id, and where it serves. What it says goes to `log`."""
    address = f"unix:{log.with_suffix('.sock')}"
    words = argv(transport, answer, address, profile)
    with log.open("wb") as output, subprocess.Popen(words, stdout=output) as process:
        try:
            while READY not in log.read_text():
                assert process.poll() is None, "the filter did not start"
                time.sleep(0.05)
            yield process.pid, address
        finally:
            process.send_signal(signal.SIGTERM)


# --- the client ------------------------------------------------------------------------------------------------------


class Client(asyncio.Protocol):
    """Does exchanges, the same one again and again."""

    def __init__(self, body: bytes, streams: int) -> None:
        self._streams = streams
        self._reader = frames.FrameReader(frames.MOST_FRAME_SIZE)
        self._next_id = 1
        self._to_begin = self._to_end = self._taken = 0
        self._window = frames.DEFAULT_WINDOW
        self._waiting: list[tuple[int, memoryview]] = []
        self._done = asyncio.get_running_loop().create_future()
        last = messages.ProcessingRequest(request_body=messages.HttpBody(body=body, end_of_stream=True))
        parts = (_headers_message(len(body)), last)
        self._messages = [_grpc(part.SerializeToString()) for part in parts]
        # It begins with what every peer has to say that was allowed no table (RFC 7541, 4.2).
        self._block = b"\x20" + fields.block(
            (
                (":method", "POST"),
                (":scheme", "http"),
                (":path", f"/{SERVICE}/Process"),
                (":authority", "headrace-ext-proc"),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
                ("x-envoy-internal", "true"),
            )
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # Windows and frames as large as may be: what is measured is the server.
        opening = frames.settings(((frames.INITIAL_WINDOW_SIZE, frames.MOST_WINDOW),))
        self._transport.write(frames.PREFACE + opening + frames.window_update(0, 1 << 30))
        list(self._reader.take(frames.PREFACE))

    async def do(self, exchanges: int) -> None:
        self._to_begin = self._to_end = exchanges
        self._done = asyncio.get_running_loop().create_future()
        self._write(b"".join(self._begin() for _ in range(min(self._streams, exchanges))))
        await self._done

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        out = []
        for kind, flags, stream_id, payload in self._reader.take(data):
            if kind == frames.DATA:
                self._taken += len(payload)
            elif kind == frames.HEADERS and flags & frames.END_STREAM:
                out.append(frames.rst_stream(stream_id, frames.ErrorCode.CANCEL))  # as Envoy does
                self._to_end -= 1
                if self._to_begin:
                    out.append(self._begin())
            elif kind == frames.WINDOW_UPDATE and not stream_id:
                self._window += int.from_bytes(payload, "big")
            elif kind == frames.SETTINGS and not flags & frames.ACK:
                out.append(frames.SETTINGS_ACK)
            elif kind == frames.PING and not flags & frames.ACK:
                out.append(frames.frame(frames.PING, frames.ACK, 0, payload))
            elif kind == frames.RST_STREAM and not any(payload):
                pass  # grpc.aio asks so for the end that is on its way
            elif kind in {frames.RST_STREAM, frames.GOAWAY}:
                raise AssertionError(f"the filter refused: {payload!r}")
        if self._taken > 1 << 24:
            out.append(frames.window_update(0, self._taken))
            self._taken = 0
        out.append(self._uploads())
        self._write(b"".join(out))
        if not self._to_end and not self._done.done():
            self._done.set_result(None)

    def _write(self, data: bytes) -> None:
        if data:
            self._transport.write(data)

    def _begin(self) -> bytes:
        self._to_begin -= 1
        stream_id = self._next_id
        self._next_id += 2
        self._waiting += [(stream_id, memoryview(message)) for message in self._messages]
        head = frames.headers(stream_id, self._block, frames.DEFAULT_FRAME_SIZE, end_stream=False)
        return head + self._uploads()

    def _uploads(self) -> bytes:
        """What the connection's window allows. That of a stream is large enough for these bodies."""
        out = []
        while self._waiting and self._window > 0:
            stream_id, rest = self._waiting.pop(0)
            while rest and self._window > 0:
                piece = rest[: min(frames.DEFAULT_FRAME_SIZE, self._window)]
                rest = rest[len(piece) :]
                self._window -= len(piece)
                out.append(frames.frame(frames.DATA, 0, stream_id, piece))
            if rest:
                self._waiting.insert(0, (stream_id, rest))
        return b"".join(out)


async def connected(address: str, size: int, streams: int) -> Client:
    body = _chat(size).body
    path = address.removeprefix("unix:")
    _, client = await asyncio.get_running_loop().create_unix_connection(lambda: Client(body, streams), path)
    await client.do(1)  # by then the windows are known
    return client


def _headers_message(length: int) -> messages.ProcessingRequest:
    """As Envoy sends it of a request by OpenAI's Python client."""
    message = messages.ProcessingRequest()
    for name, value in (
        (":authority", "gateway.example.com"),
        (":path", "/v1/chat/completions"),
        (":method", "POST"),
        (":scheme", "http"),
        ("accept", "application/json"),
        ("content-type", "application/json"),
        ("user-agent", "OpenAI/Python 1.109.1"),
        ("x-stainless-lang", "python"),
        ("x-stainless-retry-count", "0"),
        ("content-length", str(length)),
        ("x-forwarded-proto", "http"),
        ("x-request-id", "6b1dbe0f-5d29-4e0b-8a4b-6e36ae2fb0b3"),
    ):
        message.request_headers.headers.headers.add(key=name, raw_value=value.encode())
    body_mode = processing_mode_pb2.ProcessingMode.STREAMED
    message.protocol_config.request_body_mode = body_mode
    message.protocol_config.send_body_without_waiting_for_header_response = True
    return message


def _grpc(message: bytes) -> bytes:
    return b"\x00" + len(message).to_bytes(4, "big") + message


def _cpu_seconds(pid: int) -> float:
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / TICKS


if __name__ == "__main__":
    main()
