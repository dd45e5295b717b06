"""ext_proc's messages as bytes, for the transport that counts microseconds: what `wire` does, without message objects.

Only the usual shapes are read from the bytes themselves; all others go through protobuf and `wire`, with the same
result. Rests on how protobuf joins messages: bytes one after the other are the messages merged
(https://protobuf.dev/programming-guides/encoding/#last-one-wins).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from controlplane.model import HttpRequest
from ext_proc import wire
from ext_proc.answer import Answer, Reply, Route
from ext_proc.exchange import Exchange, TooLarge
from ext_proc.names import NAMESPACE
from headrace_protos.envoy.config.core.v3 import base_pb2
from headrace_protos.envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

_MOST_HEADERS: Final = 4096
_LONGEST_HEADER: Final = 256
_LONGEST_VALUE: Final = 64

# Tags: the number of the field, and that it has a length (2) or is a varint (0).
_REQUEST_HEADERS: Final = 2 << 3 | 2
_REQUEST_BODY: Final = 4 << 3 | 2
_FIRST: Final = 1 << 3 | 2
_BODY_END: Final = 2 << 3
_HEADERS_END: Final = 3 << 3


class Reader:
    """Reads messages of Envoy. Remembers headers, most of which come again and again as they are."""

    __slots__ = ("_headers",)

    def __init__(self) -> None:
        self._headers: dict[bytes, tuple[str, str]] = {}

    def take(self, exchange: Exchange, message: bytes) -> HttpRequest | TooLarge | None:
        """As `wire.take`. Raises google.protobuf.message.DecodeError for bytes that are no message."""
        kind = message[0] if message else 0
        if kind in {_REQUEST_HEADERS, _REQUEST_BODY}:
            start, end = _span(message, 1, len(message))
            if start and _says_nothing(message[end:]):
                if kind == _REQUEST_BODY:
                    body = _body(message, start, end)
                    if body is not None:
                        return exchange.take_body(body[0], end_of_stream=body[1])
                else:
                    headers = self._header_map(message, start, end)
                    if headers is not None:
                        return exchange.take_headers(headers[0], end_of_stream=headers[1])
        return wire.take(exchange, ext_proc.ProcessingRequest.FromString(message))

    def _header_map(self, message: bytes, at: int, end: int) -> tuple[dict[str, str], bool] | None:
        """Of HttpHeaders: the map, and whether nothing follows. None when there is more in it."""
        headers: dict[str, str] = {}
        if at < end and message[at] == _FIRST:
            at, map_end = _span(message, at + 1, end)
            if not at:
                return None
            known = self._headers
            while at < map_end:
                if message[at] != _FIRST:
                    return None
                start = at + 2
                size = message[at + 1] if start <= map_end else 0x80
                at = start + size
                if size > 0x7F or at > map_end:
                    start, at = _span(message, start - 1, map_end)
                    if not start:
                        return None
                header = message[start:at]
                pair = known.get(header) or self._header(header)
                headers[pair[0]] = pair[1]
        ended = _flag(message, at, end, _HEADERS_END)
        return None if ended is None else (headers, ended)

    def _header(self, message: bytes) -> tuple[str, str]:
        header = wire.header(base_pb2.HeaderValue.FromString(message))
        if len(message) <= _LONGEST_HEADER:
            if len(self._headers) >= _MOST_HEADERS:
                self._headers.clear()
            self._headers[message] = header
        return header


def response(answer: Answer) -> bytes:
    """`wire.response` in bytes, though its fields may come in another order."""
    match answer:
        case Route(cluster, _, None, taken_off, headers):
            said = _route(cluster, taken_off, headers)
        case Route() | Reply():
            said = wire.without_metadata(answer).SerializeToString()
    return said + _metadata(answer.metadata)


@lru_cache(maxsize=1024)
def _route(cluster: str, taken_off: tuple[str, ...], headers: tuple[tuple[str, str], ...]) -> bytes:
    route = Route(cluster, {}, taken_off=taken_off, headers=headers)
    return wire.without_metadata(route).SerializeToString()


@lru_cache(maxsize=64)
def _says_nothing(rest: bytes) -> bool:
    """Whether these fields have no say in what a message before them is."""
    return not rest or (
        len(rest) <= _LONGEST_HEADER and ext_proc.ProcessingRequest.FromString(rest).WhichOneof("request") is None
    )


def _body(message: bytes, at: int, end: int) -> tuple[bytes, bool] | None:
    """Of HttpBody: the bytes, and whether they are the last. None when there is more in it."""
    data = b""
    if at < end and message[at] == _FIRST:
        start, at = _span(message, at + 1, end)
        if not start:
            return None
        data = message[start:at]
    ended = _flag(message, at, end, _BODY_END)
    return None if ended is None else (data, ended)


def _flag(message: bytes, at: int, end: int, tag: int) -> bool | None:
    """The value of the flag that is all there is up to `end`, False when it is not there; None when there is more."""
    if at == end:
        return False
    if end - at == 2 and message[at] == tag and message[at + 1] < 0x80:
        return message[at + 1] != 0
    return None


def _span(message: bytes, at: int, end: int) -> tuple[int, int]:
    """Where the field begins and ends whose length is at `at`; 0 and 0 when that is not before `end`."""
    if at >= end:
        return 0, 0
    size = message[at]
    at += 1
    if size > 0x7F:
        size &= 0x7F
        for shift in (7, 14, 21, 28):
            if at >= end:
                return 0, 0
            byte = message[at]
            at += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            return 0, 0
    return (at, at + size) if at + size <= end else (0, 0)


def _metadata(values: Mapping[str, str]) -> bytes:
    """As `ProcessingResponse.dynamic_metadata`: a Struct that has one Struct, of strings, by our name."""
    entries = b"".join(
        [
            _entry(key, value) if len(value) <= _LONGEST_VALUE else _new_entry(key, value)
            for key, value in values.items()
        ]
    )
    return _field(b"\x42", _field(b"\x0a", _NAME + _field(b"\x12", _field(b"\x2a", entries))))


def _new_entry(key: str, value: str) -> bytes:
    """Of Struct.fields: the key, and a Value that is a string."""
    return _field(b"\x0a", _field(b"\x0a", key.encode()) + _field(b"\x12", _field(b"\x1a", value.encode())))


_entry = lru_cache(maxsize=4096)(_new_entry)


def _field(tag: bytes, data: bytes) -> bytes:
    """`data` with its tag and length before it."""
    size = len(data)
    if size < 0x80:
        return b"%b%c%b" % (tag, size, data)
    if size < 0x4000:
        return b"%b%c%c%b" % (tag, size & 0x7F | 0x80, size >> 7, data)
    length = bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return b"".join((tag, length, data))


_NAME: Final = _field(b"\x0a", NAMESPACE.encode())
