"""The default word lists of the sensitivity rules: one module for each language, and one for the words of all.

Data only; `classify` says how words count, docs/classifier.md how to change them.
"""

from __future__ import annotations

from controlplane.policy.words import chinese, english, french, german, international, japanese, spanish
from controlplane.policy.words.lists import Topic, WordList

__all__ = ["DEFAULT_WORDS", "WORDS_VERSION", "Topic", "WordList"]

WORDS_VERSION = "2026-11-30"

DEFAULT_WORDS: tuple[WordList, ...] = (
    *international.LISTS,
    *english.LISTS,
    *chinese.LISTS,
    *japanese.LISTS,
    *spanish.LISTS,
    *german.LISTS,
    *french.LISTS,
)
