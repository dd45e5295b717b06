"""What a word list is, and how the modules beside this one write theirs."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from enum import StrEnum


class Topic(StrEnum):
    """What a word tells about the task."""

    CODE = "code"
    MATH = "math"
    REASONING = "reasoning"
    DATA = "data"  # extraction, conversion and labelling, where the form of the answer is given
    CREATIVE = "creative"
    CONVERSATION = "conversation"
    DIGEST = "digest"  # summarising and translating: what is named after it is material, not the task
    NEGATION = "negation"  # what is named after it is not wanted


@dataclass(frozen=True, slots=True)
class WordList:
    """Words of one topic in one language (a BCP 47 tag, for people; `mul` is for words of all languages).

    A word is matched whole and without regard to case; a phrase is words with one blank between them (hyphens and
    apostrophes in requests read as blanks). Chinese and Japanese have no blanks: there a word is matched wherever it
    occurs, so that nearly all one-character words are left out. `weak` words count half: they often occur in other
    tasks too. A weak negation reaches only the next word.
    """

    topic: Topic
    language: str
    words: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()


def listed(text: str) -> tuple[str, ...]:
    """Words that are separated by commas."""
    return tuple(" ".join(word.split()) for word in text.split(",") if word.strip())


def without_accents(text: str) -> tuple[str, ...]:
    """The same, and each word also as it is often typed in French and Spanish: without its accents."""
    return tuple(dict.fromkeys(form for word in listed(text) for form in (word, _plain(word))))


def without_umlauts(text: str) -> tuple[str, ...]:
    """The same, and each word also as German is typed without umlauts and sharp s."""
    return tuple(dict.fromkeys(form for word in listed(text) for form in (word, _ascii_german(word))))


def _plain(word: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFD", word) if not unicodedata.combining(char))


def _ascii_german(word: str) -> str:
    for letter, typed in (("ä", "ae"), ("ö", "oe"), ("ü", "ue"), ("ß", "ss")):
        word = word.replace(letter, typed)
    return word
