"""Judges how a request would suffer from quantization: a score of named contributions, and a verdict by two thresholds.

A heuristic at scheduling time. It asks no model, and it promises nothing about answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, Protocol

from controlplane.model import Ask, Contribution, Sensitivity, Verdict
from controlplane.policy.settings import SensitivityRules, SensitivityWeights
from controlplane.policy.vocabulary import NOTHING_FOUND, Found, Vocabulary, compile_vocabulary

# Contributions name at most this many words.
_WORDS_SHOWN = 4
# Excerpts that are remembered, with what they speak for.
_REMEMBERED = 1024


class _Said(NamedTuple):
    """The contributions that are the same for every request, made once."""

    top_k: Contribution
    greedy: Contribution
    hot_by_default: Contribution
    structured_output: Contribution
    tools: Contribution
    reasoning: Contribution
    logprobs: Contribution
    seed: Contribution
    several_choices: Contribution
    long_output: Contribution


class Judge(Protocol):
    """Whatever says how a request would suffer from quantization."""

    def classify(self, ask: Ask, expected_output_tokens: int) -> Sensitivity: ...


@dataclass(frozen=True, slots=True)
class Classifier:
    """Sensitivity rules made ready for use. What the last system prompts and first user turns speak for is remembered,
    since requests repeat them: those of an application the former, those of a conversation both."""

    rules: SensitivityRules
    vocabulary: Vocabulary
    said: _Said = field(init=False, repr=False, compare=False)
    read_again: Callable[[str], Found] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "read_again", lru_cache(maxsize=_REMEMBERED)(self.vocabulary.read))
        object.__setattr__(self, "said", _say(self.rules.weights, self.rules.long_output_tokens))

    def classify(self, ask: Ask, expected_output_tokens: int) -> Sensitivity:
        """The sensitivity of a request of which each choice is expected to have that many output tokens."""
        rules = self.rules
        said = self.said
        parts: list[Contribution] = []
        sampled = self._add_temperature(parts, ask)
        self._add_words(parts, ask, sampled=sampled)
        if ask.structured_output:
            parts.append(said.structured_output)
        if ask.features.tools:
            parts.append(said.tools)
        if ask.reasoning:
            parts.append(said.reasoning)
        if ask.logprobs:
            parts.append(said.logprobs)
        if ask.seed is not None:
            parts.append(said.seed)
        if ask.choices > 1:
            parts.append(said.several_choices)
        if expected_output_tokens > rules.long_output_tokens:
            parts.append(said.long_output)
        score = 0.0
        for part in parts:
            score += part.points
        return Sensitivity(verdict_of(score, rules), score, tuple(parts))

    def _add_temperature(self, parts: list[Contribution], ask: Ask) -> bool:
        """Adds what the sampling settings say; whether sampling may add more noise than quantization."""
        rules = self.rules
        temperature = ask.temperature
        if ask.top_k == 1:
            parts.append(self.said.top_k)
        elif temperature is not None and temperature <= 0:
            parts.append(self.said.greedy)
        elif ask.top_p is not None and ask.top_p <= rules.narrow_top_p:
            parts.append(Contribution("near_greedy", rules.weights.near_greedy, f"top_p is {ask.top_p:g}"))
        elif ask.min_p is not None and ask.min_p >= rules.narrow_min_p:
            parts.append(Contribution("near_greedy", rules.weights.near_greedy, f"min_p is {ask.min_p:g}"))
        elif temperature is None:
            parts.append(self.said.hot_by_default)
            return True
        elif temperature <= rules.near_greedy_temperature:
            parts.append(Contribution("near_greedy", rules.weights.near_greedy, f"temperature is {temperature:g}"))
        else:
            if temperature > rules.hot_temperature:
                parts.append(Contribution("hot", rules.weights.hot, f"temperature is {temperature:g}"))
            return True
        return False

    def _add_words(self, parts: list[Contribution], ask: Ask, *, sampled: bool) -> None:
        """Adds what the words say: of each kind, the place that speaks most strongly counts.

        Creative words speak against the full tier only where answers are sampled: it is the sampling that hides the
        noise.
        """
        spoken: list[tuple[Found, float, str]] = []
        positions = self.rules.positions
        if ask.last_user and (found := self.vocabulary.read(ask.last_user)) is not NOTHING_FOUND:
            spoken.append((found, positions.last_user, "the last user turn"))
        if ask.system and (found := self.read_again(ask.system)) is not NOTHING_FOUND:
            spoken.append((found, positions.system, "the system prompt"))
        if ask.first_user != ask.last_user and (found := self.read_again(ask.first_user)) is not NOTHING_FOUND:
            spoken.append((found, positions.first_user, "the first user turn"))
        structured = tolerant = 0.0
        for found, weight, place in spoken:
            if found.structured * weight > structured:
                structured, structured_found, structured_at = found.structured * weight, found, place
            if found.tolerant * weight > tolerant:
                tolerant, tolerant_found, tolerant_at = found.tolerant * weight, found, place
        weights = self.rules.weights
        if structured:
            hot = sampled and ask.temperature is not None and ask.temperature > self.rules.hot_temperature
            full_weight = weights.structured_words_when_hot if hot else weights.structured_words
            why = self._why(structured_found.structured_numbers, structured_at)
            parts.append(Contribution("structured_words", full_weight * structured, why))
        if tolerant and sampled:
            why = self._why(tolerant_found.tolerant_numbers, tolerant_at)
            parts.append(Contribution("creative_words", weights.creative_words * tolerant, why))

    def _why(self, numbers: Sequence[int], place: str) -> str:
        """Names listed words, so that nothing else of the prompt is shown."""
        labels = self.vocabulary.labels
        return f"{', '.join([labels[number] for number in numbers[:_WORDS_SHOWN]])} in {place}"


@lru_cache(maxsize=4)
def compile_rules(rules: SensitivityRules) -> Classifier:
    """Sensitivity rules made ready for use. Costs about a tenth of a second and 20 MB, so that the last ones are
    remembered: tables change each second, rules hardly ever."""
    return Classifier(rules, compile_vocabulary(rules.words))


def _say(weights: SensitivityWeights, long_output_tokens: int) -> _Said:
    return _Said(
        top_k=Contribution("greedy", weights.greedy, "top_k is 1"),
        greedy=Contribution("greedy", weights.greedy, "temperature is 0"),
        hot_by_default=Contribution("hot_by_default", weights.hot_by_default, "no temperature is given, engines use 1"),
        structured_output=Contribution(
            "structured_output", weights.structured_output, "the answer's form is prescribed"
        ),
        tools=Contribution("tools", weights.tools, "calls of tools must be exact"),
        reasoning=Contribution("reasoning", weights.reasoning, "reasoning is asked for"),
        logprobs=Contribution("logprobs", weights.logprobs, "log-probabilities are asked for"),
        seed=Contribution("seed", weights.seed, "a seed asks for a repeatable answer"),
        several_choices=Contribution("several_choices", weights.several_choices, "several answers are asked for"),
        long_output=Contribution(
            "long_output", weights.long_output, f"more than {long_output_tokens} output tokens are expected"
        ),
    )


def verdict_of(score: float, rules: SensitivityRules) -> Verdict:
    if score >= rules.sensitive_at:
        return Verdict.SENSITIVE
    if score <= rules.tolerant_at:
        return Verdict.TOLERANT
    return Verdict.NEUTRAL
