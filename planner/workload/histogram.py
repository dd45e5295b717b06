"""Prompts and answers of a trace, as counts in buckets: small enough to ship, and it keeps how they go together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.workload.workload import Integers, Workload

# Buckets are of like ratios, so many for each doubling. Services cut prompts near round numbers, so that many are of
# one length: prompts have further bounds, between which are like numbers of requests.
_PROMPT_BUCKETS = 100
_STEPS = 4


@dataclass(frozen=True, slots=True)
class TokenHistogram:
    """`counts[i, j]` requests have prompts in [input_bounds[i], input_bounds[i + 1]) and answers in the j-th bucket of
    `output_bounds`. Inside a bucket tokens are taken to be uniform."""

    input_bounds: Integers
    output_bounds: Integers
    counts: npt.NDArray[np.int64]

    @property
    def requests(self) -> int:
        return int(self.counts.sum())

    def sample(self, requests: int, dice: np.random.Generator) -> tuple[Integers, Integers]:
        """Prompts and answers, in no order."""
        cells = dice.choice(self.counts.size, size=requests, p=self.counts.ravel() / self.requests)
        prompts, answers = np.divmod(cells, self.counts.shape[1])
        return _inside(self.input_bounds, prompts, dice), _inside(self.output_bounds, answers, dice)


def count(workload: Workload) -> TokenHistogram:
    """Of a workload's requests."""
    prompts, answers = _even_bounds(workload.input_tokens), _ratio_bounds(workload.output_tokens)
    counts, _, _ = np.histogram2d(workload.input_tokens, workload.output_tokens, bins=(prompts, answers))
    return TokenHistogram(prompts, answers, counts.astype(np.int64))


def _even_bounds(tokens: Integers) -> Integers:
    quantiles = np.quantile(tokens, np.linspace(0, 1, _PROMPT_BUCKETS + 1), method="lower").astype(np.int32)
    lengths, times = np.unique(quantiles, return_counts=True)
    just_above = lengths[times > 1] + 1
    return np.unique(np.concatenate((lengths, just_above, _ratio_bounds(tokens)[1:])))


def _ratio_bounds(tokens: Integers) -> Integers:
    largest = int(tokens.max()) + 1
    steps = np.arange(int(np.ceil(_STEPS * np.log2(largest))) + 1)
    bounds = np.unique(np.round(2 ** (steps / _STEPS)).astype(np.int32))
    return np.append(bounds[bounds < largest], np.int32(largest))


def _inside(bounds: Integers, buckets: npt.NDArray[np.int64], dice: np.random.Generator) -> Integers:
    return dice.integers(bounds[buckets], bounds[buckets + 1]).astype(np.int32)
