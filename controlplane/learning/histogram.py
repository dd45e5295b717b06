"""Quantiles of what streams by: weights in buckets of equal ratio, which add up over replicas and fade.

A bucket is `step` wide (0.02: a quantile is exact to 1%). A plain value in JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

_BOUND = 20.0  # exp(20) is 5e8, more than any count of tokens
_FADED = 1e-6


class Histogram(msgspec.Struct):
    """`weights` by bucket; bucket b holds the values nearest to exp(b * step). Only histograms of one step add up."""

    step: float = 0.02
    weights: dict[int, float] = {}

    @property
    def total(self) -> float:
        return math.fsum(self.weights.values())

    def add(self, value: float, weight: float = 1.0) -> None:
        """`value` is above 0; what is beyond the bounds counts as the outermost bucket."""
        bucket = self._bucket(value)
        self.weights[bucket] = self.weights.get(bucket, 0.0) + weight

    def scale(self, factor: float) -> None:
        self.weights = {bucket: weight * factor for bucket, weight in self.weights.items() if weight * factor > _FADED}

    def merge(self, other: Histogram, factor: float = 1.0) -> None:
        for bucket, weight in other.weights.items():
            self.weights[bucket] = self.weights.get(bucket, 0.0) + weight * factor

    def values(self) -> Iterator[tuple[float, float]]:
        """Values that ascend, each with its weight."""
        for bucket in sorted(self.weights):
            yield math.exp(bucket * self.step), self.weights[bucket]

    def quantile(self, share: float) -> float | None:
        """The least bucket's value that `share` of the weight does not exceed; None when empty."""
        left = share * self.total
        reached = None
        for value, weight in self.values():
            reached = value
            left -= weight
            if left <= 0:
                break
        return reached

    def share_up_to(self, value: float) -> float:
        """The share of the weight at `value` or below it; 0 when empty."""
        total = self.total
        if total <= 0:
            return 0.0
        bound = self._bucket(value)
        return math.fsum(weight for bucket, weight in self.weights.items() if bucket <= bound) / total

    def _bucket(self, value: float) -> int:
        logarithm = max(-_BOUND, min(_BOUND, math.log(max(value, 1e-12))))
        return round(logarithm / self.step)
