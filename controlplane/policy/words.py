"""The default word lists of the sensitivity rules, by topic and language.

Data only; `classify` says how words count. A word is matched whole and without regard to case; a phrase is words with
one blank between them (hyphens and apostrophes in requests read as blanks). Chinese and Japanese have no blanks: there
a word is matched wherever it occurs, so that one-character words are left out. `weak` words count half: they often
occur in other tasks too.
"""

from __future__ import annotations

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
    DIGEST = "digest"  # summarising: what is named after it is material, not the task
    NEGATION = "negation"  # what is named after it is not wanted


@dataclass(frozen=True, slots=True)
class WordList:
    """Words of one topic in one language (a BCP 47 tag, for people)."""

    topic: Topic
    language: str
    words: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.replace("\n", " ").split(",") if word.strip())


WORDS_VERSION = "2026-12-01"

DEFAULT_WORDS: tuple[WordList, ...] = (WordList(Topic.CODE, "en", _words("code, python")),)
