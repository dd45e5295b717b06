"""What a server writes: frames at once, and data as far as the peer's windows allow (RFC 9113, section 6.9).

Knows of streams only what they have to send.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from ext_proc.http2 import frames
from ext_proc.http2.frames import DATA, MOST_WINDOW, ErrorCode, ProtocolError, StreamError
from ext_proc.http2.patience import Patience


@dataclass(slots=True, eq=False)
class Outbound:
    """One stream's way out. `waiting` is data that found no window; `trailers` come after it, and then it is over."""

    window: int
    waiting: deque[memoryview] = field(default_factory=deque)
    trailers: bytes | None = None
    is_open: bool = True

    @property
    def is_over(self) -> bool:
        """Whether all has been written that ever will be."""
        return not self.is_open and not self.waiting


class Sender:
    """`patience` gets something back for each frame of data, as frames in return are due then."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._out: list[bytes] = []
        self._blocked: dict[int, Outbound] = {}
        self._window = frames.DEFAULT_WINDOW
        self._stream_window = frames.DEFAULT_WINDOW
        self._frame_size = frames.DEFAULT_FRAME_SIZE

    def write(self, written: bytes) -> None:
        """A frame that no window holds up."""
        self._out.append(written)

    def take(self) -> bytes:
        """What is to be written since the last time."""
        out = b"".join(self._out)
        self._out.clear()
        return out

    def new_stream(self) -> Outbound:
        return Outbound(self._stream_window)

    def forget(self, stream_id: int) -> None:
        """Of a stream that was reset."""
        self._blocked.pop(stream_id, None)

    def forget_all(self) -> None:
        self._blocked.clear()

    def headers(self, stream_id: int, block: bytes) -> None:
        self._out.append(frames.headers(stream_id, block, self._frame_size, end_stream=False))

    def data(self, stream_id: int, stream: Outbound, data: bytes) -> None:
        size = len(data)
        if not stream.waiting and size <= self._frame_size and size <= stream.window and size <= self._window:
            self._write_data(stream_id, stream, data)
        else:
            stream.waiting.append(memoryview(data))
            self._go_on(stream_id, stream)

    def end(self, stream_id: int, stream: Outbound, trailers: bytes) -> None:
        """After all data that was given."""
        stream.is_open = False
        if stream.waiting:
            stream.trailers = trailers
        else:
            self._write_trailers(stream_id, trailers)

    # --- what the peer allows --------------------------------------------------------------------------------------

    def allow_frames(self, size: int) -> None:
        self._frame_size = size

    def allow_streams(self, window: int, streams: Iterable[Outbound]) -> None:
        """SETTINGS_INITIAL_WINDOW_SIZE, which changes the windows of `streams` too; they may become negative (section
        6.9.2)."""
        more = window - self._stream_window
        self._stream_window = window
        for stream in streams:
            stream.window += more
            if stream.window > MOST_WINDOW:
                raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "SETTINGS_INITIAL_WINDOW_SIZE overflows a window")

    def allow_stream(self, stream_id: int, stream: Outbound, increment: int) -> None:
        """WINDOW_UPDATE of a stream."""
        if not increment:
            raise StreamError(stream_id, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
        stream.window += increment
        if stream.window > MOST_WINDOW:
            raise StreamError(stream_id, ErrorCode.FLOW_CONTROL_ERROR, "a stream's window above 2^31-1")
        if stream_id in self._blocked:
            self._go_on(stream_id, stream)

    def allow(self, increment: int) -> None:
        """WINDOW_UPDATE of the connection."""
        if not increment:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
        self._window += increment
        if self._window > MOST_WINDOW:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "the connection's window above 2^31-1")

    def go_on(self) -> list[int]:
        """Sends what waited for what is allowed now; returns the streams that had to wait until then."""
        tried = []
        for stream_id, stream in list(self._blocked.items()):
            if self._window <= 0:
                break
            self._go_on(stream_id, stream)
            tried.append(stream_id)
        return tried

    def _go_on(self, stream_id: int, stream: Outbound) -> None:
        waiting = stream.waiting
        while waiting:
            room = min(stream.window, self._window, self._frame_size)
            if room <= 0:
                self._blocked[stream_id] = stream
                return
            data = waiting.popleft()
            if len(data) > room:
                waiting.appendleft(data[room:])
                data = data[:room]
            self._write_data(stream_id, stream, data)
        self._blocked.pop(stream_id, None)
        if stream.trailers is not None:
            self._write_trailers(stream_id, stream.trailers)

    def _write_data(self, stream_id: int, stream: Outbound, data: bytes | memoryview) -> None:
        stream.window -= len(data)
        self._window -= len(data)
        self._patience.earn()
        self._out.append(frames.frame(DATA, 0, stream_id, data))

    def _write_trailers(self, stream_id: int, trailers: bytes) -> None:
        self._out.append(frames.headers(stream_id, trailers, self._frame_size, end_stream=True))
