"""Header fields: blocks of HPACK (RFC 7541) in and out, and which fields make a request (RFC 9113, section 8).

We allow the peer no dynamic table. Once it obeys, a block always means the same, so what it means is remembered: a
proxy sends the same block again and again. Our own blocks use no table either, and can be made in advance.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hpack import Decoder, HPACKError, OversizedHeaderListError

from ext_proc.http2.frames import ErrorCode, ProtocolError

MOST_REMEMBERED: Final = 1024
LONGEST_REMEMBERED: Final = 2048

_PSEUDO: Final = frozenset({b":method", b":scheme", b":path", b":authority"})
_NEEDED: Final = frozenset({b":method", b":scheme", b":path"})
# Of HTTP/1 connections (section 8.2.2).
_NOT_IN_HTTP2: Final = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
# Sections 8.2.1 and, for tokens, RFC 9110, 5.6.2.
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_BAD_VALUE: Final = re.compile(rb"[\x00\r\n]|^[ \t]|[ \t]\Z")


@dataclass(frozen=True, slots=True)
class Head:
    """A request's method, path and other fields; of equal names the last counts. Latin-1 keeps every byte."""

    method: str
    path: str
    fields: Mapping[str, str]
    content_length: int | None


class MalformedError(Exception):
    """These fields are no request (section 8.1.1)."""


class FieldDecoder:
    """One peer's blocks, all of them, in order. Raises ProtocolError for one that is no HPACK, or too large."""

    __slots__ = ("_decoder", "_remembered")

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes` as of SETTINGS_MAX_HEADER_LIST_SIZE."""
        self._decoder = Decoder(most_bytes)
        self._remembered: dict[bytes, Head] = {}

    def forbid_table(self) -> None:
        """The peer has acknowledged a table size of 0: the next block has to begin with that (RFC 7541, 4.2)."""
        self._decoder.max_allowed_table_size = 0

    def request(self, block: bytes) -> Head:
        """Raises MalformedError too."""
        known = self._remembered.get(block)
        if known is not None and not self._decoder.header_table_size:
            return known
        head = _request(self._decode(block))
        if len(block) <= LONGEST_REMEMBERED and not self._decoder.header_table_size:
            if len(self._remembered) >= MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[block] = head
        return head

    def fault_of_trailers(self, block: bytes) -> str:
        """What is wrong with them, empty when nothing is. They say nothing else to us."""
        try:
            for name, value in self._decode(block):
                _check(name, value)
        except MalformedError as error:
            return str(error)
        return ""

    def _decode(self, block: bytes) -> list[tuple[bytes, bytes]]:
        try:
            return [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]
        except OversizedHeaderListError as error:
            raise ProtocolError(ErrorCode.ENHANCE_YOUR_CALM, "header fields exceed what we accept") from error
        # hpack raises some errors of Python for blocks that end early.
        except (HPACKError, IndexError, ValueError, OverflowError) as error:
            raise ProtocolError(ErrorCode.COMPRESSION_ERROR, "a block of header fields that is no HPACK") from error


def block(fields: Iterable[tuple[str, str]]) -> bytes:
    """A block of these fields, each literal and not to be indexed. `:status` 200 is the static table's."""
    return b"".join(
        b"\x88" if (name, value) == (":status", "200") else b"\x00" + _string(name) + _string(value)
        for name, value in fields
    )


def _string(text: str) -> bytes:
    data = text.encode("latin-1")
    return _integer(len(data)) + data


def _integer(value: int) -> bytes:
    """With a prefix of 7 bits, the eighth being 0 (RFC 7541, 5.1)."""
    if value < 127:
        return bytes((value,))
    value -= 127
    written = bytearray(b"\x7f")
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)


def _request(fields: Iterable[tuple[bytes, bytes]]) -> Head:
    pseudo: dict[bytes, bytes] = {}
    others: dict[str, str] = {}
    for name, value in fields:
        if name in _PSEUDO:
            if others or name in pseudo:
                raise MalformedError("a pseudo-header field twice, or after others")
            if _BAD_VALUE.search(value):
                raise MalformedError("a field with a value that is none")
            pseudo[name] = value
        else:
            _check(name, value)
            others[name.decode("latin-1")] = value.decode("latin-1")
    if not pseudo.keys() >= _NEEDED or not pseudo[b":path"]:
        raise MalformedError("no method, scheme or path")
    length = others.get("content-length")
    if length is not None and not (length.isascii() and length.isdigit() and len(length) < 19):
        raise MalformedError("a content-length that is no number")
    return Head(
        pseudo[b":method"].decode("latin-1"),
        pseudo[b":path"].decode("latin-1"),
        others,
        None if length is None else int(length),
    )


def _check(name: bytes, value: bytes) -> None:
    if not _NAME.fullmatch(name):
        raise MalformedError("a field with a name that is none")
    if _BAD_VALUE.search(value):
        raise MalformedError("a field with a value that is none")
    if name in _NOT_IN_HTTP2 or (name == b"te" and value != b"trailers"):
        raise MalformedError("a field of HTTP/1 connections")
