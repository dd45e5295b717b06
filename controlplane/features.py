"""The features of a request that its prompt's tokens are estimated from: counts of its text and of what frames it.

They come back to the control plane with the usage that the engine reports, so that it can learn; they hold nothing of
the text itself. `policy.text` counts, `policy.ask` puts them together.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

Vector = tuple[float, ...]


class Category(StrEnum):
    """What a request's text consists of, by its byte classes."""

    PROSE = "prose"
    CODE = "code"
    CJK = "cjk"
    MIXED = "mixed"
    OTHER = "other"


class TextCounts(NamedTuple):
    """What a tokenizer's work depends on. ASCII is counted by bytes, all else by characters of each script.

    `capitals` are letters too, `marks` the punctuation of CJK. Of what stands together: `blank_pairs` are two blanks,
    `words` a letter after a blank, `joins` a letter after punctuation (as in `a.b`), `stops` a blank after punctuation,
    `indents` a blank after a newline, `triples` three digits; these are counted in 2 KiB of a longer text.
    `total` is in bytes and always exact; the counts of a text of more than 8 KiB are of a sample of it, scaled up.
    """

    total: int = 0
    letters: int = 0
    capitals: int = 0
    digits: int = 0
    punctuation: int = 0
    blanks: int = 0
    newlines: int = 0
    blank_pairs: int = 0
    words: int = 0
    joins: int = 0
    stops: int = 0
    indents: int = 0
    triples: int = 0
    latin: int = 0
    cyrillic: int = 0
    semitic: int = 0
    indic: int = 0
    symbols: int = 0
    marks: int = 0
    kana: int = 0
    han: int = 0
    hangul: int = 0
    astral: int = 0


NO_TEXT = TextCounts()

# Of a vector, in order: what a chat template adds and what an engine may, then the text.
FRAMING = ("request", "messages", "tool_lists", "tools", "calls", "images", "schema_bytes")
FEATURES = (*FRAMING, *TextCounts._fields[1:])


class Features(Struct, frozen=True, gc=False):
    """Of one request. `text` covers all prompt text, definitions of tools and arguments of calls, without data-URIs.

    `calls` are tool calls in the conversation; `token_ids` counts the tokens of a prompt that is given as such;
    `schema_bytes` are those of output schemas. With `is_cut` the whole body was counted for text, since it has more
    parts than are looked at: that is more than the prompt.
    """

    text: TextCounts = NO_TEXT
    messages: int = 0
    tools: int = 0
    calls: int = 0
    images: int = 0
    token_ids: int = 0
    schema_bytes: int = 0
    is_cut: bool = False

    @property
    def category(self) -> Category:
        return categorise(self.text)

    @property
    def vector(self) -> Vector:
        """One number per name in `FEATURES`."""
        tools = self.tools
        lists = 1 if tools else 0
        return (1, self.messages, lists, tools, self.calls, self.images, self.schema_bytes, *self.text[1:])


NO_FEATURES = Features()


def categorise(text: TextCounts) -> Category:
    """What kind of text was counted, by the shares of its bytes.

    `mixed` has letters beyond ASCII, also when they are all of one script. `other` is what has few bytes per token
    though it is ASCII: numbers, encodings, dense markup.
    """
    total = text.total
    blanks = text.blanks + text.newlines
    cjk = 3 * (text.marks + text.kana + text.han + text.hangul)
    ascii_ = text.letters + text.digits + text.punctuation + blanks
    if cjk >= 0.5 * total > 0:
        return Category.CJK
    if max(cjk, total - ascii_) >= 0.03 * total > 0:
        return Category.MIXED
    unbroken = total >= 64 and blanks < 0.06 * total
    if unbroken or text.digits >= 0.2 * total > 0 or text.punctuation >= 0.35 * total > 0:
        return Category.OTHER
    if text.punctuation >= 0.08 * total > 0:
        return Category.CODE
    return Category.PROSE
