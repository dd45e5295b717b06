"""Both ends of an HTTP/2 connection in memory: ours, and the h2 library as the client; and frames by hand."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import h2.config
import h2.connection
import h2.events
import h2.settings

from ext_proc.http2 import fields, frames
from ext_proc.http2.connection import Connection, Limits
from ext_proc.http2.fields import Head
from ext_proc.http2.frames import ErrorCode
from ext_proc.http2.grpc import GrpcConnection, Method
from ext_proc.http2.stream import Stream

REQUEST = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/test.Test/Test"),
    (":authority", "test"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
)
# How a block begins, of a client that was allowed no table (RFC 7541, 4.2).
NO_TABLE = b"\x20"
OPENING = frames.PREFACE + frames.settings(())


class RequestStarted(NamedTuple):
    stream_id: int
    head: Head
    ended: bool


class DataArrived(NamedTuple):
    stream_id: int
    data: bytes
    ended: bool


class StreamReset(NamedTuple):
    stream_id: int
    code: int


Event = RequestStarted | DataArrived | StreamReset


class Recorded:
    """A connection above which is nothing but a list of what it was told, in order; answers are the test's to give."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._events: list[Event] = []
        self._begun: dict[int, Stream] = {}
        self.connection = Connection(limits or Limits(), self._begin, 0.0)
        self.take_output = self.connection.take_output
        self.drain = self.connection.drain

    def receive(self, data: bytes, now: float = 0.0) -> list[Event]:
        self._events = []
        self.connection.receive(data, now)
        return self._events

    def close(self) -> list[Event]:
        self._events = []
        self.connection.close()
        return self._events

    @property
    def is_over(self) -> bool:
        return self.connection.is_over

    def send_headers(self, stream_id: int, block: bytes) -> None:
        self.connection.send_headers(self._begun[stream_id], block)

    def send_data(self, stream_id: int, data: bytes) -> None:
        self.connection.send_data(self._begun[stream_id], data)

    def end(self, stream_id: int, trailers: bytes) -> None:
        self.connection.end(self._begun[stream_id], trailers)

    def send_whole(self, stream_id: int, head: bytes, data: bytes, trailers: bytes) -> None:
        first, last = frames.fields_frame(head, end_stream=False), frames.fields_frame(trailers, end_stream=True)
        self.connection.send_whole(self._begun[stream_id], first, data, last)

    def _begin(self, stream: Stream, head: Head, ended: bool) -> None:
        self._begun[stream.id] = stream
        self._events.append(RequestStarted(stream.id, head, ended))
        stream.inbound = _Recording(self, stream.id)

    def told(self, event: Event) -> None:
        self._events.append(event)


class _Recording:
    def __init__(self, recorded: Recorded, stream_id: int) -> None:
        self._recorded = recorded
        self._stream_id = stream_id

    def take(self, data: bytes, ended: bool, /) -> None:
        self._recorded.told(DataArrived(self._stream_id, data, ended))

    def reset(self, code: int, /) -> None:
        self._recorded.told(StreamReset(self._stream_id, code))


def opened(limits: Limits | None = None) -> Recorded:
    """A connection whose client has said its first words; what they led to is taken off."""
    connection = Recorded(limits)
    assert connection.receive(OPENING) == []
    connection.take_output()
    return connection


def request(stream_id: int = 1, more: Iterable[tuple[str, str]] = (), *, end: bool = False) -> bytes:
    """A HEADERS frame."""
    return frames.headers(stream_id, fields.block((*REQUEST, *more)), 1 << 14, end_stream=end)


def data(stream_id: int, payload: bytes, *, end: bool = False) -> bytes:
    return frames.frame(frames.DATA, frames.END_STREAM if end else 0, stream_id, payload)


class _Never:
    def cancel(self) -> None:
        pass


def served_in_memory(methods: Mapping[str, Method], *, most_message_bytes: int) -> GrpcConnection:
    """Calls without a socket, and without deadlines."""
    return GrpcConnection(
        methods, Limits(), most_message_bytes, wake=lambda: None, later=lambda _, __: _Never(), now=0.0
    )


def said(out: bytes) -> list[tuple[int, int, int, bytes]]:
    """The frames that a server wrote: kind, flags, stream and payload."""
    reader = frames.FrameReader(frames.MOST_FRAME_SIZE)
    return list(reader.take(frames.PREFACE + out))


def resets(out: bytes) -> dict[int, ErrorCode]:
    """The streams that a server reset."""
    return {
        stream: ErrorCode(int.from_bytes(payload, "big"))
        for kind, _, stream, payload in said(out)
        if kind == frames.RST_STREAM
    }


def farewell(out: bytes) -> ErrorCode | None:
    """The code of the last GOAWAY that a server wrote."""
    codes = [struct.unpack(">I", payload[4:8])[0] for kind, _, _, payload in said(out) if kind == frames.GOAWAY]
    return ErrorCode(codes[-1]) if codes else None


class Pair:
    """A client of the h2 library and a connection of ours, which hand each other their bytes in pieces of `step`."""

    def __init__(self, limits: Limits | None = None, *, window: int = 65_535, step: int = 1 << 16) -> None:
        self.server = Recorded(limits)
        self.client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.client.local_settings = h2.settings.Settings(
            client=True, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window}
        )
        self.client.initiate_connection()
        self._step = step
        self.at_client: list[Any] = []
        self.at_server: list[Event] = []
        self.pump()

    def begin(self, more: Iterable[tuple[str, str]] = (), *, end: bool = False) -> int:
        stream_id: int = self.client.get_next_available_stream_id()
        self.client.send_headers(stream_id, [*REQUEST, *more], end_stream=end)
        return stream_id

    def pump(self) -> None:
        """Until neither has more to say."""
        while True:
            there, back = self.client.data_to_send(), self.server.take_output()
            if not there and not back:
                return
            for at in range(0, len(there), self._step):
                self.at_server += self.server.receive(there[at : at + self._step], 0.0)
            for at in range(0, len(back), self._step):
                self.at_client += self.client.receive_data(back[at : at + self._step])

    def upload(self, stream_id: int, payload: bytes, *, acknowledge: bool = True) -> None:
        """As fast as the server's windows allow."""
        while payload:
            room = min(
                self.client.local_flow_control_window(stream_id), self.client.max_outbound_frame_size, len(payload)
            )
            assert room > 0, "the server allows no more"
            self.client.send_data(stream_id, payload[:room])
            payload = payload[room:]
            self.pump()

    def body_at_server(self, stream_id: int) -> bytes:
        return b"".join(e.data for e in self.at_server if isinstance(e, DataArrived) and e.stream_id == stream_id)

    def heads_at_server(self) -> list[RequestStarted]:
        return [e for e in self.at_server if isinstance(e, RequestStarted)]
