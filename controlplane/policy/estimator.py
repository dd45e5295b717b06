"""Estimates a prompt's tokens from its features, in one of two ways that are learned elsewhere and frozen here.

`LinearEstimator` sums up what each part of the text costs; `RatioEstimator` divides its bytes by a ratio. Either says
how many tokens are likely and how many are hardly exceeded. A filter holds one per model and category.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import sqrt
from operator import mul
from types import MappingProxyType
from typing import Protocol
from zlib import crc32

from msgspec import Struct

from controlplane.features import Category, Features, Vector
from controlplane.policy.priors import (
    CHANCE_TOKENS,
    PRIOR_COEFFICIENTS,
    PRIOR_DEVIATION,
    PRIOR_MARGIN,
    PRIOR_OUTPUT_TOKENS,
    PRIOR_RATIOS,
    TOKENS_PER_IMAGE,
    TOKENS_PER_SCHEMA_BYTE,
)
from controlplane.policy.settings import EstimationRules, Estimator

# Tenants are told apart in so many groups, by a digest of their names: what is learned of each stays small.
TENANT_GROUPS = 8
# Runs of blanks give the most; no text has more.
MOST_BYTES_PER_TOKEN = 128.0


class Estimate(Struct, frozen=True, gc=False):
    """Tokens of a prompt: as many as are likely, and as many as are hardly exceeded."""

    central: float
    conservative: float


class PromptEstimator(Protocol):
    def estimate(self, features: Features, group: int) -> Estimate:
        """For a request of a tenant of this group."""
        ...


def chance(tokens: float) -> float:
    """How many times further off the estimate of so many tokens is likely to be than that of a long text; above 1."""
    return sqrt(1.0 + CHANCE_TOKENS / tokens)


@dataclass(frozen=True, slots=True)
class LinearEstimator:
    """Tokens per unit of each feature. `margins` are factors of at least 1 for a long text, by tenant group; a short
    one's are `chance` times as far from 1. `own` has the coefficients of tenant groups that the others contradict."""

    coefficients: Vector = PRIOR_COEFFICIENTS
    margins: tuple[float, ...] = (PRIOR_MARGIN,) * TENANT_GROUPS
    own: Mapping[int, Vector] = field(default_factory=lambda: MappingProxyType({}))

    def estimate(self, features: Features, group: int) -> Estimate:
        coefficients = self.own.get(group, self.coefficients)
        central = sum(map(mul, coefficients, features.vector))
        least = features.text.total / MOST_BYTES_PER_TOKEN
        if central < least or central < 1.0:
            central = max(1.0, least)
        central += features.token_ids
        return Estimate(central, central * (1.0 + (self.margins[group] - 1.0) * chance(central)))


@dataclass(frozen=True, slots=True)
class RatioEstimator:
    """Bytes of text per token, framing included; `conservative` is the lower ratio."""

    ratio: float
    conservative: float

    def estimate(self, features: Features, group: int) -> Estimate:
        fixed = features.token_ids + features.images * TOKENS_PER_IMAGE + features.schema_bytes * TOKENS_PER_SCHEMA_BYTE
        size = features.text.total
        return Estimate(max(1.0, size / self.ratio + fixed), max(1.0, size / self.conservative + fixed))


def prior_ratio(category: Category) -> RatioEstimator:
    """What is expected before any sample."""
    ratio = PRIOR_RATIOS[category]
    return RatioEstimator(ratio, ratio * (1 - PRIOR_DEVIATION))


@dataclass(frozen=True, slots=True)
class Calibration:
    """What is expected of one model's requests of one category. `outputs` are the tokens to expect of an answer whose
    length the client does not cap, by tenant group. `samples` is how many requests it was learned from, 0 for a prior.
    """

    prompt: PromptEstimator
    outputs: tuple[int, ...] = (PRIOR_OUTPUT_TOKENS,) * TENANT_GROUPS
    samples: int = 0


_UNLEARNED = Calibration(LinearEstimator())


@dataclass(frozen=True, slots=True)
class Calibrations:
    """Of all models, with a prior where nothing is learned yet. `pinned` names the models of which an operator keeps
    what was learned at some time."""

    learned: Mapping[tuple[str, Category], Calibration] = field(default_factory=lambda: MappingProxyType({}))
    priors: Mapping[Category, Calibration] = field(default_factory=lambda: MappingProxyType({}))
    pinned: frozenset[str] = frozenset()

    def of(self, model: str, category: Category) -> Calibration:
        found = self.learned.get((model, category))
        return found if found is not None else self.priors.get(category, _UNLEARNED)


def unlearned(rules: EstimationRules) -> Calibrations:
    """What is used before any report."""
    return Calibrations(priors=MappingProxyType({category: _prior(category, rules) for category in Category}))


def in_force(learned: Calibrations, rules: EstimationRules) -> Calibrations:
    """What is learned, with the priors of these rules."""
    return Calibrations(learned.learned, unlearned(rules).priors, learned.pinned)


def _prior(category: Category, rules: EstimationRules) -> Calibration:
    return Calibration(prior_ratio(category) if rules.estimator is Estimator.RATIO else LinearEstimator())


def group_of(tenant: str) -> int:
    """The tenant's group, the same everywhere."""
    return crc32(tenant.encode(errors="replace")) % TENANT_GROUPS
