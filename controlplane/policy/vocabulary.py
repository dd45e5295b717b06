"""The word lists made ready for use: which listed words a text holds, and how strongly they speak for a task.

One automaton of all listed words runs over the text once, so that the time is in proportion to the text whatever it
holds, and little more is done where no word is found. What a clause is about decides how its words count: the word that
names the task counts whole, words that name its material little, unwanted things not at all.

Languages with blanks are read with a blank on each side of each word, so that only whole words are found. Chinese,
Japanese and Korean have none, or join particles to words: there a listed word counts wherever it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ahocorasick_rs import BytesAhoCorasick, Implementation

from controlplane.policy.words import Topic, WordList

# What a word speaks for: groups of topics.
_STRUCTURED = "structured"
_CREATIVE = "creative"
_CHAT = "chat"
_DIGEST = "digest"
_NEGATION = "negation"
_GROUPS = {
    Topic.CODE: _STRUCTURED,
    Topic.MATH: _STRUCTURED,
    Topic.REASONING: _STRUCTURED,
    Topic.DATA: _STRUCTURED,
    Topic.CREATIVE: _CREATIVE,
    Topic.CONVERSATION: _CHAT,
    Topic.DIGEST: _DIGEST,
    Topic.NEGATION: _NEGATION,
}

# How many bytes a negation reaches: a few short words, or the next one with its article. Where one thing is not wanted,
# the next word belongs to it.
_REACH = 18
_SHORT_REACH = 5
# How much a word counts that names the material of a task of another kind, or a greeting before it, and all of them.
_AS_MATERIAL = 0.2
_MOST_AS_MATERIAL = 0.4

_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_KANA = re.compile(r"[\u3040-\u30ff]")
# Quotes, dashes and dots (U+2010 to U+203F), and the marks between U+00A0 and U+00BF, such as those of Spanish.
_TYPOGRAPHY = re.compile(rb"\xe2\x80[\x90-\xbf]|\xc2[\xa0-\xbf]")
_END = b"\x1f"
_CJK_CLAUSE_ENDS = "。，、！？；：\u2026"  # noqa: RUF001 full stop, commas and the full-width ! ? ; :


def _normal_bytes(ends: str) -> bytes:
    """ASCII letters in lower case; digits and what words of the trade hold (`c++`, `#include`, `snake_case`) kept; a
    mark for each of `ends`, and blanks for all else. Bytes above ASCII are parts of letters."""
    table = bytearray(b" " * 128 + bytes(range(128, 256)))
    for byte in range(128):
        char = chr(byte)
        if char.isalnum() or char in "+#_":
            table[byte] = ord(char.lower())
        elif char in ends:
            table[byte] = ord(_END)
    return bytes(table)


_WORDS = _normal_bytes("")
_CLAUSES = _normal_bytes(".;:!?\n")
_CJK_CLAUSES = _normal_bytes(".,;:!?\n")


class Entry(NamedTuple):
    """A listed word or phrase: what it speaks for, how strongly (0 to 1), and how it is shown."""

    group: str
    weight: float
    label: str
    is_spaced: bool = True
    is_backward: bool = False  # a negation of what stands before it


class Found(NamedTuple):
    """How strongly a text speaks for structured and for tolerant tasks (0 to 1), and by which listed words."""

    structured: float
    tolerant: float
    structured_words: tuple[str, ...]
    tolerant_words: tuple[str, ...]


NOTHING_FOUND = Found(0.0, 0.0, (), ())

# The number of an entry, and where it begins and ends.
_Hit = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Compiled word lists. `spaced` finds only words between blanks, `dense` words anywhere. Both give the number of an
    entry; numbers from `len(entries)` on are ends of clauses. `groups` and `weights` are the entries' own, which a loop
    over many hits reaches faster than an entry's fields."""

    entries: tuple[Entry, ...]
    groups: tuple[str, ...]
    weights: tuple[float, ...]
    spaced: BytesAhoCorasick
    dense: BytesAhoCorasick

    def read(self, text: str) -> Found:
        """What `text` speaks for."""
        if text.isascii():
            return self._read_spaced(f" {text} ".encode())
        lower = f" {text} ".lower()
        data = lower.encode(errors="replace")
        if _CJK.search(lower):
            return self._read_dense(data)
        return self._read_spaced(_TYPOGRAPHY.sub(b" ", data))

    def _read_spaced(self, data: bytes) -> Found:
        hits = self.spaced.find_matches_as_indexes(data.translate(_WORDS), True)
        if not hits:
            return NOTHING_FOUND
        groups = self.groups
        clauses = data.translate(_CLAUSES)
        whole: dict[int, None] = {}
        material: dict[int, None] = {}
        clause_end = unwanted_from = unwanted_until = 0
        task = ""
        is_material = False
        for number, start, end in hits:
            if start >= clause_end:
                # What comes first in a clause is the task: "a poem about code", "summarise this JSON". What follows a
                # colon after it is all of the rest: "Summarise this: ...".
                is_material = is_material or (task == _DIGEST and data[clause_end : clause_end + 1] == b":")
                task = _DIGEST if is_material else ""
                clause_end = clauses.find(_END, start + 1)
                if clause_end < 0:
                    clause_end = len(data)
                unwanted_until = 0
            group = groups[number]
            if group == _NEGATION:
                unwanted_from = end
                unwanted_until = max(unwanted_until, end + (_REACH if self.weights[number] == 1 else _SHORT_REACH))
            elif start < unwanted_until and data.find(b",", unwanted_from, start) < 0:
                unwanted_from = end
                unwanted_until = max(unwanted_until, end + _SHORT_REACH)
            elif not task:
                whole[number] = None
                if group != _CHAT:
                    task = group
            elif group == task:
                whole[number] = None
            else:
                material[number] = None
        return self._sum(whole, material)

    def _read_dense(self, data: bytes) -> Found:
        words = data.translate(_CJK_CLAUSES)
        entries = self.entries
        first_end = len(entries)
        whole: dict[int, None] = {}
        material: dict[int, None] = {}
        clause: list[_Hit] = []
        is_material = False
        for hit in self.dense.find_matches_as_indexes(words, True):
            number, start, end = hit
            if number < first_end:
                if not entries[number].is_spaced or _stands_alone(words, start, end):
                    clause.append(hit)
            elif clause:
                is_digest = self._part(clause, whole, material, is_material=is_material)
                is_material = is_material or (is_digest and data[start:end] in _COLONS)
                clause = []
        if clause:
            self._part(clause, whole, material, is_material=is_material)
        return self._sum(whole, material)

    def _part(
        self, clause: list[_Hit], whole: dict[int, None], material: dict[int, None], *, is_material: bool
    ) -> bool:
        """Parts the words of one clause by how they count; whether it asks for a digest."""
        groups = self.groups
        found = [groups[number] for number, _, _ in clause]
        is_digest = _DIGEST in found
        wanted = self._wanted(clause) if _NEGATION in found else [number for number, _, _ in clause]
        # The head of a phrase comes last, so a poem about code ends with the poem. To summarise may stand anywhere.
        task = _DIGEST if is_digest or is_material else ""
        for number in reversed(wanted):
            group = groups[number]
            if not task:
                whole[number] = None
                if group != _CHAT:
                    task = group
            elif group == task:
                whole[number] = None
            else:
                material[number] = None
        return is_digest

    def _wanted(self, clause: list[_Hit]) -> list[int]:
        """The numbers of the words of a clause, without negations and what they negate."""
        entries = self.entries
        wanted: list[int] = []
        ends: list[int] = []
        unwanted_until = 0
        for number, start, end in clause:
            entry = entries[number]
            if entry.group != _NEGATION:
                if start >= unwanted_until:
                    wanted.append(number)
                    ends.append(end)
            elif entry.is_backward:
                while ends and ends[-1] >= start - _REACH:
                    ends.pop()
                    wanted.pop()
            else:
                unwanted_until = end + _REACH
        return wanted

    def _sum(self, whole: dict[int, None], material: dict[int, None]) -> Found:
        """Each word counts once, where it counts most. Greetings before a structured task are not the task."""
        groups, weights, entries = self.groups, self.weights, self.entries
        structured = creative = chat = 0.0
        structured_words: list[str] = []
        tolerant_words: list[str] = []
        for number in whole:
            group = groups[number]
            if group == _STRUCTURED:
                structured += weights[number]
                structured_words.append(entries[number].label)
            elif group == _CREATIVE:
                creative += weights[number]
                tolerant_words.append(entries[number].label)
            elif group == _CHAT:
                chat += weights[number]
                tolerant_words.append(entries[number].label)
        if structured and chat:
            chat = min(chat * _AS_MATERIAL, _MOST_AS_MATERIAL)
        tolerant = creative + chat
        if material:
            structured_material = tolerant_material = 0.0
            for number in material:
                if number not in whole:
                    group = groups[number]
                    if group == _STRUCTURED:
                        structured_material += weights[number]
                        structured_words.append(entries[number].label)
                    elif group != _DIGEST:
                        tolerant_material += weights[number]
                        tolerant_words.append(entries[number].label)
            structured += min(structured_material * _AS_MATERIAL, _MOST_AS_MATERIAL)
            tolerant += min(tolerant_material * _AS_MATERIAL, _MOST_AS_MATERIAL)
        return Found(min(1.0, structured), min(1.0, tolerant), tuple(structured_words), tuple(tolerant_words))


_COLONS = frozenset({b":", "：".encode()})  # noqa: RUF001 the full-width one


def compile_vocabulary(lists: Iterable[WordList]) -> Vocabulary:
    """The word lists made ready; where lists share a word, the one that gives it more weight keeps it."""
    entries: dict[str, Entry] = {}
    for words in lists:
        for weight, texts in ((1.0, words.words), (0.5, words.weak)):
            for text in texts:
                is_dense = _CJK.search(text) is not None
                plain = text.lower() if is_dense else _plain(text)
                if plain and (plain not in entries or entries[plain].weight < weight):
                    label = f"{plain} ({words.topic})"
                    backward = _KANA.search(text) is not None
                    entries[plain] = Entry(_GROUPS[words.topic], weight, label, not is_dense, backward)
    spaced = [f" {text} " if entry.is_spaced else text for text, entry in entries.items()]
    dense = [*entries, _END.decode(), *_CJK_CLAUSE_ENDS]
    return Vocabulary(
        entries=tuple(entries.values()),
        groups=tuple(entry.group for entry in entries.values()),
        weights=tuple(entry.weight for entry in entries.values()),
        spaced=_automaton(spaced),
        dense=_automaton(dense),
    )


def _automaton(texts: list[str]) -> BytesAhoCorasick:
    """Of the ways to build one this makes the fastest to read with; it takes some MB."""
    return BytesAhoCorasick([text.encode(errors="replace") for text in texts], implementation=Implementation.DFA)


def _plain(text: str) -> str:
    """The words of a listed phrase as they are found in a text: lower-case and with one blank between them."""
    data = _TYPOGRAPHY.sub(b" ", text.lower().encode(errors="replace"))
    return " ".join(data.translate(_WORDS).decode().split())


def _stands_alone(words: bytes, start: int, end: int) -> bool:
    """Whether what is found among words without blanks is a whole word of a language with blanks."""
    before, after = words[start - 1], words[end]
    if before in _OF_WORDS or after in _OF_WORDS:
        return False
    # The first bytes of two-byte sequences: letters of Latin, Greek, Cyrillic and the like.
    return not (0xC3 <= after <= 0xDF or (before >= 0x80 and 0xC3 <= words[start - 2] <= 0xDF))


_OF_WORDS = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789+#_")
