"""Reads prompt text as bytes: how many fall in each class, what kind of text they make, and bounded excerpts of it.

Linear in the text, without a loop over bytes in Python. It does not look at words; `classify` does.
"""

from __future__ import annotations

import re
import string

from controlplane.model import ByteClasses, Category

_LETTERS = string.ascii_letters.encode()
_DIGITS = string.digits.encode()
_PUNCTUATION = string.punctuation.encode()
_ASCII = bytes(range(128))
# Lead bytes of the three-byte sequences of kana, CJK ideographs and hangul (U+3000 to U+DFFF).
_NOT_CJK_LEADS = bytes(byte for byte in range(256) if not 0xE3 <= byte <= 0xED)

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
