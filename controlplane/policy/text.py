"""Reads prompt text as bytes: how many fall in each class, what kind of text they make, and bounded excerpts of it.

Linear in the text, without a loop over bytes in Python. It does not look at words; `classify` does.
"""

from __future__ import annotations

import re
import string
from typing import NamedTuple

from controlplane.model import ByteClasses, Category

_LETTERS = string.ascii_letters.encode()
_DIGITS = string.digits.encode()
_PUNCTUATION = string.punctuation.encode()
_ASCII = bytes(range(128))
# Lead bytes of the three-byte sequences of kana, CJK ideographs and hangul (U+3000 to U+DFFF).
_NOT_CJK_LEADS = bytes(byte for byte in range(256) if not 0xE3 <= byte <= 0xED)

# One code per class; continuation bytes are taken out before, so that a character beyond ASCII is one code.
_SCRIPT_LEADS = (  # in the order of the fields of `TextCounts`
    range(0xC0, 0xCE),  # Latin letters with marks, Latin-1 signs
    range(0xCE, 0xD6),  # Greek, Cyrillic, Armenian
    range(0xD6, 0xE0),  # Hebrew, Arabic and their neighbours
    range(0xE0, 0xE2),  # India and South-East Asia, Georgian, Ethiopic, Vietnamese vowels
    (0xE2, 0xEE, 0xEF),  # punctuation and signs, full-width forms
    (0xE3,),  # kana and CJK punctuation
    range(0xE4, 0xEA),  # CJK ideographs
    range(0xEA, 0xEE),  # hangul
    range(0xF0, 0x100),  # emoji, rare ideographs
)
_SCRIPT_CODES = tuple(bytes([0x80 + number]) for number in range(len(_SCRIPT_LEADS)))
_LOWER = string.ascii_lowercase.encode()
_CONTINUATIONS = bytes(range(0x80, 0xC0))
# A text longer than this is counted by a sample of so many bytes: pieces spread over all of it, one at a pseudo-random
# place in each of as many equal parts, so that no period of the text can hide from them.
_SAMPLE_BYTES = 8192
_PIECE_BYTES = 256
_PIECES = _SAMPLE_BYTES // _PIECE_BYTES
# Pairs are counted in the first bytes of each stride of a shorter one.
_PAIRS_BYTES, _PAIRS_STRIDE = 128, 512
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
    if ";base64," not in text:
        return text, 0
    return _DATA_URI.subn(" ", text)


def count_classes(text: str) -> ByteClasses:
    """Counts the UTF-8 bytes of `text` by class. Lone surrogates, which JSON can hold, count as one byte."""
    data = text.encode(errors="replace")
    total = len(data)
    cjk = other = 0
    if not data.isascii():
        beyond = data.translate(None, _ASCII)
        cjk = 3 * len(beyond.translate(None, _NOT_CJK_LEADS))
        other = len(beyond) - cjk
    # The commonest class goes first, so that the later passes are over a small rest.
    rest = data.translate(None, _LETTERS)
    letters = total - len(rest)
    blanks = rest.count(b" ") + rest.count(b"\t")
    newlines = rest.count(b"\n")
    digits = len(rest) - len(rest.translate(None, _DIGITS))
    punctuation = len(rest) - len(rest.translate(None, _PUNCTUATION))
    control = len(rest) - cjk - other - blanks - newlines - digits - punctuation
    return ByteClasses(
        total=total,
        letters=letters,
        digits=digits,
        punctuation=punctuation,
        blanks=blanks,
        newlines=newlines,
        cjk=cjk,
        other=other + control,
    )


class TextCounts(NamedTuple):
    """What a tokenizer's work depends on. ASCII is counted by bytes, all else by characters of each script.

    `capitals` are letters too. `blank_pairs` is how often two blanks stand together (indentation), `joins` how often a
    letter follows punctuation at once, as in `a.b`; both are counted in a quarter
    of a text of more than 512 bytes. `total` is in
    bytes and always exact; the counts of a text of more than 8 KiB are those of a sample of it, scaled up.
    """

    total: int = 0
    letters: int = 0
    capitals: int = 0
    digits: int = 0
    punctuation: int = 0
    blanks: int = 0
    newlines: int = 0
    blank_pairs: int = 0
    joins: int = 0
    latin: int = 0
    cyrillic: int = 0
    semitic: int = 0
    indic: int = 0
    symbols: int = 0
    kana: int = 0
    han: int = 0
    hangul: int = 0
    astral: int = 0

    @property
    def classes(self) -> ByteClasses:
        cjk = 3 * (self.kana + self.han + self.hangul)
        known = self.letters + self.digits + self.punctuation + self.blanks + self.newlines + cjk
        return ByteClasses(
            total=self.total,
            letters=self.letters,
            digits=self.digits,
            punctuation=self.punctuation,
            blanks=self.blanks,
            newlines=self.newlines,
            cjk=cjk,
            other=max(0, self.total - known),
        )


def count_text(text: str) -> TextCounts:
    """Counts a text's characters by class and script. Lone surrogates, which JSON can hold, count as one byte."""
    data = text.encode(errors="replace")
    total = len(data)
    if total <= _PAIRS_STRIDE:
        return TextCounts(total, *_counts(data, data, 1))
    if total <= _SAMPLE_BYTES:
        part = b"".join([data[start : start + _PAIRS_BYTES] for start in range(0, total, _PAIRS_STRIDE)])
        return TextCounts(total, *_counts(data, part, total / len(part)))
    pieces = _pieces(data)
    counts = _counts(b"".join(pieces), b"".join(pieces[::4]), 4)
    scale = total / _SAMPLE_BYTES
    return TextCounts(total, *[round(count * scale) for count in counts])


def _pieces(data: bytes) -> list[bytes]:
    part = len(data) / _PIECES
    spare = part - _PIECE_BYTES
    starts = [int(number * part + place * spare) for number, place in enumerate(_PLACES)]
    return [data[start : start + _PIECE_BYTES] for start in starts]


def _counts(data: bytes, part: bytes, scale: float) -> tuple[int, ...]:
    """The fields of `TextCounts` after `total`; those of pairs are counted in `part` and multiplied by `scale`."""
    is_ascii = data.isascii()
    if not is_ascii:
        data = data.translate(None, _CONTINUATIONS)
    # What is commonest is taken out at once, so that the further passes are over a small rest.
    rest = data.translate(_CODES, _LOWER)
    codes = part.translate(_CODES)
    capitals = rest.count(b"a")
    counts = (
        len(data) - len(rest) + capitals,
        capitals,
        rest.count(b"0"),
        rest.count(b"."),
        rest.count(b" "),
        rest.count(b"\n"),
        round(codes.count(b"  ") * scale),
        round(codes.count(b".a") * scale),
    )
    if is_ascii:
        return counts
    return *counts, *[rest.count(code) for code in _SCRIPT_CODES]


def categorise(classes: ByteClasses) -> Category:
    """What kind of text these bytes make, by the shares of their classes.

    `mixed` has letters beyond ASCII, also when they are all of one script. `other` is what has few bytes per token
    though it is ASCII: numbers, encodings, dense markup.
    """
    total = classes.total
    if classes.cjk >= 0.5 * total > 0:
        return Category.CJK
    if classes.cjk + classes.other >= 0.03 * total > 0:
        return Category.MIXED
    unbroken = total >= 64 and classes.blanks + classes.newlines < 0.06 * total
    if unbroken or classes.digits >= 0.2 * total > 0 or classes.punctuation >= 0.35 * total > 0:
        return Category.OTHER
    if classes.punctuation >= 0.08 * total > 0:
        return Category.CODE
    return Category.PROSE


def excerpt(text: str, head: int, tail: int) -> str:
    """The first `head` and last `tail` characters, as two lines; the whole text when it is no longer than both."""
    if len(text) <= head + tail:
        return text
    return f"{text[:head]}\n{text[len(text) - tail :]}"
