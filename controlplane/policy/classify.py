"""Judges how a request would suffer from quantization: a score of named contributions, and a verdict by two thresholds.

A heuristic at scheduling time. It asks no model, and it promises nothing about answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from controlplane.model import Ask, Contribution, Sensitivity, Verdict
from controlplane.policy.settings import SensitivityRules
from controlplane.policy.vocabulary import NOTHING_FOUND, Vocabulary, compile_vocabulary

# Contributions name at most this many words.
_WORDS_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Classifier:
    """Sensitivity rules made ready for use."""

    rules: SensitivityRules
    vocabulary: Vocabulary

    def classify(self, ask: Ask, expected_output_tokens: int) -> Sensitivity:
        """The sensitivity of a request of which each choice is expected to have that many output tokens."""
        rules = self.rules
        weights = rules.weights
        parts: list[Contribution] = []
        sampled = _add_temperature(parts, ask, rules)
        _add_words(parts, ask, rules, self.vocabulary, sampled=sampled)
        if ask.structured_output:
            parts.append(
                Contribution("structured_output", weights.structured_output, "the answer's form is prescribed")
            )
        if ask.tools:
            parts.append(Contribution("tools", weights.tools, "calls of tools must be exact"))
        if ask.reasoning:
            parts.append(Contribution("reasoning", weights.reasoning, "reasoning is asked for"))
        if ask.logprobs:
            parts.append(Contribution("logprobs", weights.logprobs, "log-probabilities are asked for"))
        if ask.seed is not None:
            parts.append(Contribution("seed", weights.seed, "a seed asks for a repeatable answer"))
        if ask.choices > 1:
            parts.append(Contribution("several_choices", weights.several_choices, "several answers are asked for"))
        if expected_output_tokens > rules.long_output_tokens:
            why = f"more than {rules.long_output_tokens} output tokens are expected"
            parts.append(Contribution("long_output", weights.long_output, why))
        score = 0.0
        for part in parts:
            score += part.points
        return Sensitivity(_verdict(score, rules), score, tuple(parts))


@lru_cache(maxsize=4)
def compile_rules(rules: SensitivityRules) -> Classifier:
    """Sensitivity rules made ready for use. Costs tens of milliseconds, so that the last ones are remembered: tables
    change each second, rules hardly ever."""
    return Classifier(rules, compile_vocabulary(rules.words))


def _verdict(score: float, rules: SensitivityRules) -> Verdict:
    if score >= rules.sensitive_at:
        return Verdict.SENSITIVE
    if score <= rules.tolerant_at:
        return Verdict.TOLERANT
    return Verdict.NEUTRAL


def _add_temperature(parts: list[Contribution], ask: Ask, rules: SensitivityRules) -> bool:
    """Adds what the sampling settings say; whether the noise of sampling is larger than that of quantization may be."""
    weights = rules.weights
    temperature = ask.temperature
    if ask.top_k == 1:
        parts.append(Contribution("greedy", weights.greedy, "top_k is 1"))
    elif temperature is not None and temperature <= 0:
        parts.append(Contribution("greedy", weights.greedy, "temperature is 0"))
    elif ask.top_p is not None and ask.top_p <= rules.narrow_top_p:
        parts.append(Contribution("near_greedy", weights.near_greedy, f"top_p is {ask.top_p:g}"))
    elif ask.min_p is not None and ask.min_p >= rules.narrow_min_p:
        parts.append(Contribution("near_greedy", weights.near_greedy, f"min_p is {ask.min_p:g}"))
    elif temperature is not None and temperature <= rules.near_greedy_temperature:
        parts.append(Contribution("near_greedy", weights.near_greedy, f"temperature is {temperature:g}"))
    else:
        if temperature is None:
            why = "no temperature is given, engines use 1"
            parts.append(Contribution("hot_by_default", weights.hot_by_default, why))
        elif temperature > rules.hot_temperature:
            parts.append(Contribution("hot", weights.hot, f"temperature is {temperature:g}"))
        return True
    return False


def _add_words(
    parts: list[Contribution], ask: Ask, rules: SensitivityRules, vocabulary: Vocabulary, *, sampled: bool
) -> None:
    """Adds what the words say: of each kind, the place that speaks most strongly counts.

    Creative words speak against the full tier only where answers are sampled: it is the sampling that hides the noise.
    """
    positions = rules.positions
    structured = tolerant = 0.0
    structured_at = tolerant_at = ""
    structured_found = tolerant_found = NOTHING_FOUND
    for text, weight, place in (
        (ask.last_user, positions.last_user, "the last user turn"),
        (ask.system, positions.system, "the system prompt"),
        (ask.first_user if ask.first_user != ask.last_user else "", positions.first_user, "the first user turn"),
    ):
        if not text:
            continue
        found = vocabulary.read(text)
        if found.structured * weight > structured:
            structured, structured_at, structured_found = found.structured * weight, place, found
        if found.tolerant * weight > tolerant:
            tolerant, tolerant_at, tolerant_found = found.tolerant * weight, place, found
    if structured:
        why = _why(structured_found.structured_words, structured_at)
        hot = sampled and ask.temperature is not None and ask.temperature > rules.hot_temperature
        full_weight = rules.weights.structured_words_when_hot if hot else rules.weights.structured_words
        parts.append(Contribution("structured_words", full_weight * structured, why))
    if tolerant and sampled:
        why = _why(tolerant_found.tolerant_words, tolerant_at)
        parts.append(Contribution("creative_words", rules.weights.creative_words * tolerant, why))


def _why(words: tuple[str, ...], place: str) -> str:
    """Names listed words, so that nothing else of the prompt is shown."""
    return f"{', '.join(words[:_WORDS_SHOWN])} in {place}"
