"""One HTTP/2 request in clear text, frame by frame, for what HTTP clients do not let tests say: request trailers, and
no answer to pings."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from contextlib import suppress

_DATA, _HEADERS, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 4, 6, 7, 8
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_INITIAL_WINDOW_SIZE = 4
_STATUS_200 = 0x88  # RFC 7541, appendix A: index 8


async def post(port: int, path: str, body: bytes, trailers: Mapping[str, str] | None = None) -> bool:
    """Whether it was answered with 200. Obeys the windows that the server gives; ConnectionError when it hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0, b""))
        fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "test"}
        writer.write(_frame(_HEADERS, _END_HEADERS, 1, _fields(fields)))
        stream_window = connection_window = 65_535
        settled = False
        sent = 0
        while True:
            while settled and sent < len(body) and (room := min(16_384, stream_window, connection_window)) > 0:
                piece = body[sent : sent + room]
                sent += len(piece)
                stream_window -= len(piece)
                connection_window -= len(piece)
                last = sent == len(body) and not trailers
                writer.write(_frame(_DATA, _END_STREAM if last else 0, 1, piece))
                if sent == len(body) and trailers:
                    writer.write(_frame(_HEADERS, _END_HEADERS | _END_STREAM, 1, _fields(trailers)))
                await writer.drain()
            head = await reader.readexactly(9)
            kind, flags, stream = head[3], head[4], struct.unpack(">I", head[5:])[0]
            payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
            match kind:
                case 4 if not flags & _ACK:
                    for at in range(0, len(payload), 6):
                        name, value = struct.unpack(">HI", payload[at : at + 6])
                        if name == _INITIAL_WINDOW_SIZE:
                            stream_window += value - 65_535
                    writer.write(_frame(_SETTINGS, _ACK, 0, b""))
                    settled = True
                case 8:
                    increment = struct.unpack(">I", payload)[0]
                    if stream == 0:
                        connection_window += increment
                    else:
                        stream_window += increment
                case 1:
                    fields_at = next(at for at, byte in enumerate(payload) if byte & 0xE0 != 0x20)  # table sizes
                    return payload[fields_at] == _STATUS_200
                case 7:
                    raise ConnectionError(f"GOAWAY {payload!r}")
    finally:
        writer.close()


async def go_silent(port: int, path: str, message: bytes) -> None:
    """Calls a streaming method of gRPC and answers nothing from then on, as a process that is stopped. Returns when the
    server hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0, b""))
        fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "test"}
        fields |= {"content-type": "application/grpc", "te": "trailers"}
        writer.write(_frame(_HEADERS, _END_HEADERS, 1, _fields(fields)))
        writer.write(_frame(_DATA, _END_STREAM, 1, b"\0" + len(message).to_bytes(4, "big") + message))
        answered = False
        with suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readexactly(9)
                payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
                answered = answered or head[3] == _DATA
                if head[3] == _PING and not answered:
                    writer.write(_frame(_PING, _ACK, 0, payload))
    finally:
        writer.close()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _fields(fields: Mapping[str, str]) -> bytes:
    """As literals without indexing and without Huffman coding; names and values shorter than 127 bytes."""
    return b"".join(
        b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
        for name, value in fields.items()
    )
