"""Recorded decisions in few bytes: a message of some 1,200 becomes one of 200 to 300.

Messages are much alike, so each is deflated against a dictionary, two typical ones. The first byte of what comes out is
the dictionary's number, so that a better one can be added; a dictionary that was released never changes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import cache
from importlib import resources

_CURRENT = 1
# A window of 4 KiB holds the dictionary and a message, and the compressor's state is quickly copied. Higher levels take
# twice the time for a tenth less.
_LEVEL, _WINDOW, _MEMORY = 1, -12, 5


class UnreadableMessageError(ValueError):
    """Not what `pack` made, or by a newer Headrace."""


def pack(messages: Iterable[bytes]) -> list[bytes]:
    """Each by itself."""
    dictionary = _dictionary(_CURRENT)
    fresh = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY, zlib.Z_DEFAULT_STRATEGY, dictionary)
    head = bytes([_CURRENT])
    packed = []
    for message in messages:
        deflate = fresh.copy()  # cheaper than a new one
        packed.append(head + deflate.compress(message) + deflate.flush())
    return packed


def unpack(packed: bytes) -> bytes:
    """Raises UnreadableMessageError."""
    try:
        inflate = zlib.decompressobj(_WINDOW, _dictionary(packed[0]))
        return inflate.decompress(packed[1:]) + inflate.flush()
    except (IndexError, FileNotFoundError, zlib.error) as error:
        raise UnreadableMessageError(str(error)) from error


@cache
def _dictionary(number: int) -> bytes:
    return resources.files(__package__).joinpath(f"dictionary_{number}.bin").read_bytes()
