"""Sizes two pools exactly as the authors of token-budget routing do, to compute their tables again. Not how we plan.

Their fleet simulator (vllm-project/semantic-router, src/fleet-sim, Apache-2.0) takes total tokens from a distribution,
four fifths of each as prompt. Engines run as many sequences as `published_sequences` tells, always all of them; reading
a request takes an iteration for each chunk, answering one for each token, and attention is as slow as the request's own
length makes it. What a request takes on average they find by drawing 3,000; `every_length` does not draw, and shows how
many engines of their tables are chance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from random import Random
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from planner.hardware.engine import EngineModel
from planner.hardware.published import published_sequences
from planner.sizing.erlang import wait_quantile
from planner.workload.cdf import INPUT_SHARE, TokenCdf

HIGHEST_UTILISATION = 0.85
DRAWN = 3000
SEED = 42

# Lengths of requests above the first and up to the second bound, and the share of each.
Lengths: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]
Within: TypeAlias = Callable[[TokenCdf, int, int], Lengths]


@dataclass(frozen=True, slots=True)
class AuthorsPool:
    """`seconds` is the P99 of the wait plus the mean time to read a prompt alone, which they call the P99 TTFT."""

    instances: int
    seconds: float


@dataclass(frozen=True, slots=True)
class AuthorsFleet:
    """Two pools parted at `bound` tokens, against one with `alone` instances."""

    bound: int
    short: AuthorsPool
    long: AuthorsPool
    alone: int

    @property
    def instances(self) -> int:
        return self.short.instances + self.long.instances

    @property
    def saving(self) -> float:
        return 1 - self.instances / self.alone


@dataclass(frozen=True, slots=True)
class AuthorsCase:
    """What a table is of: `rate` requests a second, a P99 wait of at most `seconds`, and engines of `longest` tokens
    for the long requests and for the one pool of all."""

    cdf: TokenCdf
    profile: EngineModel
    rate: float
    seconds: float
    longest: int


def every_length(cdf: TokenCdf, above: int, up_to: int) -> Lengths:
    """Each with what the distribution says."""
    lengths = np.arange(above + 1, up_to + 1)
    shares = np.diff(np.interp(np.append(above, lengths), (0, *cdf.tokens), (0.0, *cdf.shares)))
    return lengths, shares / shares.sum()


def drawn_lengths(cdf: TokenCdf, above: int, up_to: int) -> Lengths:
    """As the authors draw them, from the same seed."""
    dice = Random(SEED)
    bounds = [max(above, 1), *(tokens for tokens in cdf.tokens if above < tokens <= up_to)]
    reached = [(cdf.share_up_to(bound) - cdf.share_up_to(above)) for bound in bounds[1:]]
    drawn = []
    for _ in range(DRAWN):
        share = dice.random() * reached[-1]
        place = next((place for place, end in enumerate(reached) if share <= end), len(reached) - 1)
        low = bounds[place] + 1 if place else max(above, 1)
        drawn.append(dice.randint(low, bounds[place + 1]))
    return np.array(drawn), np.full(DRAWN, 1 / DRAWN)


def authors_fleet(case: AuthorsCase, bound: int, within: Within = drawn_lengths) -> AuthorsFleet:
    """The row of their table for this bound, which is a point of the distribution."""
    case = replace(case, profile=replace(case.profile, scales_with_length=True))
    share = case.cdf.share_up_to(bound)
    last = case.cdf.tokens[-1]
    return AuthorsFleet(
        bound=bound,
        short=_pool(case, share, bound, within(case.cdf, 0, bound)),
        long=_pool(case, 1 - share, case.longest, within(case.cdf, bound, min(last, case.longest))),
        alone=_pool(case, 1.0, case.longest, within(case.cdf, 0, min(last, case.longest))).instances,
    )


def _pool(case: AuthorsCase, share: float, context: int, of: Lengths) -> AuthorsPool:
    profile, rate = case.profile, share * case.rate
    sequences = published_sequences(profile, context)
    lengths, weights = of
    prompts = np.maximum(1, (lengths * INPUT_SHARE).astype(np.int64))
    chunks = -(-prompts // profile.chunk_tokens)
    iteration = profile.fixed_seconds + profile.per_sequence_seconds * sequences * lengths / profile.reference_tokens
    service = (chunks + np.maximum(1, lengths - prompts)) * iteration
    mean = float(service @ weights)
    cv2 = max(0.01, float(service**2 @ weights) / mean**2 - 1)

    def wait(instances: int) -> float:
        return wait_quantile(instances * sequences, rate, mean, service_cv2=cv2)

    instances = ceil(rate * mean / sequences) + 1
    while wait(instances) > case.seconds:
        instances += 1
    instances = max(instances, ceil(rate * mean / sequences / HIGHEST_UTILISATION))
    alone = profile.fixed_seconds + profile.per_sequence_seconds
    return AuthorsPool(instances, wait(instances) + float(chunks @ weights) * alone)
