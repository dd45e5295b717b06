"""The word lists made ready for use: which listed words a text holds, and how strongly they speak for a task.

One automaton of all listed words runs over the text once, so that the time is in proportion to the text whatever it
holds, and little more is done where no word is found. What a clause is about decides how its words count: the word that
names the task counts whole, words that name its material little, unwanted things not at all.

Languages with blanks are read with a blank on each side of each word, so that only whole words are found. Chinese,
Japanese and Korean have none, or join particles to words: there a listed word counts wherever it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from ahocorasick_rs import BytesAhoCorasick, Implementation
from msgspec import Struct

from controlplane.policy import spelling
from controlplane.policy.spelling import CLAUSE_END, CLAUSES, WORDS, stands_alone
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
# wanted, neither is the next one.
_REACH = 18
_SHORT_REACH = 5
# How much a word counts that names the material of a task of another kind, or a greeting before it, and all of them.
_AS_MATERIAL = 0.2
_MOST_AS_MATERIAL = 0.4

_COLON = ord(":")


class Entry(NamedTuple):
    """A listed word or phrase: what it speaks for, how strongly (0 to 1), and how it is shown."""

    group: str
    weight: float
    label: str
    is_backward: bool  # a negation of what stands before it


class Found(Struct, frozen=True, gc=False):
    """How strongly a text speaks for structured and for tolerant tasks (0 to 1), and the numbers of the entries that
    say so, those that count whole first."""

    structured: float = 0.0
    tolerant: float = 0.0
    structured_numbers: Sequence[int] = ()
    tolerant_numbers: Sequence[int] = ()


NOTHING_FOUND = Found()

# The number of an entry, and where it begins and ends.
_Hit = tuple[int, int, int]
_number: Callable[[_Hit], int] = itemgetter(0)
# Numbers of entries, in order.
_Numbers = dict[int, None]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Compiled word lists. `spaced` finds words between blanks, `dense` words anywhere; both give numbers of entries.
    Those from `first_dense` on are of languages without blanks. `groups`, `weights` and `labels` are the entries' own,
    reached faster here."""

    entries: tuple[Entry, ...]
    first_dense: int
    groups: tuple[str, ...]
    weights: tuple[float, ...]
    labels: tuple[str, ...]
    spaced: BytesAhoCorasick
    dense: BytesAhoCorasick

    def read(self, text: str) -> Found:
        """What `text` speaks for."""
        if text.isascii() or not spelling.is_dense(text):
            return self._read_spaced(spelling.spaced_bytes(text))
        return self._read_dense(spelling.dense_bytes(text))

    def _read_spaced(self, data: bytes) -> Found:
        hits = self.spaced.find_matches_as_indexes(data.translate(WORDS), True)
        if not hits:
            return NOTHING_FOUND
        if (alike := self._if_alike(hits)) is not None:
            return alike
        groups = self.groups
        clauses = data.translate(CLAUSES)
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
                clause_end = clauses.find(CLAUSE_END, start + 1)
                unwanted_until = 0
            group = groups[number]
            if group == _NEGATION:
                unwanted_from = end - 1
                unwanted_until = max(unwanted_until, end + (_REACH if self.weights[number] == 1 else _SHORT_REACH))
            elif start < unwanted_until and data.find(b",", unwanted_from, start) < 0:
                unwanted_from = end - 1
                unwanted_until = max(unwanted_until, end + _SHORT_REACH)
            else:
                task = _count(number, group, task, whole, material)
        return self._sum(whole, material)

    def _read_dense(self, data: bytes) -> Found:
        words = data.translate(WORDS)
        first_dense = self.first_dense
        hits = [
            hit
            for hit in self.dense.find_matches_as_indexes(words, True)
            if hit[0] >= first_dense or stands_alone(words, hit[1], hit[2])
        ]
        if not hits:
            return NOTHING_FOUND
        if (alike := self._if_alike(hits)) is not None:
            return alike
        whole: _Numbers = {}
        material: _Numbers = {}
        clause: list[_Hit] = []
        is_material = False
        last_end = 0
        for hit in hits:
            _, start, end = hit
            if clause and spelling.DENSE_CLAUSE_END.search(data, last_end, start):
                if self._part(clause, whole, material, is_material=is_material):
                    is_material = is_material or spelling.DENSE_COLON.search(data, last_end, start) is not None
                clause = []
            clause.append(hit)
            last_end = end
        if clause:
            self._part(clause, whole, material, is_material=is_material)
        return self._sum(whole, material)

    def _part(self, clause: list[_Hit], whole: _Numbers, material: _Numbers, *, is_material: bool) -> bool:
        """Parts the words of one clause by how they count; whether it asks for a digest."""
        groups = self.groups
        found = [groups[number] for number, _, _ in clause]
        is_digest = _DIGEST in found
        wanted = self._wanted(clause) if _NEGATION in found else [number for number, _, _ in clause]
        # The head of a phrase comes last, so a poem about code ends with the poem. To summarise may stand anywhere.
        task = _DIGEST if is_digest or is_material else ""
        for number in reversed(wanted):
            task = _count(number, groups[number], task, whole, material)
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

    def _if_alike(self, hits: list[_Hit]) -> Found | None:
        """What words of a single group speak for, which is most often all that there is; None where there are several,
        which must be told apart."""
        numbers = dict.fromkeys(map(_number, hits))
        groups = set(map(self.groups.__getitem__, numbers))
        if len(groups) > 1:
            return None
        group = groups.pop()
        strength = sum(map(self.weights.__getitem__, numbers))
        if group == _STRUCTURED:
            return Found(structured=min(strength, 1.0), structured_numbers=tuple(numbers))
        if group in _TOLERANT:
            return Found(tolerant=min(strength, 1.0), tolerant_numbers=tuple(numbers))
        return NOTHING_FOUND

    def _sum(self, whole: _Numbers, material: _Numbers) -> Found:
        """Each word counts once, where it counts most. Greetings before a structured task are not the task."""
        groups, weights = self.groups, self.weights
        structured = creative = chat = 0.0
        structured_numbers: list[int] = []
        tolerant_numbers: list[int] = []
        for number in whole:
            group = groups[number]
            if group == _STRUCTURED:
                structured += weights[number]
                structured_numbers.append(number)
            elif group != _DIGEST:
                tolerant_numbers.append(number)
                if group == _CREATIVE:
                    creative += weights[number]
                else:
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
                        structured_numbers.append(number)
                    elif group != _DIGEST:
                        tolerant_material += weights[number]
                        tolerant_numbers.append(number)
            structured += min(structured_material * _AS_MATERIAL, _MOST_AS_MATERIAL)
            tolerant += min(tolerant_material * _AS_MATERIAL, _MOST_AS_MATERIAL)
        return Found(min(structured, 1.0), min(tolerant, 1.0), structured_numbers, tolerant_numbers)


def _count(number: int, group: str, task: str, whole: _Numbers, material: _Numbers) -> str:
    """Counts a word of a clause, whole or as material of its task, and gives the task: that of the first word, but a
    greeting is none."""
    if not task or group == task:
        whole[number] = None
    else:
        material[number] = None
    return task or (group if group != _CHAT else "")


def compile_vocabulary(lists: Iterable[WordList]) -> Vocabulary:
    """The word lists made ready; where lists share a word, the one that gives it more weight keeps it."""
    spaced: dict[bytes, Entry] = {}
    dense: dict[bytes, Entry] = {}
    for words in lists:
        for weight, texts in ((1.0, words.words), (0.5, words.weak)):
            for text in texts:
                entries = dense if spelling.is_dense(text) else spaced
                plain = spelling.plain(text)
                if plain and (plain not in entries or entries[plain].weight < weight):
                    label = f"{plain.decode()} ({words.topic})"
                    entries[plain] = Entry(_GROUPS[words.topic], weight, label, spelling.has_kana(text))
    both = (*spaced.values(), *dense.values())
    return Vocabulary(
        entries=both,
        first_dense=len(spaced),
        groups=tuple(entry.group for entry in both),
        weights=tuple(entry.weight for entry in both),
        labels=tuple(entry.label for entry in both),
        spaced=_automaton(b" %b " % text for text in spaced),
        dense=_automaton((*spaced, *dense)),
    )


def _automaton(texts: Iterable[bytes]) -> BytesAhoCorasick:
    """Of the ways to build one this makes the fastest to read with; it takes some MB."""
    return BytesAhoCorasick(texts, implementation=Implementation.DFA)
