"""Two answers to one request, compared: the full tier's, and another one.

Differences are the other one's minus the full tier's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import fmean

from planner.quality.answers import Answer
from planner.quality.statistics import Agreement


@dataclass(frozen=True, slots=True)
class Pair:
    """None where the engine does not tell what it takes. Log-probabilities are natural ones, per token.

    `prefix_shift` is the mean absolute difference over the tokens up to where the answers diverge: there both engines
    judge the same token after the same text. `prefix_difference` is the same with its sign. `answer_difference` is of
    the means over the whole answers. `length_difference` is in tokens, `first_text_difference` in seconds;
    `speed_ratio` is of decoded tokens per second.
    """

    same: bool
    characters: Agreement
    tokens: Agreement | None = None
    prefix_shift: float | None = None
    prefix_difference: float | None = None
    answer_difference: float | None = None
    length_difference: int | None = None
    first_text_difference: float | None = None
    speed_ratio: float | None = None


def compare(full: Answer, other: Answer) -> Pair:
    same = full.text == other.text
    have_tokens = bool(full.tokens) and bool(other.tokens)
    common = _common(full.tokens, other.tokens)
    shifts = [b - a for a, b in zip(full.logprobs[:common], other.logprobs[:common], strict=True)]
    return Pair(
        same=same,
        characters=Agreement(_common(full.text, other.text), not same),
        tokens=Agreement(common, not same) if have_tokens else None,
        prefix_shift=fmean(map(abs, shifts)) if shifts else None,
        prefix_difference=fmean(shifts) if shifts else None,
        answer_difference=fmean(other.logprobs) - fmean(full.logprobs) if have_tokens else None,
        length_difference=_difference(full.output_tokens, other.output_tokens),
        first_text_difference=(
            other.first_text - full.first_text if full.first_text is not None and other.first_text is not None else None
        ),
        speed_ratio=(
            other.tokens_per_second / full.tokens_per_second
            if full.tokens_per_second and other.tokens_per_second
            else None
        ),
    )


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many items both begin with."""
    return sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(one, other, strict=False)))


def _difference(full: int | None, other: int | None) -> int | None:
    return other - full if full is not None and other is not None else None
