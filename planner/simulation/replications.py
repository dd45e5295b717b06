"""Several courses of one fleet, each with its own seed, and how far their figures can be trusted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.simulation.fleet import SimulatedFleet
from planner.simulation.report import SimulationReport
from planner.simulation.simulate import simulate
from planner.workload.workload import Workload

# Two-sided 95% quantiles of Student's t, by degrees of freedom from 1 on; beyond these the last one is a little wide.
_T95 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over courses, and how far from it the true one is with 95% confidence; NaN for a single course."""

    mean: float
    half: float


def replicate(
    workload: Callable[[int], Workload], fleet: SimulatedFleet, seeds: Sequence[int]
) -> tuple[SimulationReport, ...]:
    """A course for each seed, of the workload that this seed has."""
    return tuple(simulate(workload(seed), fleet, seed) for seed in seeds)


def interval(reports: Sequence[SimulationReport], figure: Callable[[SimulationReport], float]) -> Interval:
    values = [figure(report) for report in reports]
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Interval(mean, math.nan)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return Interval(mean, _T95[min(len(values) - 1, len(_T95)) - 1] * deviation / math.sqrt(len(values)))
