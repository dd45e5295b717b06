"""Reads prompt text as bytes: how many characters fall in each class, and bounded excerpts of it.

Linear in the text, without a loop over bytes in Python. It does not look at words; `classify` does.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable

from controlplane.features import TextCounts

_LETTERS = string.ascii_letters.encode()
_DIGITS = string.digits.encode()
_PUNCTUATION = string.punctuation.encode()

# One code per class; continuation bytes are taken out before, so that a character beyond ASCII is one code.
_SCRIPT_LEADS = (  # in the order of the fields of `TextCounts`
    range(0xC0, 0xCE),  # Latin letters with marks, Latin-1 signs
    range(0xCE, 0xD6),  # Greek, Cyrillic, Armenian
    range(0xD6, 0xE0),  # Hebrew, Arabic and their neighbours
    range(0xE0, 0xE2),  # India and South-East Asia, Georgian, Ethiopic, Vietnamese vowels
    (0xE2, 0xEE, 0xEF),  # punctuation and signs, full-width forms
    (0xE3,),  # kana; CJK punctuation, which is told by its second byte
    range(0xE4, 0xEA),  # CJK ideographs
    range(0xEA, 0xEE),  # hangul
    range(0xF0, 0x100),  # emoji, rare ideographs
)
_MARKS = b"\xe3\x80"
_SCRIPT_CODES = tuple(bytes([0x80 + number]) for number in range(len(_SCRIPT_LEADS)))
_LOWER = string.ascii_lowercase.encode()
_CONTINUATIONS = bytes(range(0x80, 0xC0))
# A text longer than this is counted by a sample of so many bytes: pieces spread over all of it, one at a pseudo-random
# place in each of as many equal parts, so that no period of the text can hide from them.
_SAMPLE_BYTES = 8192
_PIECES = 32
# What stands together is counted in so many bytes: those that the pieces begin with.
_PAIRS_BYTES = 2048
_RARE = (b"a", b"0", b".", b"\n")
_PAIRS = (b"  ", b" a", b".a", b". ", b"\n ", b"000")  # in the order of the fields of `TextCounts`
_PLACES = tuple(number * 0.6180339887498949 % 1.0 for number in range(_PIECES))


def _class_codes() -> bytes:
    codes = bytearray(b"?" * 256)
    for members, code in ((_LETTERS, b"a"), (_DIGITS, b"0"), (_PUNCTUATION, b"."), (b" \t", b" "), (b"\n", b"\n")):
        for byte in members:
            codes[byte] = code[0]
    for leads, code in zip(_SCRIPT_LEADS, _SCRIPT_CODES, strict=True):
        for byte in leads:
            codes[byte] = code[0]
    return bytes(codes)


_CODES = _class_codes()

# Encoded content in the middle of text, such as a pasted picture. Each part has its own end character, so that the
# search is linear however it is provoked.
_DATA_URI = re.compile(r"data:[\w.+-]{1,64}/[\w.+-]{1,64}(?:;[\w=.+-]{1,64}){0,4};base64,[A-Za-z0-9+/=_-]*")


def cut_data_uris(text: str) -> tuple[str, int]:
    """The text without its base64 data-URIs, and how many there were."""
    # Few texts have a semicolon, and one character is found much faster than several.
    if ";" not in text or ";base64," not in text:
        return text, 0
    return _DATA_URI.subn(" ", text)


def count_text(text: str) -> TextCounts:
    """Counts a text's characters by class and script. Lone surrogates, which JSON can hold, count as one byte."""
    data = text.encode(errors="replace")
    total = len(data)
    if total <= _PAIRS_BYTES:
        return TextCounts(total, *_counts(data, _pairs(data)))
    pieces = _pieces(data, min(total, _SAMPLE_BYTES) // _PIECES)
    pairs = _pairs(b"".join([piece[: _PAIRS_BYTES // _PIECES] for piece in pieces]))
    if total <= _SAMPLE_BYTES:
        return TextCounts(total, *_counts(data, _scaled(pairs, total / _PAIRS_BYTES)))
    pairs = _scaled(pairs, _SAMPLE_BYTES / _PAIRS_BYTES)
    return TextCounts(total, *_scaled(_counts(b"".join(pieces), pairs), total / _SAMPLE_BYTES))


def _pieces(data: bytes, size: int) -> list[bytes]:
    part = len(data) / _PIECES
    spare = part - size
    starts = [int(number * part + place * spare) for number, place in enumerate(_PLACES)]
    return [data[start : start + size] for start in starts]


def _scaled(counts: Iterable[int], scale: float) -> list[int]:
    return [round(count * scale) for count in counts]


def _pairs(data: bytes) -> Iterable[int]:
    return map(data.translate(_CODES, _CONTINUATIONS).count, _PAIRS)


def _counts(data: bytes, pairs: Iterable[int]) -> tuple[int, ...]:
    """The fields of `TextCounts` after `total`, of which `pairs` are some."""
    is_ascii = data.isascii()
    if not is_ascii:
        marks = data.count(_MARKS)
        data = data.translate(None, _CONTINUATIONS)
    # What is commonest is taken out first, so that the further passes are over ever smaller rests.
    rest = data.translate(_CODES, _LOWER)
    rare = rest.translate(None, b" ")
    capitals, digits, punctuation, newlines = map(rare.count, _RARE)
    letters, blanks = len(data) - len(rest) + capitals, len(rest) - len(rare)
    counts = (letters, capitals, digits, punctuation, blanks, newlines, *pairs)
    if is_ascii:
        return counts
    *scripts, kana, han, hangul, astral = map(rare.count, _SCRIPT_CODES)
    return *counts, *scripts, marks, kana - marks, han, hangul, astral


def excerpt(text: str, head: int, tail: int) -> str:
    """The first `head` and last `tail` characters, as two lines; the whole text when it is no longer than both."""
    if len(text) <= head + tail:
        return text
    return f"{text[:head]}\n{text[len(text) - tail :]}"
