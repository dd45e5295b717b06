"""The word lists made ready for use: which listed words a text holds, where, and how strongly they speak for a task.

In languages with blanks whole words are looked up in a table, in Chinese and Japanese one expression of all listed
words runs over the text; both are linear, whatever the text. What a clause is about decides how its words count: the
word that names the task counts whole, words that name its material little, unwanted things not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from controlplane.policy.words import Topic, WordList

_CLAUSE_END = "\x1f"


def _normal_bytes() -> bytes:
    """ASCII letters in lower case; digits and what words of the trade hold (`c++`, `#include`, `snake_case`) kept; all
    else a blank, but a mark where a clause ends. Bytes above ASCII are parts of letters."""
    table = bytearray(b" " * 128 + bytes(range(128, 256)))
    for byte in range(128):
        char = chr(byte)
        if char.isalnum() or char in "+#_":
            table[byte] = ord(char.lower())
        elif char in ".;:!?\n":
            table[byte] = ord(_CLAUSE_END)
    return bytes(table)


_NORMAL = _normal_bytes()
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_CJK_CLAUSE_END = re.compile("[\u3002\uff01\uff1b\uff1a\uff1f]")  # full stop and the full-width ! ; : ?
_TYPOGRAPHY = re.compile("[\u00ab\u00bb\u00a1\u00bf\u2010-\u201f\u2026]")  # guillemets, Spanish marks, dashes, quotes
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
# How many characters before a word (and after it, in Chinese and Japanese) may hold its negation.
_NEGATION_REACH = 18
_CJK_NEGATION_REACH = 6
# How much a word counts that names the material of a task of another kind.
_AS_MATERIAL = 0.2
# Occurrences of one word that are looked at, for the one that counts most.
_MOST_OCCURRENCES = 3


# What a topic speaks for. Plain strings, since an enum's hash costs a call in Python.
Group = Literal["structured", "tolerant", "digest"]

_GROUPS: Mapping[Topic, Group] = {
    Topic.CODE: "structured",
    Topic.MATH: "structured",
    Topic.REASONING: "structured",
    Topic.DATA: "structured",
    Topic.CREATIVE: "tolerant",
    Topic.CONVERSATION: "tolerant",
    Topic.DIGEST: "digest",
}


class Entry(NamedTuple):
    """A listed word or phrase, also with blanks around it to search for: what it speaks for, how strongly (0 to 1), and
    how it is shown."""

    text: str
    needle: str
    group: Group
    weight: float
    label: str


class Found(NamedTuple):
    """How strongly a text speaks for structured and for tolerant tasks (0 to 1), and by which listed words."""

    structured: float
    tolerant: float
    structured_words: tuple[str, ...]
    tolerant_words: tuple[str, ...]


NOTHING_FOUND = Found(0.0, 0.0, (), ())


# Where a listed word stands, and which. A plain tuple, which is made much faster than a named one.
_Hit = tuple[int, Entry]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Compiled word lists. `by_word` maps the longest word of each phrase, which is rarely met, to the phrases;
    `negation_words` are the same words of negations, and `known` are both."""

    by_word: Mapping[str, tuple[Entry, ...]]
    known: frozenset[str]
    negation_words: frozenset[str]
    negations: re.Pattern[str] | None
    cjk: re.Pattern[str] | None
    cjk_entries: Mapping[str, Entry]
    cjk_negations: re.Pattern[str] | None

    def read(self, text: str) -> Found:
        """What `text` speaks for."""
        if not text:
            return NOTHING_FOUND
        if text.isascii() or not _CJK.search(text):
            return self._weigh_spaced(text)
        return self._weigh_cjk(text)

    def _weigh_spaced(self, text: str) -> Found:
        marked = _mark(text)
        words = marked.replace(_CLAUSE_END, " ")
        present = self.known.intersection(words.split())
        hits = self._spaced_hits(words, present)
        if not hits:
            return NOTHING_FOUND
        may_negate = not self.negation_words.isdisjoint(present)
        weighed: list[tuple[Entry, float]] = []
        for start, clause in _clauses(hits, marked):
            # What comes first in a clause is the task: "a poem about code", "summarise this JSON".
            task = clause[0][1].group
            mixed = False
            for offset, entry in clause:
                mixed = mixed or entry.group != task
                if not (may_negate and self._is_negated(words, start, offset)):
                    weighed.append((entry, entry.weight * _AS_MATERIAL if mixed else entry.weight))
        return _sum(weighed)

    def _spaced_hits(self, words: str, present: Iterable[str]) -> list[_Hit]:
        """Listed words among blank-separated ones, of which `present` are known, in order."""
        hits: list[_Hit] = []
        for word in present:
            for entry in self.by_word.get(word, ()):
                needle = entry.needle
                offset = words.find(needle)
                for _ in range(_MOST_OCCURRENCES):
                    if offset < 0:
                        break
                    hits.append((offset + 1, entry))
                    offset = words.find(needle, offset + 1)
        hits.sort()
        return hits

    def _is_negated(self, words: str, clause_start: int, offset: int) -> bool:
        start = max(clause_start, offset - _NEGATION_REACH)
        return self.negations is not None and self.negations.search(words, start, offset) is not None

    def _weigh_cjk(self, text: str) -> Found:
        lower = text.lower()
        ascii_only = _BEYOND_ASCII.sub(_blanks, _CJK_CLAUSE_END.sub(_CLAUSE_END, lower))
        marked = ascii_only.encode().translate(_NORMAL).decode()
        words = f" {marked.replace(_CLAUSE_END, ' ')} "
        present = self.known.intersection(words.split())
        hits = [(offset - 1, entry) for offset, entry in self._spaced_hits(words, present)]
        if self.cjk:
            hits += [(match.start(), self.cjk_entries[match[0]]) for match in self.cjk.finditer(lower)]
            hits.sort()
        weighed: list[tuple[Entry, float]] = []
        for _, clause in _clauses(hits, marked):
            # The head of a phrase comes last, so a poem about code ends with the poem. To summarise may stand anywhere.
            groups: set[Group] = {entry.group for _, entry in clause if entry.group == "digest"}
            for offset, entry in reversed(clause):
                groups.add(entry.group)
                if not self._is_cjk_negated(lower, offset, offset + len(entry.text)):
                    weighed.append((entry, entry.weight if len(groups) == 1 else entry.weight * _AS_MATERIAL))
        return _sum(weighed)

    def _is_cjk_negated(self, text: str, start: int, end: int) -> bool:
        reach = _CJK_NEGATION_REACH
        negations = self.cjk_negations
        return negations is not None and negations.search(text, max(0, start - reach), end + reach) is not None


def compile_vocabulary(lists: Iterable[WordList]) -> Vocabulary:
    """The word lists made ready; where lists share a word, the one that gives it more weight keeps it."""
    entries: dict[str, Entry] = {}
    negations: set[str] = set()
    for words in lists:
        group = _GROUPS.get(words.topic)
        for weight, texts in ((1.0, words.words), (0.5, words.weak)):
            for text in texts:
                plain = text.lower() if _CJK.search(text) else _mark(text).strip()
                if group is None:
                    negations.add(plain)
                elif plain and (plain not in entries or entries[plain].weight < weight):
                    entries[plain] = Entry(plain, f" {plain} ", group, weight, f"{plain} ({words.topic})")
    by_word: dict[str, list[Entry]] = {}
    cjk_entries: dict[str, Entry] = {}
    for text, entry in entries.items():
        if _CJK.search(text):
            cjk_entries[text] = entry
        else:
            by_word.setdefault(_rarest(text), []).append(entry)
    spaced_negations = {text for text in negations if not _CJK.search(text)}
    negation_words = frozenset(map(_rarest, spaced_negations))
    return Vocabulary(
        by_word={word: tuple(found) for word, found in by_word.items()},
        known=frozenset(by_word) | negation_words,
        negation_words=negation_words,
        negations=_any_of(f" {text} " for text in spaced_negations),
        cjk=_any_of(cjk_entries),
        cjk_entries=cjk_entries,
        cjk_negations=_any_of(negations - spaced_negations),
    )


def _rarest(phrase: str) -> str:
    """The word of a phrase that is met most rarely, by its length."""
    return max(phrase.split(), key=len)


def _mark(text: str) -> str:
    """Lower-case words between blanks, and marks where clauses end."""
    if not text.isascii():
        text = _TYPOGRAPHY.sub(" ", text).lower()
    return f" {text.encode(errors='replace').translate(_NORMAL).decode()} "


def _clauses(hits: list[_Hit], marked: str) -> Iterator[tuple[int, list[_Hit]]]:
    """The hits of each clause that has some, in order, with the offset where the clause starts."""
    index = 0
    while index < len(hits):
        first = index
        start = marked.rfind(_CLAUSE_END, 0, hits[first][0]) + 1
        end = marked.find(_CLAUSE_END, hits[first][0])
        while index < len(hits) and (end < 0 or hits[index][0] < end):
            index += 1
        yield start, hits[first:index]


def _any_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    """An expression that matches any of these texts, the longest first; None for none."""
    ordered = sorted(set(texts), key=lambda text: (-len(text), text))
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


def _blanks(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _sum(weighed: list[tuple[Entry, float]]) -> Found:
    """Each word counts once, where it counts most."""
    best: dict[str, float] = {}
    structured = tolerant = 0.0
    structured_words: list[str] = []
    tolerant_words: list[str] = []
    for entry, weight in weighed:
        gain = weight - best.get(entry.label, 0.0)
        if gain <= 0:
            continue
        if entry.group == "structured":
            structured += gain
            if entry.label not in best:
                structured_words.append(entry.label)
        elif entry.group == "tolerant":
            tolerant += gain
            if entry.label not in best:
                tolerant_words.append(entry.label)
        best[entry.label] = weight
    return Found(min(1.0, structured), min(1.0, tolerant), tuple(structured_words), tuple(tolerant_words))
