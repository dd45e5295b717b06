"""Tries fleets in the simulator, and finds how many instances of each pool meet the targets there.

Formulas know neither how prefills of several requests meet in one iteration nor how the policy leads requests, and take
an instance to be as slow as when all its sequences run. So a planned number of instances is where the search begins:
pools grow while they miss the targets and shrink while they meet them, all at once, as each gets its own requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from controlplane.model import Verdict
from controlplane.policy.settings import Policy
from planner.plan.fleet import PlannedFleet, PlannedPool
from planner.simulation.fleet import SimulatedFleet, SimulatedPool, with_classes
from planner.simulation.report import PoolFigures
from planner.simulation.setup import MOST_SECONDS
from planner.simulation.simulate import simulate
from planner.sizing.pools import Targets
from planner.workload.workload import Workload

# Of the workload's beginning. A P99 of as many is within some percent.
REQUESTS = 15_000
ROUNDS = 7
# By how much pools grow or shrink before it is known between what numbers they have to be.
_STEP = 1.15
# What may be refused or lost.
_NOT_SERVED = 0.001


@dataclass(frozen=True, slots=True)
class Trials:
    """With the workload's beginning, and `tolerant` of it judged so by chance, where verdicts are not known."""

    workload: Workload
    targets: Targets
    tolerant: float | None
    seed: int

    def requests(self) -> Workload:
        first = self.workload.select(
            (np.arange(len(self.workload)) < REQUESTS) & (self.workload.arrival_seconds <= MOST_SECONDS)
        )
        if self.tolerant is None:
            return first
        neutral, tolerant = list(Verdict).index(Verdict.NEUTRAL), list(Verdict).index(Verdict.TOLERANT)
        dice = np.random.default_rng(self.seed)
        chosen = np.where(dice.random(len(first)) < self.tolerant, tolerant, neutral)
        return replace(first, verdict=chosen.astype(np.uint8))

    def fit(self, fleet: PlannedFleet, told: Callable[[], None] = lambda: None) -> PlannedFleet | None:
        """The fleet with the fewest instances of each pool that met the targets, and so many more as may be down at any
        time; None when none did. `told` is called after each of at most ROUNDS simulations."""
        requests = self.requests()
        up = [max(1, round(pool.size.instances * self.targets.availability)) for pool in fleet.pools]
        fleet = _with_instances(fleet, up)
        missing, meeting = [0] * len(fleet.pools), [0] * len(fleet.pools)
        best: PlannedFleet | None = None
        for _ in range(ROUNDS):
            report = simulate(requests, simulated_fleet(fleet), self.seed)
            told()
            met = [self._is_met(each) for each in report.pools]
            if all(met) and report.whole.not_served > _NOT_SERVED:
                # Who was turned away before any pool had it belongs to none: whose fault it was is not known.
                met = [False] * len(met)
            if all(met):
                tried = _measured(fleet, report.pools)
                if best is None or tried.dollars_per_hour < best.dollars_per_hour:
                    best = tried
            counts = [pool.size.instances for pool in fleet.pools]
            for place, (count, good) in enumerate(zip(counts, met, strict=True)):
                if good:
                    meeting[place] = min(meeting[place] or count, count)
                else:
                    missing[place] = max(missing[place], count)
            following = [next_instances(*bounds) for bounds in zip(counts, missing, meeting, strict=True)]
            if following == counts:
                break
            fleet = _with_instances(fleet, following)
        if best is None:
            return None
        return _with_instances(best, [ceil(pool.size.instances / self.targets.availability) for pool in best.pools])

    def _is_met(self, found: PoolFigures) -> bool:
        figures = found.figures
        if not figures.requests:
            return True
        if found.occupancy > self.targets.utilisation:
            return False
        late = figures.ttft.p99 > self.targets.ttft_seconds or figures.tpot.p99 > self.targets.tpot_seconds
        return not late and figures.not_served <= _NOT_SERVED


def next_instances(count: int, missing: int, meeting: int) -> int:
    """Instances to try next: between what missed and what met the targets, or further where only one is known."""
    if not meeting:
        return max(count + 1, ceil(count * _STEP))
    if meeting <= missing + 1:
        return meeting
    if not missing:
        return max(1, min(meeting - 1, int(meeting / _STEP)))
    return (missing + meeting) // 2


def simulated_fleet(fleet: PlannedFleet) -> SimulatedFleet:
    """Routed by the default policy, with the fleet's context classes."""
    return SimulatedFleet(
        pools=tuple(
            SimulatedPool(pool.size.engine, pool.size.instances, token_budget=pool.size.token_budget)
            for pool in fleet.pools
        ),
        policy=with_classes(Policy(), {pool.up_to for pool in fleet.pools}),
    )


def _with_instances(fleet: PlannedFleet, counts: list[int]) -> PlannedFleet:
    return PlannedFleet(
        tuple(
            replace(pool, size=replace(pool.size, instances=count))
            for pool, count in zip(fleet.pools, counts, strict=True)
        )
    )


def _measured(fleet: PlannedFleet, figures: Sequence[PoolFigures]) -> PlannedFleet:
    def of(pool: PlannedPool, found: PoolFigures) -> PlannedPool:
        times = found.figures
        if not times.served:
            return pool
        size = replace(pool.size, busy=found.occupancy, ttft_seconds=times.ttft.p99, tpot_seconds=times.tpot.p99)
        return replace(pool, size=size)

    return PlannedFleet(tuple(of(pool, found) for pool, found in zip(fleet.pools, figures, strict=True)))
