"""A server's side of one HTTP/2 connection (RFC 9113) without I/O: bytes in, and bytes to be written.

The layer above is told of each request as it comes, and takes data over at once, so what a peer may send is allowed
anew at once; that layer has to bound what it keeps. What it sends waits here for the peer's windows.

Faults of the peer end a stream (it gets RST_STREAM) or the connection (GOAWAY); who was told of a request that was not
answered is told of that. Nothing is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

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
    PADDED,
    RST_STREAM,
    SETTINGS,
    ErrorCode,
    FieldsFrame,
    FrameReader,
    ProtocolError,
    StreamError,
)
from ext_proc.http2.patience import Patience
from ext_proc.http2.sending import Sender
from ext_proc.http2.stream import Stream

_DRAIN_PING: Final = b"headrace"
_MOST_RESETS_KNOWN: Final = 1024
_NOT_ONLY_BLOCK: Final = PADDED | frames.WITH_PRIORITY


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


Begin = Callable[[Stream, Head, bool], None]
"""Told of a request when its fields have come, and whether that is all of it; sets the stream's `inbound`, or answers
at once. It does not raise."""


@dataclass(slots=True)
class _Block:
    """HEADERS whose CONTINUATION frames are still to come."""

    stream_id: int
    flags: int
    data: bytes


class Connection:
    def __init__(self, limits: Limits, begin: Begin, now: float) -> None:
        """`now` in seconds, of a clock that does not go back."""
        self._limits = limits
        self._begin = begin
        self._frames = FrameReader(limits.frame_size)
        self._fields = FieldDecoder(limits.header_list)
        self._patience = Patience(now)
        self._sender = Sender(self._patience)
        self._now = now
        self._streams: dict[int, Stream] = {}
        self._reset_here: dict[int, None] = {}
        self._last_stream = 0
        self._block: _Block | None = None
        self._due: int | None = SETTINGS  # the only kind of frame that may come next, where there is only one
        self._window = limits.connection_window
        self._low_window = limits.connection_window // 2
        self._low_stream_window = limits.stream_window // 2
        self._table_acknowledged = False
        self._draining = False
        self._last_served: int | None = None
        self._closed = False
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
            SETTINGS: self._take_settings,
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
        return all(stream.is_answered for stream in self._streams.values())

    # --- in --------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> None:
        """Takes what has come, in any pieces, and tells of it."""
        self._now = now
        if self._closed:
            return
        try:
            for kind, flags, stream_id, payload in self._frames.take(data):
                if self._due is not None:
                    self._check_due(kind, flags)
                try:
                    if kind == DATA:
                        self._take_data(flags, stream_id, payload)
                    elif kind == HEADERS:
                        self._take_headers(flags, stream_id, payload)
                    elif kind == RST_STREAM:
                        self._take_reset(stream_id, payload)
                    else:
                        self._take_other(kind, flags, stream_id, payload)
                except StreamError as error:
                    self._spend()
                    self._reset(error.stream_id, error.code)
            if self._window < self._low_window:
                self._open_window()
        except ProtocolError as error:
            self._fail(error.code, str(error))

    def _check_due(self, kind: int, flags: int) -> None:
        if kind != self._due or (kind == SETTINGS and flags & frames.ACK):
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "no SETTINGS first, or a frame within a block of fields")

    def _take_other(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        self._spend()
        take = self._others.get(kind)
        if take is not None:  # unknown ones are to be ignored (section 5.5)
            take(flags, stream_id, payload)

    def _take_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)  # padding counts too (section 6.9.1)
        self._window -= size
        if flags & PADDED:
            payload = frames.content(PADDED, payload)
        if not payload and not flags & END_STREAM:
            self._spend()
        stream = self._streams.get(stream_id)
        if stream is None or not stream.is_coming:
            self._refuse_data(stream_id, stream)
            return
        stream.may_come -= size
        if stream.may_come < self._low_stream_window:
            self._open_window_of(stream)
        if stream.to_come is not None:
            stream.to_come -= len(payload)
            self._check_length(stream, stream.to_come, flags)
        inbound = stream.inbound
        if flags & END_STREAM:
            stream.is_coming = False
            if inbound is not None:
                inbound.take(payload, True)
            else:
                self._forget_if_over(stream)
        elif inbound is not None:
            inbound.take(payload, False)
        else:
            # The answer is complete, and the client goes on with a request that nobody reads (section 8.1).
            self._reset(stream_id, ErrorCode.NO_ERROR)

    def _open_window(self) -> None:
        if self._window < 0:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the connection's window")
        self._sender.write(frames.window_update(0, self._limits.connection_window - self._window))
        self._window = self._limits.connection_window

    def _open_window_of(self, stream: Stream) -> None:
        if stream.may_come < 0:
            raise StreamError(stream.id, ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the stream's window")
        if stream.inbound is not None:
            self._sender.write(frames.window_update(stream.id, self._limits.stream_window - stream.may_come))
            stream.may_come = self._limits.stream_window

    def _check_length(self, stream: Stream, to_come: int, flags: int) -> None:
        if to_come < 0 or (to_come and flags & END_STREAM):
            raise StreamError(stream.id, ErrorCode.PROTOCOL_ERROR, "the body is not as long as content-length says")

    def _refuse_data(self, stream_id: int, stream: Stream | None) -> None:
        if not stream_id or stream_id > self._last_stream:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "DATA on a stream that has not begun")
        if stream is not None or stream_id not in self._reset_here:
            raise StreamError(stream_id, ErrorCode.STREAM_CLOSED, "DATA after the end of the stream")

    def _take_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id % 2:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "HEADERS on a stream that no client may begin")
        if flags & _NOT_ONLY_BLOCK:
            payload = frames.content(flags, payload)
        if flags & END_HEADERS:
            self._take_block(flags, stream_id, payload)
        else:
            self._block = _Block(stream_id, flags, payload)
            self._due = CONTINUATION

    def _take_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        block = self._block
        if block is None or block.stream_id != stream_id:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "CONTINUATION of nothing")
        block.data += payload
        if len(block.data) > self._limits.header_list:  # coded fields are hardly ever longer than plain ones
            raise ProtocolError(ErrorCode.ENHANCE_YOUR_CALM, "header fields exceed what we accept")
        if flags & END_HEADERS:
            self._block = self._due = None
            self._take_block(block.flags, stream_id, block.data)

    def _take_block(self, flags: int, stream_id: int, block: bytes) -> None:
        ended = flags & END_STREAM != 0
        if stream_id <= self._last_stream:
            self._take_trailers(stream_id, block, ended=ended)
            return
        self._last_stream = stream_id
        try:
            head = self._fields.request(block)
        except MalformedError as error:
            raise StreamError(stream_id, ErrorCode.PROTOCOL_ERROR, str(error)) from error
        if self._last_served is not None:
            self._remember_reset(stream_id)  # the peer knows by GOAWAY that it was not looked at
            return
        limits = self._limits
        if len(self._streams) >= limits.concurrent_streams:
            raise StreamError(stream_id, ErrorCode.REFUSED_STREAM, "too many streams at once")
        if ended and head.content_length:
            raise StreamError(stream_id, ErrorCode.PROTOCOL_ERROR, "no body, but a content-length")
        stream = Stream(stream_id, limits.stream_window, head.content_length, not ended, self._sender.stream_window)
        self._streams[stream_id] = stream
        self._begin(stream, head, ended)

    def _take_trailers(self, stream_id: int, block: bytes, *, ended: bool) -> None:
        # Whatever becomes of it, a block has to be decoded for the sake of those after it.
        fault = self._fields.fault_of_trailers(block)
        stream = self._streams.get(stream_id)
        if stream is None:
            if stream_id not in self._reset_here:
                raise ProtocolError(ErrorCode.STREAM_CLOSED, "HEADERS on a stream that has ended")
            return
        if fault:
            raise StreamError(stream_id, ErrorCode.PROTOCOL_ERROR, fault)
        if not stream.is_coming:
            raise StreamError(stream_id, ErrorCode.STREAM_CLOSED, "HEADERS after the end of the stream")
        if not ended or stream.to_come:
            raise StreamError(stream_id, ErrorCode.PROTOCOL_ERROR, "trailers that do not end the request")
        stream.is_coming = False
        if stream.inbound is not None:
            stream.inbound.take(b"", True)
        else:
            self._forget_if_over(stream)

    def _take_priority(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Has no effect (section 5.3.2)."""
        if not stream_id:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "PRIORITY of no stream")
        if len(payload) != 5:
            raise StreamError(stream_id, ErrorCode.FRAME_SIZE_ERROR, "PRIORITY of a wrong length")

    def _take_reset(self, stream_id: int, payload: bytes) -> None:
        if not stream_id or stream_id > self._last_stream:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "RST_STREAM of a stream that has not begun")
        if len(payload) != 4:
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM of a wrong length")
        stream = self._streams.pop(stream_id, None)
        if stream is not None and stream.is_answered:
            return  # as Envoy ends every stream: this one was no work for nothing
        self._spend()
        if stream is not None:
            self._lose(stream, int.from_bytes(payload, "big"))

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
                self._sender.allow_streams(value, self._streams.values())
        self._due = None
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
            self._sender.allow_stream(stream, increment)
            self._forget_if_over(stream)

    def _go_on(self) -> None:
        for stream in self._sender.go_on():
            self._forget_if_over(stream)

    def _forget_if_over(self, stream: Stream) -> None:
        if not stream.is_coming and stream.is_answered:
            del self._streams[stream.id]

    def _spend(self) -> None:
        if not self._patience.spend(self._now):
            raise ProtocolError(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that ask for work and bring nothing")

    # --- out -------------------------------------------------------------------------------------------------------

    def take_output(self) -> bytes:
        """What is to be written since the last time."""
        return self._sender.take()

    def send_headers(self, stream: Stream, block: bytes) -> None:
        """The answer's fields, made by `fields.block`. Nothing is sent on a stream that is gone, or was ended."""
        if stream.is_open:
            self._sender.headers(stream, block)

    def send_data(self, stream: Stream, data: bytes) -> None:
        """A piece of the answer's body; what finds no window waits."""
        if stream.is_open:
            self._sender.data(stream, data)

    def end(self, stream: Stream, trailers: bytes) -> None:
        """The answer's trailers, which come after all data."""
        if stream.is_open:
            stream.inbound = None
            self._sender.end(stream, trailers)
            self._forget_if_over(stream)

    def send_whole(self, stream: Stream, head: FieldsFrame, data: bytes, trailers: FieldsFrame) -> None:
        """An answer in one: what `send_headers`, `send_data` and `end` do, for less."""
        if stream.is_open:
            stream.inbound = None
            self._sender.whole(stream, head, data, trailers)
            if not stream.is_coming:
                self._forget_if_over(stream)

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

    def close(self) -> None:
        """Ends all streams at once."""
        if not self._closed:
            self._fail(ErrorCode.NO_ERROR, "closing")

    def _stop_accepting(self) -> None:
        if self._last_served is None:
            self._last_served = self._last_stream
            self._sender.write(frames.goaway(self._last_stream, ErrorCode.NO_ERROR, "draining"))

    def _reset(self, stream_id: int, code: ErrorCode) -> None:
        stream = self._streams.pop(stream_id, None)
        self._remember_reset(stream_id)
        self._sender.write(frames.rst_stream(stream_id, code))
        if stream is not None:
            self._lose(stream, code)

    def _remember_reset(self, stream_id: int) -> None:
        """Frames may be on their way for which it would be wrong to blame the peer."""
        self._reset_here[stream_id] = None
        if len(self._reset_here) > _MOST_RESETS_KNOWN:
            del self._reset_here[next(iter(self._reset_here))]

    # --- ends ------------------------------------------------------------------------------------------------------

    def _lose(self, stream: Stream, code: int) -> None:
        """Of a stream that is forgotten: nothing can be sent on it, and who listens is told."""
        self._sender.forget(stream.id)
        stream.is_open = False
        stream.waiting = None
        inbound, stream.inbound = stream.inbound, None
        if inbound is not None:
            inbound.reset(code)

    def _fail(self, code: ErrorCode, why: str) -> None:
        self._sender.write(frames.goaway(self._last_stream, code, why))
        self._closed = True
        self._block = None
        streams = list(self._streams.values())
        self._streams.clear()
        for stream in streams:
            self._lose(stream, code)
