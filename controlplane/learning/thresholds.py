"""Suggests where the context classes should part, from how many tokens requests need in all.

Of k classes with the bounds b1 < ... < bk, a request is served by the first that holds it, and an engine set up for the
bound b serves m(b) requests in a time in which it serves m(bk) when set up for the last. The share of the capacity
saved against one class is then

    1 - sum over classes of F(class) * m(bk) / m(b)

with F the class's share of the requests; for two classes that is alpha * (1 - 1 / rho) of token-budget pool routing
(arXiv 2604.09613). It is an upper bound: queueing and whole numbers of engines are not in it. Pure: the distribution
and what was thought before go in, what is thought now comes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from controlplane.learning.histogram import Histogram
from controlplane.policy.settings import ThresholdRules

# Bounds that are looked at: every half power of two, rounded to what people write.
CANDIDATES = tuple(size * step for size in (1024 * 2**power for power in range(11)) for step in (1, 1.5))


@dataclass(frozen=True, slots=True)
class EngineShape:
    """What one engine holds: a KV cache of so many tokens and at most so many sequences. An iteration of n sequences
    takes `fixed` + `per_sequence` * n milliseconds; to be measured, these are published for Llama-3-70B on A100."""

    kv_cache_tokens: int
    max_sequences: int
    fixed: float = 8.0
    per_sequence: float = 0.65

    def sequences(self, bound: float) -> int:
        """That fit at once when each may grow to `bound` tokens."""
        return max(1, min(self.max_sequences, int(self.kv_cache_tokens // bound)))

    def speed(self, bound: float) -> float:
        """Sequences' tokens per millisecond."""
        sequences = self.sequences(bound)
        return sequences / (self.fixed + self.per_sequence * sequences)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """`bounds` are those to use, without the last class's, which is the engines' own limit. `better` is what has looked
    better lately, `times` on end. `saving` is what the bounds in use save of the capacity, as a share."""

    bounds: tuple[int, ...]
    saving: float = 0.0
    better: tuple[int, ...] | None = None
    times: int = 0


def needs(totals: Histogram, bounds: Sequence[int], limit: int, shape: EngineShape) -> tuple[float, ...]:
    """What each class needs of the engines that one class of `limit` tokens needs for all requests, as a share."""
    found, before = [], 0.0
    for bound in (*bounds, limit):
        share = 1.0 if bound == limit else totals.share_up_to(bound)
        found.append((share - before) * shape.speed(limit) / shape.speed(bound))
        before = share
    return tuple(found)


def saving(totals: Histogram, bounds: Sequence[int], limit: int, shape: EngineShape) -> float:
    """The share of the capacity that these bounds save against one class of `limit` tokens."""
    return 1.0 - sum(needs(totals, bounds, limit, shape))


def best_bounds(totals: Histogram, classes: int, limit: int, shape: EngineShape) -> tuple[int, ...]:
    """The bounds of `classes` classes, the last one's left out, that save most; the lower ones of equals."""
    candidates = [int(bound) for bound in CANDIDATES if bound < limit]
    # For each candidate the least cost of all below it, with so many classes and where the one before ends.
    reached: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    shares = {bound: totals.share_up_to(bound) for bound in candidates} | {0: 0.0, limit: 1.0}
    for number in range(classes):
        ends = [limit] if number == classes - 1 else candidates
        longer: dict[int, tuple[float, tuple[int, ...]]] = {}
        for end in ends:
            found = [
                (cost + (shares[end] - shares[start]) / shape.speed(end), (*bounds, end))
                for start, (cost, bounds) in reached.items()
                if start < end
            ]
            if found:
                longer[end] = min(found)
        reached = longer
    return reached[limit][1][:-1] if limit in reached else ()


def suggest(before: Suggestion, totals: Histogram, limit: int, shape: EngineShape, rules: ThresholdRules) -> Suggestion:
    """The next suggestion, with as many classes. It moves only to what was better by enough, often enough on end."""
    now = replace(before, saving=saving(totals, before.bounds, limit, shape))
    if totals.total < rules.minimum_samples:
        return replace(now, better=None, times=0)
    best = best_bounds(totals, len(before.bounds) + 1, limit, shape)
    gained = saving(totals, best, limit, shape) - now.saving
    if len(best) != len(before.bounds) or gained < rules.worthwhile:
        return replace(now, better=None, times=0)
    times = before.times + 1 if best == before.better else 1
    if times < rules.patience:
        return replace(now, better=best, times=times)
    return Suggestion(best, saving(totals, best, limit, shape))
