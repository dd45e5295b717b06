"""Finds the cheapest fleets: for each class of contexts the cheapest engines, and by that where classes should part.

A class costs what its cheapest pools cost, whatever the other classes are, so that the best bounds of any number of
classes come of the best bounds of one fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from controlplane.model import FormatTier
from planner.hardware.engine import EngineModel
from planner.plan.fleet import PlannedFleet, PlannedPool
from planner.plan.parts import Part
from planner.sizing.demand import Demand, demand
from planner.sizing.pools import PoolSize, Targets, size_pool

# Bounds that are looked at: every half power of two, rounded to what people write.
CANDIDATES = tuple(int(size * step) for size in (512 * 2**power for power in range(12)) for step in (1, 1.5))


@dataclass(frozen=True, slots=True)
class Asked:
    """What is planned for: `rate` requests a second, `busy_rate` when there are many, `engines` to choose from by tier,
    and a context of at least `context` tokens."""

    rate: float
    busy_rate: float
    engines: Mapping[FormatTier, Sequence[EngineModel]]
    targets: Targets
    context: int = 0
    dollars_per_kwh: float = 0.0

    def cost(self, pools: Sequence[PlannedPool]) -> float:
        return PlannedFleet(tuple(pools)).cost(self.dollars_per_kwh) if pools else 0.0


@dataclass(slots=True)
class Search:
    """Over fleets for these parts of a workload. `told` is called after each class that was looked at."""

    asked: Asked
    parts: Sequence[Part]
    told: Callable[[], None] = lambda: None
    _classes: dict[tuple[int, int], tuple[PlannedPool, ...] | None] = field(default_factory=dict)

    @property
    def context(self) -> int:
        """Of the last class: the least candidate that holds all requests, and what is asked for."""
        longest = max(int(part.budgets[-1]) for part in self.parts)
        return (
            next((each for each in CANDIDATES if each >= longest), longest)
            if longest > self.asked.context
            else (self.asked.context)
        )

    @property
    def bounds(self) -> Sequence[int]:
        """Those with requests on both sides."""
        shortest = min(int(part.budgets[0]) for part in self.parts)
        longest = max(int(part.budgets[-1]) for part in self.parts)
        return [bound for bound in CANDIDATES if shortest <= bound < longest]

    @property
    def classes(self) -> int:
        """How many there are to look at."""
        ends = len(self.bounds) + 1
        return ends * (ends + 1) // 2

    def best(self, classes: int) -> PlannedFleet | None:
        """The cheapest fleet of so many context classes; None when none meets the targets."""
        starts = [0, *self.bounds]
        reached: dict[int, tuple[float, tuple[PlannedPool, ...]]] = {0: (0.0, ())}
        for number in range(classes):
            ends = [self.context] if number == classes - 1 else self.bounds
            longer: dict[int, tuple[float, tuple[PlannedPool, ...]]] = {}
            for end in ends:
                found = [
                    (cost + self.asked.cost(pools), (*before, *pools))
                    for start in starts
                    if start < end and start in reached and (pools := self.pools(start, end)) is not None
                    for cost, before in [reached[start]]
                ]
                if found:
                    longer[end] = min(found, key=lambda each: each[0])
            reached = longer
        return PlannedFleet(reached[self.context][1]) if self.context in reached else None

    def two_classes(self) -> Iterator[tuple[int, PlannedFleet]]:
        """The cheapest fleet for each bound between two classes, where there is one."""
        for bound in self.bounds:
            short, long = self.pools(0, bound), self.pools(bound, self.context)
            if short is not None and long is not None:
                yield bound, PlannedFleet((*short, *long))

    def pools(self, above: int, up_to: int) -> tuple[PlannedPool, ...] | None:
        """The cheapest of each part for a class of contexts; None where a part has requests there that no engine serves
        within the targets."""
        if (above, up_to) not in self._classes:
            self._classes[above, up_to] = self._pools(above, up_to)
            self.told()
        return self._classes[above, up_to]

    def _pools(self, above: int, up_to: int) -> tuple[PlannedPool, ...] | None:
        found = []
        for part in self.parts:
            first, last = part.up_to(above), part.up_to(up_to)
            if first == last:
                continue
            share = part.share * (last - first) / len(part.workload)
            sizes = list(self._sizes(part, slice(first, last), share, up_to))
            if not sizes:
                return None
            pools = [PlannedPool(part.tier, above, up_to, share, size) for size in sizes]
            found.append(min(pools, key=lambda pool: self.asked.cost([pool])))
        return tuple(found)

    def _sizes(self, part: Part, requests: slice, share: float, context: int) -> Iterator[PoolSize]:
        taken = part.workload.select(np.arange(len(part.workload))[requests])
        demands: dict[int, Demand] = {}
        for engine in self.asked.engines.get(part.tier, ()):
            if engine.chunk_tokens not in demands:
                demands[engine.chunk_tokens] = demand(taken, share * self.asked.busy_rate, 1.0, engine.chunk_tokens)
            size = size_pool(engine, demands[engine.chunk_tokens], context, self.asked.targets)
            if size is not None:
                yield size
