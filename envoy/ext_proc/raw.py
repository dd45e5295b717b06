"""ext_proc's messages as bytes, for the transport that counts microseconds: what `wire` does, without message objects.

Only the usual shapes are read from the bytes themselves; all others go through protobuf and `wire`, with the same
result. Rests on how protobuf joins messages: bytes one after the other are the messages merged
(https://protobuf.dev/programming-guides/encoding/#last-one-wins).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from controlplane.model import HttpRequest
from ext_proc import wire
from ext_proc.answer import Answer, Route
from ext_proc.exchange import Exchange, TooLarge
from ext_proc.names import NAMESPACE
from headrace_protos.envoy.config.core.v3 import base_pb2
from headrace_protos.envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

_MOST_HEADERS: Final = 4096
_LONGEST_HEADER: Final = 256
_MOST_RUNS: Final = 1024
_LONGEST_RUN: Final = 4096

# Tags: the number of the field, and that it has a length (2) or is a varint (0).
_REQUEST_HEADERS: Final = 2 << 3 | 2
_REQUEST_BODY: Final = 4 << 3 | 2
_FIRST: Final = 1 << 3 | 2
_BODY_END: Final = 2 << 3
_HEADERS_END: Final = 3 << 3

# A tag and a length of two bytes each, twice.
_OPENING_BYTES: Final = 6

_CHANGING_NAMES: Final = {
    bytes((len(name),)) + name.encode(): name for name in ("content-length", "x-request-id", "traceparent")
}
# A HeaderValue up to its `raw_value`. The dots are the sizes of the whole and of the value.
_CHANGING: Final = re.compile(rb"\n.\n(%b)\x1a." % b"|".join(map(re.escape, _CHANGING_NAMES)), re.DOTALL)


class Reader:
    """Reads messages of Envoy. Remembers headers, most of which come again and again as they are.

    A few differ with each request. These are read by themselves, and what stands between them is remembered as a whole.
    """

    __slots__ = ("_headers", "_runs")

    def __init__(self) -> None:
        self._headers: dict[bytes, tuple[str, str]] = {}
        self._runs: dict[bytes, dict[str, str]] = {}

    def take(self, exchange: Exchange, message: bytes) -> HttpRequest | TooLarge | None:
        """As `wire.take`. Raises google.protobuf.message.DecodeError for bytes that are no message."""
        kind = message[0] if message else 0
        if kind == _REQUEST_BODY:
            body = _body(message)
            if body is not None:
                return exchange.take_body(body[0], end_of_stream=body[1])
        elif kind == _REQUEST_HEADERS:
            start, map_end, end = _opening(message[:_OPENING_BYTES])
            if start and end <= len(message) and _says_nothing(message[end:]):
                headers = self._header_map(message[start:map_end])
                ended = _flag(message, map_end, end, _HEADERS_END)
                if headers is not None and ended is not None:
                    return exchange.take_headers(headers, end_of_stream=ended)
        return wire.take(exchange, ext_proc.ProcessingRequest.FromString(message))

    def _header_map(self, block: bytes) -> Mapping[str, str] | None:
        """Of HeaderMap, None when it is an unusual one."""
        headers: dict[str, str] = {}
        known, at = self._runs, 0
        for changing in _CHANGING.finditer(block):
            start, value_start = changing.span()
            run = known.get(block[at:start]) or self._new_run(block[at:start])
            if run is None or start < at:
                return self._walked(block)
            at = start + 2 + block[start + 1]
            value = block[value_start:at]
            if len(value) != block[value_start - 1]:  # these bytes are not what they look like: within a value, or cut
                return self._walked(block)
            headers |= run
            headers[_CHANGING_NAMES[changing[1]]] = value.decode("latin-1")
        run = known.get(block[at:]) or self._new_run(block[at:])
        return None if run is None else headers | run

    def _new_run(self, block: bytes) -> dict[str, str] | None:
        """Headers that stand one after the other, to be remembered."""
        headers = self._walked(block)
        if headers and len(block) <= _LONGEST_RUN:
            if len(self._runs) >= _MOST_RUNS:
                self._runs.clear()
            self._runs[block] = headers
        return headers

    def _walked(self, block: bytes) -> dict[str, str] | None:
        """One header after the other."""
        headers: dict[str, str] = {}
        at, end = 0, len(block)
        while at < end:
            if block[at] != _FIRST:
                return None
            try:
                start, at = _span(block, at + 1)
            except IndexError:
                return None
            if at > end:
                return None
            header = block[start:at]
            name, value = self._headers.get(header) or self._header(header)
            headers[name] = value
        return headers

    def _header(self, message: bytes) -> tuple[str, str]:
        header = wire.header(base_pb2.HeaderValue.FromString(message))
        if len(message) <= _LONGEST_HEADER:
            if len(self._headers) >= _MOST_HEADERS:
                self._headers.clear()
            self._headers[message] = header
        return header


def response(answer: Answer) -> bytes:
    """`wire.response` in bytes, though its fields may come in another order."""
    if isinstance(answer, Route) and answer.body is None:
        said = _route(answer.cluster, answer.taken_off, answer.headers)
    else:
        said = wire.without_metadata(answer).SerializeToString()
    entries = b"".join(map(_entry, answer.metadata.keys(), answer.metadata.values()))
    return b"".join((said, _metadata_opening(len(entries)), entries))


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


@lru_cache(maxsize=4096)
def _opening(first: bytes) -> tuple[int, int, int]:
    """Of a message with HttpHeaders, by its first bytes: where what is in their HeaderMap begins and ends, and where
    they end. Zeros when that is not to be seen there. Their sizes hardly differ, so few are worked out."""
    try:
        at, end = _span(first, 1)
        if first[at] != _FIRST:
            return 0, 0, 0
        map_start, map_end = _span(first, at + 1)
    except IndexError:
        return 0, 0, 0
    return (map_start, map_end, end) if map_end <= end else (0, 0, 0)


def _body(message: bytes) -> tuple[bytes, bool] | None:
    """Of a message with HttpBody: the bytes, and whether they are the last. None when there is more in it."""
    try:
        at, end = _span(message, 1)
        if end != len(message) and not (end < len(message) and _says_nothing(message[end:])):
            return None
        data = b""
        if at < end and message[at] == _FIRST:
            start, at = _span(message, at + 1)
            if at > end:
                return None
            data = message[start:at]
    except IndexError:
        return None
    ended = _flag(message, at, end, _BODY_END)
    return None if ended is None else (data, ended)


def _flag(message: bytes, at: int, end: int, tag: int) -> bool | None:
    """The value of the flag that is all there is up to `end`, False when it is not there; None when there is more."""
    if at == end:
        return False
    if end - at == 2 and message[at] == tag and message[at + 1] < 0x80:
        return message[at + 1] != 0
    return None


def _span(message: bytes, at: int) -> tuple[int, int]:
    """Where the field begins and ends whose length is at `at`. Raises IndexError where that has no end."""
    size = message[at]
    if size < 0x80:
        return at + 1, at + 1 + size
    byte = message[at + 1]
    if byte < 0x80:
        return at + 2, at + 2 + (byte << 7) + size - 0x80
    size += (byte << 7) - (0x80 + (0x80 << 7))
    for shift in (14, 21, 28):
        at += 1
        byte = message[at + 1]
        size += (byte & 0x7F) << shift
        if byte < 0x80:
            return at + 2, at + 2 + size
    raise IndexError


@lru_cache(maxsize=4096)
def _metadata_opening(size: int) -> bytes:
    """What stands before the entries, of `size` bytes together, in `ProcessingResponse.dynamic_metadata`: a Struct that
    has one Struct, of strings, by our name."""
    struct = _head(b"\x2a", size)
    value = _head(b"\x12", len(struct) + size) + struct
    entry = _head(b"\x0a", len(_NAME) + len(value) + size) + _NAME + value
    return _head(b"\x42", len(entry) + size) + entry


@lru_cache(maxsize=512)
def _entry(key: str, value: str) -> bytes:
    """Of Struct.fields: the key, and a Value that is a string. Most of them come again and again."""
    data = value.encode()
    return _entry_opening(key, len(data)) + data


@lru_cache(maxsize=4096)
def _entry_opening(key: str, size: int) -> bytes:
    """What stands before a value of `size` bytes."""
    name = key.encode()
    string = _head(b"\x1a", size)
    value = _head(b"\x0a", len(name)) + name + _head(b"\x12", len(string) + size) + string
    return _head(b"\x0a", len(value) + size) + value


def _head(tag: bytes, size: int) -> bytes:
    """What stands before the data of a field that are `size` bytes."""
    head = bytearray(tag)
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head)


_NAME: Final = _head(b"\x0a", len(NAMESPACE)) + NAMESPACE.encode()
