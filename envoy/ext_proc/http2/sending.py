"""What a server writes: frames at once, and data as far as the peer's windows allow (RFC 9113, section 6.9).

Of a stream it knows only what is to be sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ext_proc.http2 import frames
from ext_proc.http2.frames import DATA, MOST_WINDOW, ErrorCode, FieldsFrame, ProtocolError, StreamError
from ext_proc.http2.patience import Patience
from ext_proc.http2.stream import Stream


class Sender:
    """`patience` gets something back for each frame of data, as frames in return are due then."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._out: list[bytes | memoryview] = []
        self._blocked: dict[int, Stream] = {}
        self._window = frames.DEFAULT_WINDOW
        self._frame_size = frames.DEFAULT_FRAME_SIZE
        self.stream_window = frames.DEFAULT_WINDOW  # of a stream that begins

    def write(self, written: bytes) -> None:
        """A frame that no window holds up."""
        self._out.append(written)

    def take(self) -> bytes:
        """What is to be written since the last time."""
        out = b"".join(self._out)
        self._out.clear()
        return out

    def forget(self, stream_id: int) -> None:
        """Of a stream that was reset."""
        self._blocked.pop(stream_id, None)

    def headers(self, stream: Stream, block: bytes) -> None:
        self._out.append(frames.headers(stream.id, block, self._frame_size, end_stream=False))

    def data(self, stream: Stream, data: bytes) -> None:
        size = len(data)
        if not stream.waiting and size <= self._frame_size and size <= stream.window and size <= self._window:
            self._write_data(stream, data)
        else:
            if stream.waiting is None:
                stream.waiting = deque()
            stream.waiting.append(memoryview(data))
            self._go_on(stream, stream.waiting)

    def end(self, stream: Stream, trailers: bytes) -> None:
        """After all data that was given."""
        stream.is_open = False
        if stream.waiting:
            stream.trailers = trailers
        else:
            self._write_trailers(stream, trailers)

    def whole(self, stream: Stream, head: FieldsFrame, data: bytes, trailers: FieldsFrame) -> None:
        """An answer in one: `headers`, `data` and `end`."""
        size = len(data)
        if size > self._frame_size or size > stream.window or size > self._window:
            self.headers(stream, head.block)
            self.data(stream, data)
            self.end(stream, trailers.block)
            return
        stream.is_open = False
        stream.window -= size
        self._window -= size
        self._patience.earn()
        number = stream.id.to_bytes(4, "big")  # stands between each frame's opening and its payload
        opening = (size << 16).to_bytes(5, "big")  # kind and flags are 0
        self._out.append(number.join((head.opening, head.block + opening, data + trailers.opening, trailers.block)))

    # --- what the peer allows --------------------------------------------------------------------------------------

    def allow_frames(self, size: int) -> None:
        self._frame_size = size

    def allow_streams(self, window: int, streams: Iterable[Stream]) -> None:
        """SETTINGS_INITIAL_WINDOW_SIZE, which changes the windows of `streams` too; they may become negative (section
        6.9.2)."""
        more = window - self.stream_window
        self.stream_window = window
        for stream in streams:
            stream.window += more
            if stream.window > MOST_WINDOW:
                raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "SETTINGS_INITIAL_WINDOW_SIZE overflows a window")

    def allow_stream(self, stream: Stream, increment: int) -> None:
        """WINDOW_UPDATE of a stream."""
        if not increment:
            raise StreamError(stream.id, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
        stream.window += increment
        if stream.window > MOST_WINDOW:
            raise StreamError(stream.id, ErrorCode.FLOW_CONTROL_ERROR, "a stream's window above 2^31-1")
        if stream.id in self._blocked and stream.waiting:
            self._go_on(stream, stream.waiting)

    def allow(self, increment: int) -> None:
        """WINDOW_UPDATE of the connection."""
        if not increment:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
        self._window += increment
        if self._window > MOST_WINDOW:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "the connection's window above 2^31-1")

    def go_on(self) -> list[Stream]:
        """Sends what waited for what is allowed now; returns the streams that had to wait until then."""
        tried = []
        for stream in list(self._blocked.values()):
            if self._window <= 0:
                break
            if stream.waiting:
                self._go_on(stream, stream.waiting)
            tried.append(stream)
        return tried

    def _go_on(self, stream: Stream, waiting: deque[memoryview]) -> None:
        while waiting:
            room = min(stream.window, self._window, self._frame_size)
            if room <= 0:
                self._blocked[stream.id] = stream
                return
            data = waiting.popleft()
            if len(data) > room:
                waiting.appendleft(data[room:])
                data = data[:room]
            self._write_data(stream, data)
        self._blocked.pop(stream.id, None)
        if stream.trailers is not None:
            self._write_trailers(stream, stream.trailers)

    def _write_data(self, stream: Stream, data: bytes | memoryview) -> None:
        stream.window -= len(data)
        self._window -= len(data)
        self._patience.earn()
        self._out.append(frames.frame(DATA, 0, stream.id, data))

    def _write_trailers(self, stream: Stream, trailers: bytes) -> None:
        self._out.append(frames.headers(stream.id, trailers, self._frame_size, end_stream=True))
