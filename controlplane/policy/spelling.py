"""How words are told from what stands between them, in text as bytes of UTF-8: so few passes over it are needed."""

from __future__ import annotations

import re

# ASCII of the ends of clauses in `CLAUSES`.
CLAUSE_END = b"\x1f"

# Kana, ideographs and hangul.
_DENSE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_KANA = re.compile(r"[\u3040-\u30ff]")
# Quotes, dashes and dots (U+2010 to U+203F), and the marks between U+00A0 and U+00BF, such as those of Spanish.
_TYPOGRAPHY = re.compile(rb"\xe2\x80[\x90-\xbf]|\xc2[\xa0-\xbf]")
# ASCII, the ideographic comma and full stop, and the full-width ! , : ; ?
DENSE_CLAUSE_END = re.compile(rb"[.,:;!?\n]|\xe3\x80[\x81\x82]|\xef\xbc[\x81\x8c\x9a\x9b\x9f]")
DENSE_COLON = re.compile(rb":|\xef\xbc\x9a")
_OF_WORDS = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789+#_")


def _table(ends: str) -> bytes:
    """ASCII letters in lower case; digits and what words of the trade hold (`c++`, `#include`, `snake_case`) kept; a
    mark for each of `ends`, and blanks for all else. Bytes above ASCII are parts of letters."""
    table = bytearray(b" " * 128 + bytes(range(128, 256)))
    for byte in range(128):
        char = chr(byte)
        if char.isalnum() or char in "+#_":
            table[byte] = ord(char.lower())
        elif char in ends:
            table[byte] = ord(CLAUSE_END)
    return bytes(table)


# Tables for `bytes.translate`: words between blanks, and the same with marks where clauses end.
WORDS = _table("")
CLAUSES = _table(".;:!?\n")


def is_dense(text: str) -> bool:
    """Whether a text, or a listed word, is of a language without blanks, or that joins particles to its words."""
    return _DENSE.search(text) is not None


def has_kana(text: str) -> bool:
    return _KANA.search(text) is not None


def spaced_bytes(text: str) -> bytes:
    """The text in lower case, beginning with a blank, ending with a blank and the end of a clause. ASCII letters are
    left to the tables."""
    if text.isascii():
        return f" {text} \n".encode()
    return _TYPOGRAPHY.sub(b" ", f" {text} \n".lower().encode(errors="replace"))


def dense_bytes(text: str) -> bytes:
    """The text, beginning and ending with a blank. Letters with accents are rare in it, and left as they are."""
    return f" {text} ".encode(errors="replace")


def plain(text: str) -> bytes:
    """A listed word or phrase as it is searched for: in lower case, with one blank between words."""
    if is_dense(text):
        return text.lower().encode(errors="replace")
    return b" ".join(spaced_bytes(text).translate(WORDS).split())


def stands_alone(words: bytes, start: int, end: int) -> bool:
    """Whether what is found in a dense text is a whole word of a language with blanks."""
    before, after = words[start - 1], words[end]
    if before in _OF_WORDS or after in _OF_WORDS:
        return False
    # Letters of two bytes are Latin, Greek, Cyrillic and the like.
    return not (_begins_letter(after) or (before >= 0x80 and _begins_letter(words[start - 2])))


def _begins_letter(byte: int) -> bool:
    return 0xC3 <= byte <= 0xDF
