"""The policy's own rules, placed at the settings they are about; and how word lists of a file join the default ones.

The rules are `controlplane.policy.faults`; this finds the paths in what they say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from controlplane.config.document import Path, spell
from controlplane.config.reader import leaves
from controlplane.config.rules import Broken, Rule, path
from controlplane.policy.faults import faults
from controlplane.policy.settings import Policy
from controlplane.policy.words import DEFAULT_WORDS, Topic, WordList


def contradicts_itself(policy: Policy) -> Iterator[Broken]:
    settings = {spell(each): each for each in leaves(Policy)}
    for fault in faults(policy):
        dotted, _, message = fault.partition(": ")
        section = dotted.rpartition(".")[0]
        named = (
            settings.get(name) or settings.get(f"{section}.{name}") for name in re.findall(r"[a-z_.]*[a-z]", message)
        )
        paths: list[Path] = [path(dotted), *(each for each in named if each is not None)]
        yield Broken(tuple(dict.fromkeys(paths)), message)


POLICY_RULES: tuple[Rule[Policy], ...] = (contradicts_itself,)


def join_words(policy: Policy) -> Policy:
    """The policy of a file that states word lists, with the default lists that it does not replace.

    A list replaces the default one of the same topic and language, and one without words removes it. So a file holds
    only what differs, and a language of one's own, such as `en-acme`, adds words to all others.
    """
    stated = policy.sensitivity.words
    replaced = {_key(entry) for entry in stated}
    kept = tuple(entry for entry in DEFAULT_WORDS if _key(entry) not in replaced)
    return _with_words(policy, (*(entry for entry in stated if entry.words or entry.weak), *kept))


def part_words(policy: Policy) -> Policy:
    """The policy as a file must state it: default lists that it lacks are stated without words, which removes them."""
    words = policy.sensitivity.words
    stated = {_key(entry) for entry in words}
    lacking = dict.fromkeys(_key(entry) for entry in DEFAULT_WORDS if _key(entry) not in stated)
    return _with_words(policy, (*words, *(WordList(topic, language) for topic, language in lacking)))


def _key(entry: WordList) -> tuple[Topic, str]:
    return entry.topic, entry.language


def _with_words(policy: Policy, words: tuple[WordList, ...]) -> Policy:
    return replace(policy, sensitivity=replace(policy.sensitivity, words=words))
