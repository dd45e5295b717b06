"""Requests of the eight kinds that MT-bench asks about, at the temperatures it uses for each.

The kinds and temperatures are MT-bench's (Zheng et al. 2023, lm-sys/FastChat: 0 for coding, math, reasoning and
extraction, 0.7 for writing and roleplay, 0.1 for stem and humanities); the prompts are our own.
"""

from __future__ import annotations

import pytest

from controlplane.model import FormatTier, Verdict
from controlplane.policy.decide import decide
from support.asks import make_chat, make_pool, make_table

TEMPERATURES = {
    "coding": 0.0,
    "math": 0.0,
    "reasoning": 0.0,
    "extraction": 0.0,
    "writing": 0.7,
    "roleplay": 0.7,
    "stem": 0.1,
    "humanities": 0.1,
}
PROMPTS = {
    "coding": (
        "Write a function in JavaScript that merges two sorted lists without using a library.",
        "My C++ program crashes when the vector is empty. Find the bug:\n#include <vector>\nint main() {}",
        "Create an HTML page with a button that shows a random quote when clicked.",
        "Give me a SQL query for the three best customers of each month.",
    ),
    "math": (
        "A train covers 180 km in 2.5 hours. How many minutes does it need for 30 km?",
        "Solve 3x + 5 = 2(x - 4) for x.",
        "What is the probability of at least one six in four throws of a die?",
        "Find the remainder when 7^100 is divided by 13.",
    ),
    "reasoning": (
        "All bloops are razzies and some razzies are lazzies. Is it true or false that some bloops are lazzies?",
        "Solve this riddle step by step: I have cities but no houses, forests but no trees.",
        "Which of the following does not belong: spoon, fork, plate, cloud? Explain the logic of your choice.",
        "Three boxes are mislabelled. Deduce with one draw what each contains.",
    ),
    "extraction": (
        "Extract all names and dates from the text below and return JSON with the keys name and date.",
        "Classify each of these reviews as positive or negative, in CSV with one row per review.",
        "Identify the companies that are mentioned and list them in a table with their countries.",
        "Given these records, output only the ones over 100 in YAML.",
    ),
    "writing": (
        "Write a persuasive blog post about cycling to work.",
        "Compose a short story that begins with a lost key.",
        "Draft a witty invitation to a garden party, in an engaging style.",
        "Describe a vivid scene at a harbour in the early morning, with metaphors.",
    ),
    "roleplay": (
        "Pretend to be a medieval innkeeper and greet me as I come in from the rain.",
        "You are now a ship's computer with a dry sense of humour. Stay in character. Where are we?",
        "Let us role play: take on the role of a detective who questions me about a missing painting.",
        "Picture yourself as an old oak tree. What did you see in your youth?",
    ),
    "stem": (
        "Explain how vaccines train the immune system.",
        "What happens to a star like the sun at the end of its life?",
        "Describe how a lithium battery stores energy.",
    ),
    "humanities": (
        "What led to the fall of the Western Roman Empire?",
        "Discuss how the printing press changed Europe.",
        "Compare the ethics of Kant and of Mill.",
    ),
}
CASES = [(kind, text) for kind, texts in PROMPTS.items() for text in texts]
TABLE = make_table(make_pool("full"), make_pool("quantized"))


@pytest.mark.parametrize(("kind", "text"), CASES)
def test_at_its_usual_temperature_every_kind_goes_to_the_full_tier(kind: str, text: str) -> None:
    decision = decide(make_chat(text, temperature=TEMPERATURES[kind]), TABLE, None)
    assert decision.pool is not None
    assert decision.pool.tier is FormatTier.FULL


@pytest.mark.parametrize(("kind", "text"), [case for case in CASES if TEMPERATURES[case[0]] == 0])
def test_exact_kinds_at_temperature_0_are_sensitive(kind: str, text: str) -> None:
    decision = decide(make_chat(text, temperature=0), TABLE, None)
    assert decision.sensitivity is not None
    assert decision.sensitivity.verdict is Verdict.SENSITIVE, (kind, decision.sensitivity)


@pytest.mark.parametrize(("kind", "text"), [case for case in CASES if TEMPERATURES[case[0]] == 0.7])
def test_writing_and_roleplay_at_temperature_0_9_are_tolerant(kind: str, text: str) -> None:
    decision = decide(make_chat(text, temperature=0.9), TABLE, None)
    assert decision.sensitivity is not None
    assert decision.sensitivity.verdict is Verdict.TOLERANT, (kind, decision.sensitivity)
    assert decision.pool is not None
    assert decision.pool.tier is FormatTier.QUANTIZED


@pytest.mark.parametrize(("kind", "text"), [case for case in CASES if TEMPERATURES[case[0]] < 0.7])
def test_other_kinds_are_not_tolerant_even_when_hot(kind: str, text: str) -> None:
    decision = decide(make_chat(text, temperature=0.9), TABLE, None)
    assert decision.sensitivity is not None
    assert decision.sensitivity.verdict is not Verdict.TOLERANT, (kind, decision.sensitivity)
