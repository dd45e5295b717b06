"""Prompts of several languages and kinds, each at its usual temperature, judged as people labelled them.

`labelled_prompts` were written before the word lists, by the same hand, so that they show little but that no list has
been broken since. Those in `written_after` the lists were never looked at again when words were listed: their floor is
what the lists are worth on prompts that nobody had in mind. docs/classifier.md has the figures.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from controlplane.model import Verdict
from controlplane.policy.classify import compile_rules
from controlplane.policy.settings import SensitivityRules
from support.asks import make_chat

FOLDER = Path(__file__).parent / "labelled_prompts"
LANGUAGES = ("de", "es", "fr", "ja", "zh")
SENSITIVE_KINDS = {"code", "math", "reasoning", "extraction"}
CLASSIFIER = compile_rules(SensitivityRules())


class Judged(NamedTuple):
    kind: str
    text: str
    verdict: Verdict

    @property
    def is_sensitive(self) -> bool:
        return self.kind in SENSITIVE_KINDS

    @property
    def is_told_sensitive(self) -> bool:
        return self.verdict is Verdict.SENSITIVE


def judged(*paths: Path, temperature: float | None = None) -> list[Judged]:
    """Each at its usual temperature, or all at one."""
    rows = [json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        Judged(
            row["kind"],
            row["text"],
            CLASSIFIER.classify(make_chat(row["text"], temperature=temperature or row["temperature"]), 500).verdict,
        )
        for row in rows
    ]


def recall(results: list[Judged]) -> float:
    sensitive = [each for each in results if each.is_sensitive]
    return sum(each.is_told_sensitive for each in sensitive) / len(sensitive)


def precision(results: list[Judged]) -> float:
    told = [each for each in results if each.is_told_sensitive]
    return sum(each.is_sensitive for each in told) / len(told)


@pytest.mark.parametrize("language", LANGUAGES)
def test_prompts_written_before_the_lists_are_told_apart(language: str) -> None:
    results = judged(FOLDER / f"{language}.jsonl")
    assert len(results) >= 30
    assert recall(results) >= 0.9
    assert precision(results) >= 0.8


def test_prompts_written_after_the_lists_are_told_apart() -> None:
    results = judged(*(FOLDER / "written_after" / f"{language}.jsonl" for language in LANGUAGES))
    assert recall(results) >= 0.65
    assert precision(results) >= 0.8


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_prompt_of_an_exact_kind_is_called_tolerant_even_when_hot(language: str) -> None:
    paths = FOLDER / f"{language}.jsonl", FOLDER / "written_after" / f"{language}.jsonl"
    results = judged(*paths, temperature=0.9)
    assert [each for each in results if each.is_sensitive and each.verdict is Verdict.TOLERANT] == []
