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

from ahocorasick_rs import AhoCorasick, BytesAhoCorasick, Implementation

from controlplane.policy.words import Topic, WordList

# What a word speaks for: groups of topics.
_STRUCTURED = "structured"
_CREATIVE = "creative"
_CHAT = "chat"
_DIGEST = "digest"
_NEGATION = "negation"
_TOLERANT = (_CREATIVE, _CHAT)
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

# How many bytes a negation reaches: a few short words, or only the next one with its article. Where a word is not
# wanted, neither is the next one. In Chinese and Japanese, how many characters.
_REACH = 18
_SHORT_REACH = 5
_CJK_REACH = 6
# How much a word counts that names the material of a task of another kind, or a greeting before it, and all of them.
_AS_MATERIAL = 0.2
_MOST_AS_MATERIAL = 0.4

_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_KANA = re.compile(r"[\u3040-\u30ff]")
# Quotes, dashes and dots (U+2010 to U+203F), and the marks between U+00A0 and U+00BF, such as those of Spanish.
_TYPOGRAPHY = re.compile(rb"\xe2\x80[\x90-\xbf]|\xc2[\xa0-\xbf]")
_FIRST_CJK = "\u2e80"
_CJK_CLAUSE_END = re.compile("[\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f.,:;!?\n]")  # and , . ! , : ; ? of full width
_CJK_COLON = re.compile("[:\uff1a]")
_END = b"\x1f"
_COLON = ord(":")


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


class Entry(NamedTuple):
    """A listed word or phrase: what it speaks for, how strongly (0 to 1), and how it is shown."""

    group: str
    weight: float
    label: str
    is_spaced: bool = True
    is_backward: bool = False  # a negation of what stands before it


class Found(NamedTuple):
    """How strongly a text speaks for structured and for tolerant tasks (0 to 1), and the numbers of the entries found,
    those that count whole first."""

    structured: float
    tolerant: float
    numbers: tuple[int, ...]


NOTHING_FOUND = Found(0.0, 0.0, ())

# The number of an entry, and where it begins and ends.
_Hit = tuple[int, int, int]
# Numbers of entries, in order.
_Numbers = dict[int, None]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Compiled word lists. `spaced` finds only words between blanks, `dense` words anywhere; both give numbers of
    entries. `groups` and `weights` are the entries' own, which a loop reaches faster than an entry's fields."""

    entries: tuple[Entry, ...]
    groups: tuple[str, ...]
    weights: tuple[float, ...]
    spaced: BytesAhoCorasick
    dense: AhoCorasick

    def read(self, text: str) -> Found:
        """What `text` speaks for."""
        if text.isascii():
            return self._read_spaced(f" {text} \n".encode())
        if _CJK.search(text):
            return self._read_dense(f" {text} ".lower())
        return self._read_spaced(_TYPOGRAPHY.sub(b" ", f" {text} \n".lower().encode(errors="replace")))

    def structured_words(self, found: Found) -> list[str]:
        return [self.entries[number].label for number in found.numbers if self.groups[number] == _STRUCTURED]

    def tolerant_words(self, found: Found) -> list[str]:
        return [self.entries[number].label for number in found.numbers if self.groups[number] in _TOLERANT]

    def _read_spaced(self, data: bytes) -> Found:
        """Of a text that begins with a blank and ends with a blank and the end of a clause."""
        hits = self.spaced.find_matches_as_indexes(data.translate(_WORDS), True)
        if not hits:
            return NOTHING_FOUND
        groups = self.groups
        clauses = data.translate(_CLAUSES)
        whole: _Numbers = {}
        material: _Numbers = {}
        clause_end = unwanted_from = unwanted_until = 0
        task = ""
        is_material = False
        for number, start, end in hits:
            if start >= clause_end:
                # What comes first in a clause is the task: "a poem about code", "summarise this JSON". What follows a
                # colon after it is all of the rest: "Summarise this: ...".
                if task == _DIGEST:
                    is_material = is_material or data[clause_end] == _COLON
                task = _DIGEST if is_material else ""
                clause_end = clauses.find(_END, start + 1)
                unwanted_until = 0
            group = groups[number]
            if group == _NEGATION:
                unwanted_from = end - 1
                unwanted_until = max(unwanted_until, end + (_REACH if self.weights[number] == 1 else _SHORT_REACH))
            elif start < unwanted_until and data.find(b",", unwanted_from, start) < 0:
                unwanted_from = end - 1
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

    def _read_dense(self, lower: str) -> Found:
        """Of a lower-case text that begins and ends with blanks."""
        try:
            hits = self.dense.find_matches_as_indexes(lower, True)
        except UnicodeEncodeError:  # lone surrogates, which JSON can hold
            return self._read_dense(lower.encode(errors="replace").decode())
        if not hits:
            return NOTHING_FOUND
        entries = self.entries
        whole: _Numbers = {}
        material: _Numbers = {}
        clause: list[_Hit] = []
        is_material = False
        last_end = 0
        for hit in hits:
            number, start, end = hit
            if entries[number].is_spaced and not _stands_alone(lower, start, end):
                continue
            if clause and _CJK_CLAUSE_END.search(lower, last_end, start):
                if self._part(clause, whole, material, is_material=is_material):
                    is_material = is_material or _CJK_COLON.search(lower, last_end, start) is not None
                clause = []
            clause.append(hit)
            last_end = end
        if clause:
            self._part(clause, whole, material, is_material=is_material)
        return self._sum(whole, material)

    def _part(self, clause: list[_Hit], whole: _Numbers, material: _Numbers, *, is_material: bool) -> bool:
        """Parts the words of one clause by how they count; whether it asks for a digest."""
        groups = self.groups
        if len(clause) == 1 and not is_material:
            number = clause[0][0]
            if groups[number] != _NEGATION:
                whole[number] = None
            return groups[number] == _DIGEST
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
                while ends and ends[-1] >= start - _CJK_REACH:
                    ends.pop()
                    wanted.pop()
            else:
                unwanted_until = end + _CJK_REACH
        return wanted

    def _sum(self, whole: _Numbers, material: _Numbers) -> Found:
        """Each word counts once, where it counts most. Greetings before a structured task are not the task."""
        groups, weights = self.groups, self.weights
        structured = creative = chat = 0.0
        for number in whole:
            group = groups[number]
            if group == _STRUCTURED:
                structured += weights[number]
            elif group == _CREATIVE:
                creative += weights[number]
            elif group == _CHAT:
                chat += weights[number]
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
                    elif group != _DIGEST:
                        tolerant_material += weights[number]
            structured += min(structured_material * _AS_MATERIAL, _MOST_AS_MATERIAL)
            tolerant += min(tolerant_material * _AS_MATERIAL, _MOST_AS_MATERIAL)
            whole |= material
        return Found(structured if structured < 1 else 1.0, tolerant if tolerant < 1 else 1.0, tuple(whole))


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
    return Vocabulary(
        entries=tuple(entries.values()),
        groups=tuple(entry.group for entry in entries.values()),
        weights=tuple(entry.weight for entry in entries.values()),
        # Of the ways to build an automaton this makes the fastest to read with; it takes some MB.
        spaced=BytesAhoCorasick(
            (f" {text} ".encode(errors="replace") for text in entries), implementation=Implementation.DFA
        ),
        dense=AhoCorasick(map(_encodable, entries), implementation=Implementation.DFA, store_patterns=False),
    )


def _encodable(text: str) -> str:
    return text.encode(errors="replace").decode()


def _plain(text: str) -> str:
    """The words of a listed phrase as they are found in a text: lower-case and with one blank between them."""
    data = _TYPOGRAPHY.sub(b" ", text.lower().encode(errors="replace"))
    return " ".join(data.translate(_WORDS).decode().split())


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Whether what is found in a text without blanks is a whole word of a language with blanks."""
    return not (_is_of_word(text[start - 1]) or _is_of_word(text[end]))


def _is_of_word(char: str) -> bool:
    return char < _FIRST_CJK and (char.isalnum() or char in "+#_")
