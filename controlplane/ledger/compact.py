"""Recorded decisions in few bytes: a message of some 800 becomes one of 150 to 250, in some microseconds.

Messages are much alike, so each is compressed against a dictionary that typical ones trained
(`bench/ledger_dictionary.py`). The first byte of what comes out is the dictionary's number, so that a better one can be
added; a dictionary that was released never changes. The first one is of deflate, the others are of Zstandard.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import cache
from importlib import resources

import zstandard

_DEFLATED = 1
_CURRENT = 2
_LEVEL = 1
_WINDOW = -12  # of deflate


class UnreadableMessageError(ValueError):
    """Not what `pack` made, or by a newer Headrace."""


def pack(messages: Iterable[bytes]) -> list[bytes]:
    """Each by itself."""
    compressor = zstandard.ZstdCompressor(
        dict_data=_prepared(_CURRENT), write_checksum=False, write_dict_id=False, level=_LEVEL
    )
    head = bytes([_CURRENT])
    return [head + compressor.compress(message) for message in messages]


def unpack(packed: bytes) -> bytes:
    """Raises UnreadableMessageError."""
    try:
        number, body = packed[0], packed[1:]
        if number == _DEFLATED:
            inflate = zlib.decompressobj(_WINDOW, _dictionary(number))
            message = inflate.decompress(body)
            if not inflate.eof:
                raise UnreadableMessageError("it was cut short")
            return message
        return zstandard.ZstdDecompressor(dict_data=_prepared(number)).decompress(body)
    except (IndexError, FileNotFoundError, zlib.error, zstandard.ZstdError) as error:
        raise UnreadableMessageError(str(error)) from error


@cache
def _prepared(number: int) -> zstandard.ZstdCompressionDict:
    dictionary = zstandard.ZstdCompressionDict(_dictionary(number), dict_type=zstandard.DICT_TYPE_FULLDICT)
    dictionary.precompute_compress(level=_LEVEL)
    return dictionary


@cache
def _dictionary(number: int) -> bytes:
    return resources.files(__package__).joinpath(f"dictionary_{number}.bin").read_bytes()
