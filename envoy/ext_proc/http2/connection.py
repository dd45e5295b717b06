"""A server's side of one HTTP/2 connection (RFC 9113) without I/O: bytes in, events out, and bytes to be written.

The layer above takes data over as it comes, so what a peer may send is allowed anew at once; that layer has to bound
what it keeps. What it sends waits here for the peer's windows.

Faults of the peer end a stream (it gets RST_STREAM, the layer above StreamReset) or the connection (GOAWAY, and
StreamReset for each stream that is open): nothing is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ext_proc.http2 import frames
from ext_proc.http2.fields import FieldDecoder, Head, MalformedError
from ext_proc.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    MOST_STREAM_ID,
    MOST_WINDOW,
    ErrorCode,
    FrameReader,
    ProtocolError,
    StreamError,
)
from ext_proc.http2.patience import Patience
from ext_proc.http2.sending import Outbound, Sender

_DRAIN_PING: Final = b"headrace"
_MOST_RESETS_KNOWN: Final = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What is announced to the peer, and held. Sizes in bytes.

    stream_window, connection_window: what may come before we allow more, on one stream and on all together; no less
        than 65,535 on all together (RFC 9113, 6.9.2).
    header_list: all fields of a request, as RFC 9113, 6.5.2 counts them.
    """

    concurrent_streams: int = 10_000
    stream_window: int = 1 << 20
    connection_window: int = 16 << 20
    frame_size: int = 64 << 10
    header_list: int = 32 << 10


class RequestStarted(NamedTuple):
    """`ended`: it has no body."""

    stream_id: int
    head: Head
    ended: bool


class DataArrived(NamedTuple):
    """A piece of a request's body, which may be empty. `ended`: it is the last."""

    stream_id: int
    data: bytes
    ended: bool


class StreamReset(NamedTuple):
    """The stream is gone; nothing can be sent on it."""

    stream_id: int
    code: int


Event = RequestStarted | DataArrived | StreamReset


@dataclass(slots=True, eq=False)
class _Stream:
    """`window` is what the peer may still send on it, `to_come` what it has announced by a content-length."""

    window: int
    to_come: int | None
    remote_open: bool
    out: Outbound


@dataclass(slots=True)
class _Block:
    """HEADERS whose CONTINUATION frames are still to come."""

    stream_id: int
    flags: int
    data: bytes


class Connection:
    def __init__(self, limits: Limits, now: float) -> None:
        """`now` in seconds, of a clock that does not go back."""
        self._limits = limits
        self._frames = FrameReader(limits.frame_size)
        self._fields = FieldDecoder(limits.header_list)
        self._patience = Patience(now)
        self._sender = Sender(self._patience)
        self._now = now
        self._streams: dict[int, _Stream] = {}
        self._reset_here: dict[int, None] = {}
        self._last_stream = 0
        self._block: _Block | None = None
        self._settled = False
        self._window = limits.connection_window
        self._table_acknowledged = False
        self._draining = False
        self._last_served: int | None = None
        self._closed = False
        self._events: list[Event] = []
        self._sender.write(
            frames.settings(
                (
                    (frames.HEADER_TABLE_SIZE, 0),
                    (frames.MAX_CONCURRENT_STREAMS, limits.concurrent_streams),
                    (frames.INITIAL_WINDOW_SIZE, limits.stream_window),
                    (frames.MAX_FRAME_SIZE, limits.frame_size),
                    (frames.MAX_HEADER_LIST_SIZE, limits.header_list),
                )
            )
        )
        if limits.connection_window > frames.DEFAULT_WINDOW:
            self._sender.write(frames.window_update(0, limits.connection_window - frames.DEFAULT_WINDOW))
        self._others: dict[int, Callable[[int, int, bytes], None]] = {
            frames.PRIORITY: self._take_priority,
            frames.RST_STREAM: self._take_reset,
            frames.SETTINGS: self._take_settings,
            frames.PUSH_PROMISE: self._take_push_promise,
            frames.PING: self._take_ping,
            frames.GOAWAY: self._take_goaway,
            frames.WINDOW_UPDATE: self._take_window_update,
            CONTINUATION: self._take_continuation,
        }

    @property
    def is_over(self) -> bool:
        """Whether the connection is to be closed, once what there is to write is written."""
        if self._last_served is None:
            return self._closed
        return all(stream.out.is_over for stream in self._streams.values())

    # --- in --------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> list[Event]:
        """What has happened by these bytes, in order. Bytes may come in any pieces."""
        self._now = now
        self._events = []
        if self._closed:
            return self._events
        try:
            for kind, flags, stream_id, payload in self._frames.take(data):
                try:
                    self._take_frame(kind, flags, stream_id, payload)
                except StreamError as error:
                    self._spend()
                    self._fail_stream(error.stream_id, error.code)
        except ProtocolError as error:
            self._fail(error.code, str(error))
        return self._events

    def _take_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if self._block is not None and kind != CONTINUATION:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "a frame between those of one block of fields")
        if not self._settled and (kind != frames.SETTINGS or flags & frames.ACK):
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        if kind == DATA:
            self._take_data(flags, stream_id, payload)
        elif kind == HEADERS:
            self._take_headers(flags, stream_id, payload)
        else:
            self._spend()
            take = self._others.get(kind)
            if take is not None:  # unknown ones are to be ignored (section 5.5)
                take(flags, stream_id, payload)

    def _take_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id or stream_id > self._last_stream:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "DATA on a stream that has not begun")
        size = len(payload)  # padding counts too (section 6.9.1)
        self._window -= size
        if self._window < self._limits.connection_window // 2:
            self._open_window()
        ended = flags & END_STREAM != 0
        if flags & frames.PADDED:
            payload = frames.content(frames.PADDED, payload)
        if not payload and not ended:
            self._spend()
        stream = self._streams.get(stream_id)
        if stream is not None and stream.remote_open:
            stream.window -= size
            self._take_body(stream_id, stream, payload, ended=ended)
        elif stream is not None or stream_id not in self._reset_here:
            raise StreamError(stream_id, ErrorCode.STREAM_CLOSED, "DATA after the end of the stream")

    def _open_window(self) -> None:
        if self._window < 0:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the connection's window")
        self._sender.write(frames.window_update(0, self._limits.connection_window - self._window))
        self._window = self._limits.connection_window

    def _take_body(self, stream_id: int, stream: _Stream, data: bytes, *, ended: bool) -> None:
        if stream.window < 0:
            raise StreamError(stream_id, ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the stream's window")
        if stream.to_come is not None:
            stream.to_come -= len(data)
            if stream.to_come < 0 or (ended and stream.to_come):
                raise StreamError(stream_id, ErrorCode.PROTOCOL_ERROR, "the body is not as long as content-length says")
        if stream.out.is_open:
            self._events.append(DataArrived(stream_id, data, ended))
        if ended:
            self._end_remote(stream_id, stream)
        elif not stream.out.is_open:
            # The answer is complete, and the client goes on with a request that nobody reads (section 8.1).
            self._reset(stream_id, ErrorCode.NO_ERROR)
        elif stream.window < self._limits.stream_window // 2:
            self._sender.write(frames.window_update(stream_id, self._limits.stream_window - stream.window))
            stream.window = self._limits.stream_window

    def _take_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id % 2:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "HEADERS on a stream that no client may begin")
        if flags & (frames.PADDED | frames.WITH_PRIORITY):
            payload = frames.content(flags, payload)
        if flags & END_HEADERS:
            self._take_block(flags, stream_id, payload)
        else:
            self._block = _Block(stream_id, flags, payload)

    def _take_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        block = self._block
        if block is None or block.stream_id != stream_id:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "CONTINUATION of nothing")
        block.data += payload
        if len(block.data) > self._limits.header_list:  # coded fields are hardly ever longer than plain ones
            raise ProtocolError(ErrorCode.ENHANCE_YOUR_CALM, "header fields exceed what we accept")
        if flags & END_HEADERS:
            self._block = None
            self._take_block(block.flags, stream_id, block.data)

    def _take_block(self, flags: int, stream_id: int, block: bytes) -> None:
        ended = flags & END_STREAM != 0
        stream = self._streams.get(stream_id)
        if stream is None and stream_id > self._last_stream:
            self._begin(stream_id, block, ended)
            return
        # Whatever becomes of it, a block has to be decoded for the sake of those after it.
        fault = self._fields.fault_of_trailers(block)
        if stream is None:
            if stream_id not in self._reset_here:
                raise ProtocolError(ErrorCode.STREAM_CLOSED, "HEADERS on a stream that has ended")
            return
        if fault:
            raise StreamError(stream_id, ErrorCode.PROTOCOL_ERROR, fault)
        if not stream.remote_open:
            raise StreamError(stream_id, ErrorCode.STREAM_CLOSED, "HEADERS after the end of the stream")
        if not ended or stream.to_come:
            raise StreamError(stream_id, ErrorCode.PROTOCOL_ERROR, "trailers that do not end the request")
        if stream.out.is_open:
            self._events.append(DataArrived(stream_id, b"", ended=True))
        self._end_remote(stream_id, stream)

    def _begin(self, stream_id: int, block: bytes, ended: bool) -> None:
        self._last_stream = stream_id
        try:
            head = self._fields.request(block)
        except MalformedError as error:
            raise StreamError(stream_id, ErrorCode.PROTOCOL_ERROR, str(error)) from error
        if self._last_served is not None and stream_id > self._last_served:
            self._remember_reset(stream_id)  # the peer knows by GOAWAY that it was not looked at
            return
        if len(self._streams) >= self._limits.concurrent_streams:
            raise StreamError(stream_id, ErrorCode.REFUSED_STREAM, "too many streams at once")
        if ended and head.content_length:
            raise StreamError(stream_id, ErrorCode.PROTOCOL_ERROR, "no body, but a content-length")
        self._streams[stream_id] = _Stream(
            self._limits.stream_window, head.content_length, not ended, self._sender.new_stream()
        )
        self._events.append(RequestStarted(stream_id, head, ended))

    def _take_priority(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Has no effect (section 5.3.2)."""
        if not stream_id:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "PRIORITY of no stream")
        if len(payload) != 5:
            raise StreamError(stream_id, ErrorCode.FRAME_SIZE_ERROR, "PRIORITY of a wrong length")

    def _take_reset(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id or stream_id > self._last_stream:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "RST_STREAM of a stream that has not begun")
        if len(payload) != 4:
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM of a wrong length")
        stream = self._streams.pop(stream_id, None)
        self._sender.forget(stream_id)
        if stream is None:
            return
        if not stream.out.is_over:
            self._events.append(StreamReset(stream_id, int.from_bytes(payload, "big")))
        else:
            self._patience.earn()  # this one is no work for nothing: it was answered

    def _take_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "SETTINGS of a stream")
        if flags & frames.ACK:
            if payload:
                raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS with ACK and a payload")
            if not self._table_acknowledged:
                self._table_acknowledged = True
                self._fields.forbid_table()
            return
        for name, value in frames.read_settings(payload):
            if name == frames.MAX_FRAME_SIZE:
                self._sender.allow_frames(value)
            elif name == frames.INITIAL_WINDOW_SIZE:
                self._sender.allow_streams(value, [stream.out for stream in self._streams.values()])
        self._settled = True
        self._sender.write(frames.SETTINGS_ACK)
        self._go_on()

    def _take_push_promise(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE from a client")

    def _take_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "PING on a stream")
        if len(payload) != 8:
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "PING of a wrong length")
        if not flags & frames.ACK:
            self._sender.write(frames.frame(frames.PING, frames.ACK, 0, payload))
        elif payload == _DRAIN_PING and self._draining:
            self._stop_accepting()

    def _take_goaway(self, flags: int, stream_id: int, payload: bytes) -> None:
        """The peer begins no more streams; those that are open go on."""
        if stream_id:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "GOAWAY of a stream")
        if len(payload) < 8:
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY of a wrong length")

    def _take_window_update(self, flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE of a wrong length")
        if stream_id > self._last_stream:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of a stream that has not begun")
        increment = int.from_bytes(payload, "big") & MOST_WINDOW
        if not stream_id:
            self._sender.allow(increment)
            self._go_on()
            return
        stream = self._streams.get(stream_id)
        if stream is not None:  # else it was on its way when the stream ended
            self._sender.allow_stream(stream_id, stream.out, increment)
            self._forget_if_over(stream_id, stream)

    def _go_on(self) -> None:
        for stream_id in self._sender.go_on():
            self._forget_if_over(stream_id, self._streams[stream_id])

    def _forget_if_over(self, stream_id: int, stream: _Stream) -> None:
        if not stream.remote_open and stream.out.is_over:
            del self._streams[stream_id]

    def _spend(self) -> None:
        if not self._patience.spend(self._now):
            raise ProtocolError(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that ask for work and bring nothing")

    def _end_remote(self, stream_id: int, stream: _Stream) -> None:
        stream.remote_open = False
        self._forget_if_over(stream_id, stream)

    # --- out -------------------------------------------------------------------------------------------------------

    def take_output(self) -> bytes:
        """What is to be written since the last time."""
        return self._sender.take()

    def send_headers(self, stream_id: int, block: bytes) -> None:
        """The answer's fields, made by `fields.block`. Nothing can be sent on a stream that is gone, or was ended."""
        stream = self._streams.get(stream_id)
        if stream is not None and stream.out.is_open:
            self._sender.headers(stream_id, block)

    def send_data(self, stream_id: int, data: bytes) -> None:
        """A piece of the answer's body; what finds no window waits."""
        stream = self._streams.get(stream_id)
        if stream is not None and stream.out.is_open:
            self._sender.data(stream_id, stream.out, data)

    def end(self, stream_id: int, trailers: bytes) -> None:
        """The answer's trailers, which come after all data."""
        stream = self._streams.get(stream_id)
        if stream is not None and stream.out.is_open:
            self._sender.end(stream_id, stream.out, trailers)
            self._forget_if_over(stream_id, stream)

    def ping(self) -> None:
        """Something that a peer has to answer."""
        if not self._closed:
            self._sender.write(frames.frame(frames.PING, 0, 0, b"liveness"))

    def drain(self) -> None:
        """Serves what has begun, and what comes before the peer can know (section 6.8), and is then over."""
        if self._closed or self._draining:
            return
        self._draining = True
        self._sender.write(frames.goaway(MOST_STREAM_ID, ErrorCode.NO_ERROR, "draining"))
        self._sender.write(frames.frame(frames.PING, 0, 0, _DRAIN_PING))

    def close(self) -> list[Event]:
        """Ends all streams at once."""
        self._events = []
        if not self._closed:
            self._fail(ErrorCode.NO_ERROR, "closing")
        return self._events

    def _stop_accepting(self) -> None:
        if self._last_served is None:
            self._last_served = self._last_stream
            self._sender.write(frames.goaway(self._last_stream, ErrorCode.NO_ERROR, "draining"))

    def _reset(self, stream_id: int, code: ErrorCode) -> None:
        self._streams.pop(stream_id, None)
        self._sender.forget(stream_id)
        self._remember_reset(stream_id)
        self._sender.write(frames.rst_stream(stream_id, code))

    def _remember_reset(self, stream_id: int) -> None:
        """Frames may be on their way for which it would be wrong to blame the peer."""
        self._reset_here[stream_id] = None
        if len(self._reset_here) > _MOST_RESETS_KNOWN:
            del self._reset_here[next(iter(self._reset_here))]

    # --- ends ------------------------------------------------------------------------------------------------------

    def _fail_stream(self, stream_id: int, code: ErrorCode) -> None:
        stream = self._streams.get(stream_id)
        if stream is not None and not stream.out.is_over:
            self._events.append(StreamReset(stream_id, code))
        self._reset(stream_id, code)

    def _fail(self, code: ErrorCode, why: str) -> None:
        self._sender.write(frames.goaway(self._last_stream, code, why))
        self._closed = True
        for stream_id, stream in self._streams.items():
            if not stream.out.is_over:
                self._events.append(StreamReset(stream_id, code))
        self._streams.clear()
        self._sender.forget_all()
        self._block = None
