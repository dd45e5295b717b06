"""HTTP/2's frames (RFC 9113, sections 4 and 6): their numbers, how they are written, and what stands in their payloads.

Knows no state: which frame may come when, and on which stream, is the connection's business.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES: Final = 9

_HEAD: Final = struct.Struct(">IBI")  # length and kind in one, flags, stream

DATA: Final = 0x0
HEADERS: Final = 0x1
PRIORITY: Final = 0x2
RST_STREAM: Final = 0x3
SETTINGS: Final = 0x4
PUSH_PROMISE: Final = 0x5
PING: Final = 0x6
GOAWAY: Final = 0x7
WINDOW_UPDATE: Final = 0x8
CONTINUATION: Final = 0x9

END_STREAM: Final = 0x1  # of DATA and HEADERS
ACK: Final = 0x1  # of SETTINGS and PING
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
WITH_PRIORITY: Final = 0x20

HEADER_TABLE_SIZE: Final = 0x1
ENABLE_PUSH: Final = 0x2
MAX_CONCURRENT_STREAMS: Final = 0x3
INITIAL_WINDOW_SIZE: Final = 0x4
MAX_FRAME_SIZE: Final = 0x5
MAX_HEADER_LIST_SIZE: Final = 0x6

DEFAULT_WINDOW: Final = 65_535
DEFAULT_FRAME_SIZE: Final = 16_384
MOST_FRAME_SIZE: Final = (1 << 24) - 1
MOST_WINDOW: Final = (1 << 31) - 1
MOST_STREAM_ID: Final = (1 << 31) - 1


class ErrorCode(IntEnum):
    """RFC 9113, section 7."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class ProtocolError(Exception):
    """The peer did what ends its connection (section 5.4.1)."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code


class StreamError(Exception):
    """The peer did what ends one stream (section 5.4.2)."""

    def __init__(self, stream_id: int, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.stream_id = stream_id
        self.code = code


def frame(kind: int, flags: int, stream_id: int, payload: bytes | memoryview) -> bytes:
    return b"".join((opening(kind, flags, len(payload)), stream_id.to_bytes(4, "big"), payload))


def opening(kind: int, flags: int, size: int) -> bytes:
    """A frame up to the number of its stream, which is four bytes; after them comes the payload, of `size` bytes."""
    return (size << 16 | kind << 8 | flags).to_bytes(5, "big")


class FieldsFrame(NamedTuple):
    """A HEADERS frame that can be sent on any stream: its opening, and a block that is whole."""

    opening: bytes
    block: bytes


def fields_frame(block: bytes, *, end_stream: bool) -> FieldsFrame:
    """Of a block that fits into a frame of any peer."""
    if len(block) > DEFAULT_FRAME_SIZE:
        raise ValueError(f"a block of {len(block)} bytes is not for one frame")
    return FieldsFrame(opening(HEADERS, END_HEADERS | (END_STREAM if end_stream else 0), len(block)), block)


def settings(values: Iterable[tuple[int, int]]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", name, value) for name, value in values))


SETTINGS_ACK: Final = frame(SETTINGS, ACK, 0, b"")


def window_update(stream_id: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, increment.to_bytes(4, "big"))


def rst_stream(stream_id: int, code: ErrorCode) -> bytes:
    return frame(RST_STREAM, 0, stream_id, code.to_bytes(4, "big"))


def goaway(last_stream_id: int, code: ErrorCode, why: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, struct.pack(">II", last_stream_id, code) + why.encode())


def headers(stream_id: int, block: bytes, frame_size: int, *, end_stream: bool) -> bytes:
    """A field block as one HEADERS frame, with CONTINUATION frames where it is larger than a frame may be."""
    end = END_STREAM if end_stream else 0
    if len(block) <= frame_size:
        return frame(HEADERS, END_HEADERS | end, stream_id, block)
    pieces = [block[at : at + frame_size] for at in range(0, len(block), frame_size)]
    written = [frame(HEADERS, end, stream_id, pieces[0])]
    written += [frame(CONTINUATION, 0, stream_id, piece) for piece in pieces[1:-1]]
    written.append(frame(CONTINUATION, END_HEADERS, stream_id, pieces[-1]))
    return b"".join(written)


def read_settings(payload: bytes) -> Iterator[tuple[int, int]]:
    """Names and values, in order. Raises ProtocolError for a payload that is none, or a value that is not allowed
    (section 6.5.2)."""
    if len(payload) % 6:
        raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS of a length that is no multiple of 6")
    for name, value in struct.iter_unpack(">HI", payload):
        if name == ENABLE_PUSH and value > 1:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "SETTINGS_ENABLE_PUSH is neither 0 nor 1")
        if name == INITIAL_WINDOW_SIZE and value > MOST_WINDOW:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "SETTINGS_INITIAL_WINDOW_SIZE above 2^31-1")
        if name == MAX_FRAME_SIZE and not DEFAULT_FRAME_SIZE <= value <= MOST_FRAME_SIZE:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "SETTINGS_MAX_FRAME_SIZE out of range")
        yield name, value


def content(flags: int, payload: bytes) -> bytes:
    """What a DATA or HEADERS frame carries: without padding, and without the priority that HEADERS may have. Raises
    ProtocolError where they leave less than nothing (sections 6.1 and 6.2)."""
    start, end = 0, len(payload)
    if flags & PADDED:
        if not payload:
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "a padded frame without the length of its padding")
        start, end = 1, end - payload[0]
    if flags & WITH_PRIORITY:
        start += 5
        if start > len(payload):
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "HEADERS end within their priority")
    if start > end:
        raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "more padding than payload")
    return payload[start:end]


class FrameReader:
    """Bytes in any pieces -> frames: kind, flags, stream and payload of each."""

    __slots__ = ("_begun", "_have", "_most", "_need", "_parts")

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes` as of SETTINGS_MAX_FRAME_SIZE."""
        self._most = most_bytes
        self._parts: list[bytes] = []
        self._have = 0
        self._need = len(PREFACE)
        self._begun = False

    def take(self, data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
        """All frames that are whole now; to be run to its end. Raises ProtocolError at the first that is none."""
        unpack, most, stream_bits = _HEAD.unpack_from, self._most << 8 | 0xFF, MOST_STREAM_ID
        at = 0
        if self._parts:
            # Of a large frame the parts are collected before they are joined, so that each byte is copied once; and
            # what comes after it is not copied.
            at = self._need - self._have
            if len(data) < at:
                self._parts.append(data)
                self._have += len(data)
                return
            if not self._begun or self._need == HEAD_BYTES:
                data, at = b"".join((*self._parts, data)), 0
            else:
                frame = b"".join((*self._parts, data[:at]))
                size_and_kind, flags, stream_id = unpack(frame)
                yield size_and_kind & 0xFF, flags, stream_id & stream_bits, frame[HEAD_BYTES:]
            self._parts.clear()
        if not self._begun:
            at = self._take_preface(data)
        end = len(data)
        last = end - HEAD_BYTES if self._begun else -1
        while at <= last:
            size_and_kind, flags, stream_id = unpack(data, at)
            if size_and_kind > most:
                raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "a frame larger than we allow")
            start = at + HEAD_BYTES
            next_at = start + (size_and_kind >> 8)
            if next_at > end:
                break
            yield size_and_kind & 0xFF, flags, stream_id & stream_bits, data[start:next_at]
            at = next_at
        if at < end:
            self._keep(data[at:])

    def _keep(self, data: bytes) -> None:
        """The beginning of a frame, or of the preface."""
        self._parts.append(data)
        self._have = len(data)
        if self._begun:
            self._need = HEAD_BYTES + (int.from_bytes(data[:3], "big") if self._have >= HEAD_BYTES else 0)

    def _take_preface(self, data: bytes) -> int:
        """Where the frames begin."""
        if not PREFACE.startswith(data[: len(PREFACE)]):
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "no HTTP/2 preface")
        if len(data) < len(PREFACE):
            return 0
        self._begun = True
        return len(PREFACE)
