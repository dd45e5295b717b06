"""Sensitivity: the rules, the words that speak for them, and the words that do not."""

# ruff: noqa: RUF001 Chinese and Japanese have full-width commas and colons

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.model import Ask, Sensitivity, Verdict
from controlplane.policy.classify import compile_rules
from controlplane.policy.settings import SensitivityRules
from controlplane.policy.vocabulary import compile_vocabulary
from controlplane.policy.words import DEFAULT_WORDS, Topic, WordList
from support.asks import make_ask, make_chat

RULES = SensitivityRules()
CLASSIFIER = compile_rules(RULES)
VOCABULARY = CLASSIFIER.vocabulary


def judge(ask: Ask, expected_output_tokens: int = 200) -> Sensitivity:
    return CLASSIFIER.classify(ask, expected_output_tokens)


def points(result: Sensitivity) -> dict[str, float]:
    return {part.name: part.points for part in result.contributions}


# --- the rules -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["Write Python code", "Return JSON", "Solve this equation", "Explain step by step"])
@pytest.mark.parametrize("greedy", [{"temperature": 0}, {"top_k": 1, "temperature": 1.2}])
def test_facts_sensitive_is_greedy_decoding_with_structured_output_words(text: str, greedy: dict[str, Any]) -> None:
    assert judge(make_chat(text, **greedy)).verdict is Verdict.SENSITIVE
    assert judge(make_chat("Next one please", system=f"You do this: {text}", **greedy)).verdict is Verdict.SENSITIVE


@pytest.mark.parametrize("text", ["Write a short story", "Tell me a joke", "Hello, how are you?"])
def test_facts_tolerant_is_heat_with_creative_or_conversational_words(text: str) -> None:
    assert judge(make_chat(text, temperature=0.9)).verdict is Verdict.TOLERANT
    assert judge(make_chat(text, temperature=0.71)).verdict is Verdict.TOLERANT
    assert judge(make_chat(text, temperature=0.7)).verdict is Verdict.NEUTRAL


@pytest.mark.parametrize("temperature", [None, 0, 0.5, 0.9])
def test_facts_long_outputs_raise_the_score_at_any_temperature(temperature: float | None) -> None:
    ask = make_chat("Write a story", temperature=temperature)
    assert judge(ask, 1001).score - judge(ask, 1000).score == RULES.weights.long_output > 0


@pytest.mark.parametrize("temperature", [None, 0.7, 1.5])
def test_top_k_1_is_greedy_whatever_the_temperature(temperature: float | None) -> None:
    assert points(judge(make_chat("Go on", top_k=1, temperature=temperature))) == {"greedy": RULES.weights.greedy}


@pytest.mark.parametrize("field", ["seed", "logprobs", "tools", "response_format", "reasoning_effort"])
def test_what_asks_for_exactness_raises_the_score_at_any_temperature(field: str) -> None:
    values: dict[str, Any] = {
        "seed": 7,
        "logprobs": True,
        "tools": [{"type": "function"}],
        "response_format": {"type": "json_object"},
        "reasoning_effort": "high",
    }
    for temperature in (None, 0, 0.7, 1.3):
        plain = judge(make_chat("Go on", temperature=temperature)).score
        assert judge(make_chat("Go on", temperature=temperature, **{field: values[field]})).score > plain


def test_several_answers_lower_the_score() -> None:
    assert judge(make_chat("Go on", n=3)).score < judge(make_chat("Go on", n=1)).score


def test_code_and_a_story_asked_for_at_once_are_not_tolerant_when_hot() -> None:
    ask = make_chat("Write a Python script. Then tell me a funny story about it.", temperature=0.9)
    assert judge(ask).verdict is Verdict.NEUTRAL


def test_an_absent_temperature_counts_as_hot_but_less_surely() -> None:
    absent, hot = judge(make_chat("Go on")), judge(make_chat("Go on", temperature=1.0))
    assert hot.score < absent.score < 0
    assert judge(make_chat("Write a short story")).verdict is Verdict.TOLERANT
    assert judge(make_chat("Any advice?")).verdict is Verdict.NEUTRAL


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"response_format": {"type": "json_object"}}, "structured_output"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"reasoning_effort": "high"}, "reasoning"),
        ({"logprobs": True}, "logprobs"),
        ({"seed": 0}, "seed"),
        ({"n": 3}, "several_choices"),
        ({"temperature": 0.2}, "near_greedy"),
        ({"temperature": 0.8, "top_p": 0.05}, "near_greedy"),
        ({"temperature": 0.8, "min_p": 0.6}, "near_greedy"),
        ({"temperature": 0}, "greedy"),
        ({"temperature": 2}, "hot"),
        ({}, "hot_by_default"),
    ],
)
def test_each_observation_is_a_contribution_with_its_weight_and_a_reason(fields: dict[str, Any], name: str) -> None:
    result = judge(make_chat("Go on", **fields))
    part = next(part for part in result.contributions if part.name == name)
    assert part.points == getattr(RULES.weights, name)
    assert part.why
    assert result.score == sum(points(result).values())


@pytest.mark.parametrize(
    "fields", [{"response_format": {"type": "json_object"}}, {"tools": [{}]}, {"reasoning_effort": "low"}]
)
def test_greedy_decoding_of_a_prescribed_answer_is_sensitive_without_any_word(fields: dict[str, Any]) -> None:
    assert judge(make_chat("Go on", temperature=0, **fields)).verdict is Verdict.SENSITIVE


def test_the_verdict_follows_the_thresholds() -> None:
    ask = make_chat("Write Python code", temperature=0)
    score = judge(ask).score
    assert compile_rules(replace(RULES, sensitive_at=score)).classify(ask, 0).verdict is Verdict.SENSITIVE
    assert compile_rules(replace(RULES, sensitive_at=score + 1)).classify(ask, 0).verdict is Verdict.NEUTRAL
    assert (
        compile_rules(replace(RULES, tolerant_at=score, sensitive_at=score + 1)).classify(ask, 0).verdict
        is Verdict.TOLERANT
    )


def test_only_listed_words_are_shown() -> None:
    result = judge(make_chat("My password is hunter2, write Python code for Alice", temperature=0))
    shown = " ".join(part.why for part in result.contributions)
    assert "python" in shown
    assert "hunter2" not in shown
    assert "alice" not in shown.lower()


# --- words ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "Write a poem about code",
        "A story in which a Python script falls in love, please",
        "Compose a song on linear algebra",
        "写一首关于代码的诗",
        "プログラミングについての物語を書いて",
        "Schreibe ein Gedicht über Mathematik",
        "Escribe un poema sobre la programación",
        "Écris un poème sur les mathématiques",
    ],
)
def test_a_poem_about_code_is_creative(text: str) -> None:
    assert judge(make_chat(text, temperature=0)).verdict is not Verdict.SENSITIVE
    assert judge(make_chat(text, temperature=0.9)).verdict is Verdict.TOLERANT


@pytest.mark.parametrize(
    "text", ["Summarise this JSON", "Give me a summary of the code below", "总结这段代码", "このJSONを要約して"]
)
def test_summarising_json_is_not_code(text: str) -> None:
    assert judge(make_chat(text, temperature=0)).verdict is not Verdict.SENSITIVE


@pytest.mark.parametrize(
    "text",
    [
        "Answer without code",
        "Please do not write any code",
        "No JSON, just tell me",
        "不要写代码",
        "コードなしで答えて",
    ],
)
def test_what_is_not_wanted_does_not_count(text: str) -> None:
    assert judge(make_chat(text, temperature=0)).verdict is not Verdict.SENSITIVE


@pytest.mark.parametrize(
    "text",
    [
        "Don't write code",
        "Give me a hint, not a Python program",
        "No Python code, please",
        "别写代码",
        "不用写代码",
        "コードは書かないで",
        "No escribas código",
        "Responde sin código",
        "Antworte ohne Code",
        "Bitte keinen Python-Code",
        "Réponds sans code",
        "N'écris pas de code Python",
    ],
)
def test_what_is_not_wanted_does_not_count_in_any_language(text: str) -> None:
    assert "structured_words" not in points(judge(make_chat(text, temperature=0)))


@pytest.mark.parametrize(
    "text",
    [
        "Write Python code, no explanation",
        "Don't explain, write the JSON",
        "I'm not sure how to solve this equation",
        "用Python写代码，不要解释",
        "不要解释，只写代码",
        "説明は不要、コードを書いて",
        "Sin explicaciones, solo el código",
        "Ohne Erklärung, nur den Quellcode",
        "Sans explication, juste le code source",
    ],
)
def test_a_negation_does_not_reach_what_is_wanted(text: str) -> None:
    assert judge(make_chat(text, temperature=0)).verdict is Verdict.SENSITIVE


@pytest.mark.parametrize(
    "text",
    [
        "Hello, can you write a SQL query for me?",
        "你好，请写一个Python脚本",
        "こんにちは、関数を実装してください",
        "Hola, escribe un programa en Java",
        "Hallo, schreib mir bitte eine Funktion",
        "Bonjour, écris une fonction",
    ],
)
def test_a_greeting_is_not_the_task(text: str) -> None:
    assert judge(make_chat(text, temperature=0)).verdict is Verdict.SENSITIVE
    assert judge(make_chat(text, temperature=0.9)).verdict is not Verdict.TOLERANT


@pytest.mark.parametrize(
    "text",
    [
        "Summarise the following text: The code is Python. It returns JSON.",
        "用三句话概括：这段代码用Python。它返回JSON。",
        "次を要約：このコードはPythonです。JSONを返します。",
        "Resume este texto: El código es Python. Devuelve JSON.",
        "Fasse den Text zusammen: Der Code ist Python. Er liefert JSON.",
        "Résume ce texte : le code est en Python. Il renvoie du JSON.",
    ],
)
def test_what_follows_the_colon_of_a_summary_is_material(text: str) -> None:
    assert judge(make_chat(text, temperature=0)).verdict is not Verdict.SENSITIVE


def test_a_system_prompt_that_only_names_an_assistant_says_nothing() -> None:
    for system in (
        "You are a helpful assistant.",
        "你是一个有用的助手。",
        "Eres un asistente útil.",
        "Du bist ein Assistent.",
    ):
        assert points(judge(make_chat("Go on", system=system, temperature=1))) == {"hot": RULES.weights.hot}


@pytest.mark.parametrize(
    "text",
    ["resuelve la ecuacion", "ecris une expression reguliere", "loese das raetsel", "écris une expression régulière"],
)
def test_words_are_known_as_they_are_typed_without_accents(text: str) -> None:
    assert VOCABULARY.read(text).structured == 1


def test_a_negation_ends_with_its_clause() -> None:
    assert judge(make_chat("I do not know. Python code please", temperature=0)).verdict is Verdict.SENSITIVE


@pytest.mark.parametrize("text", ["Write a Python function that makes up a story", "用Python写一个讲故事的程序"])
def test_a_program_that_tells_stories_is_code(text: str) -> None:
    assert judge(make_chat(text, temperature=0)).verdict is Verdict.SENSITIVE
    assert judge(make_chat(text, temperature=0.9)).verdict is not Verdict.TOLERANT


@pytest.mark.parametrize("text", ["The encoder was barcoded", "mathilda and jsonify", "historian", "pythonesque"])
def test_only_whole_words_count(text: str) -> None:
    assert VOCABULARY.read(text).structured == 0


@pytest.mark.parametrize(
    "text", ["PYTHON", "(python)", "python,", "`python`", "\npython\n", "«Python»", "c++", "C#.", "step-by-step"]
)
def test_case_and_punctuation_do_not_hide_a_word(text: str) -> None:
    assert VOCABULARY.read(text).structured > 0


@pytest.mark.parametrize(
    ("structured", "tolerant"),
    [
        ("Implement a binary search in Java", "Write a haiku about rain"),
        ("请用代码实现快速排序", "给我讲一个睡前故事"),
        ("Implementa un algoritmo de ordenación", "Escribe un cuento para niños"),
        ("Implementiere einen Algorithmus", "Erzähl mir ein Märchen"),
        ("Implémente un algorithme de tri", "Écris une histoire pour enfants"),
        ("ソートのアルゴリズムを実装してください", "寝る前のお話を聞かせて"),
    ],
)
def test_every_language_is_understood(structured: str, tolerant: str) -> None:
    assert judge(make_chat(structured, temperature=0)).verdict is Verdict.SENSITIVE
    assert judge(make_chat(tolerant, temperature=1)).verdict is Verdict.TOLERANT


def test_words_weigh_by_where_they_stand() -> None:
    def turns(*texts: str) -> Ask:
        return make_ask({"temperature": 0, "messages": [{"role": "user", "content": text} for text in texts]})

    last = points(judge(turns("Go on", "More", "Write Python code")))["structured_words"]
    first = points(judge(turns("Write Python code", "More", "Go on")))["structured_words"]
    assert first == RULES.positions.first_user * last
    assert "structured_words" not in points(judge(turns("Go on", "Write Python code", "More")))


def test_word_lists_are_configuration() -> None:
    own = replace(RULES, words=(WordList(Topic.CODE, "xx", ("frobnicate the widget",)),))
    ask = make_chat("Please frobnicate the widget", temperature=0)
    assert compile_rules(own).classify(ask, 0).verdict is Verdict.SENSITIVE
    assert judge(ask).verdict is Verdict.NEUTRAL


def test_no_word_is_listed_for_both_sides() -> None:
    sides: dict[str, set[str]] = {"structured": set(), "tolerant": set()}
    for words in DEFAULT_WORDS:
        if words.topic in {Topic.CODE, Topic.MATH, Topic.REASONING, Topic.DATA}:
            sides["structured"].update(words.words + words.weak)
        elif words.topic in {Topic.CREATIVE, Topic.CONVERSATION}:
            sides["tolerant"].update(words.words + words.weak)
    assert not sides["structured"] & sides["tolerant"]


# --- hostile input -------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=600))
def test_any_text_is_read(text: str) -> None:
    found = VOCABULARY.read(text)
    assert 0 <= found.structured <= 1
    assert 0 <= found.tolerant <= 1


@settings(max_examples=200, deadline=None)
@given(
    words=st.lists(
        st.sampled_from(
            [word for words in DEFAULT_WORDS for word in words.words] + [".", "。", "about", "no", "不要", "\n"]
        ),
        max_size=60,
    ),
    glue=st.sampled_from([" ", "", ", "]),
)
def test_any_mixture_of_listed_words_is_read(words: list[str], glue: str) -> None:
    found = VOCABULARY.read(glue.join(words))
    assert 0 <= found.structured <= 1
    assert 0 <= found.tolerant <= 1


@pytest.mark.parametrize(
    "unit", ["code ", "step by ", "no code ", "a" * 50, "代码", "不要", "- ", "code. poem. ", "\ud800", "ß"]
)
def test_facts_nature_reading_takes_time_in_proportion_to_the_text(unit: str) -> None:
    def seconds(size: int) -> float:
        text = (unit * (size // len(unit) + 1))[:size]
        best = float("inf")
        for _ in range(3):
            start = time.thread_time()  # so that what else the machine does counts for nothing
            VOCABULARY.read(text)
            best = min(best, time.thread_time() - start)
        return best

    # Quadratic work would take 64 times as long.
    assert seconds(160_000) < 40 * seconds(20_000) + 0.05


@pytest.mark.parametrize(
    "unit", ["a", "python ", "step by step by ", "不要代码", "コードは不要", "代", "don't write ", "summarise: "]
)
def test_a_megabyte_is_read_within_seconds(unit: str) -> None:
    text = (unit * (1_000_000 // len(unit) + 1))[:1_000_000]
    started = time.thread_time()
    VOCABULARY.read(text)
    assert time.thread_time() - started < 10  # well under one second on an idle machine


def test_compiled_rules_are_shared_between_tables() -> None:
    assert compile_rules(SensitivityRules()) is compile_rules(SensitivityRules())
    assert compile_vocabulary(()).read("python") == compile_vocabulary(()).read("")


def test_what_is_said_is_the_same_in_every_process() -> None:
    """Python's sets are in another order in each process; a filter and a control plane must not differ for it."""
    program = (
        "from controlplane.policy.classify import compile_rules; from controlplane.policy.settings import *; "
        "print(compile_rules(SensitivityRules()).vocabulary.read('''"
        "Write a Python function call that returns JSON in a table format, step by step, without any poem or story. "
        "'''))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3", "4")
    }
    assert len(said) == 1
