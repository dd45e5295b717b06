"""Simulates a fleet under a workload, and measures what came of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from controlplane.model import QosTier
from planner.simulation.course import Course
from planner.simulation.fleet import SimulatedFleet
from planner.simulation.report import Ending, Figures, PoolFigures, SimulationReport, Times
from planner.simulation.state import NEVER, SECOND, SERVED, Records, State
from planner.workload.workload import Workload

# Of the time from the first arrival to the last.
WARM_UP = 0.1

Mask = npt.NDArray[np.bool_]


def simulate(workload: Workload, fleet: SimulatedFleet, seed: int = 0, *, warm_up: float = WARM_UP) -> SimulationReport:
    """Until every request of the workload has ended; `seed` is for Envoy's choice between instances.

    The share `warm_up` of the time, in which the fleet fills, is not measured. The same arguments give the same report.
    Raises FleetError for a fleet that the simulator cannot follow.
    """
    course = Course(workload, fleet, seed)
    state = course.finish()
    return _report(state, workload, fleet, seed, warm_up=warm_up, decisions=course.decisions)


def _report(
    state: State, workload: Workload, fleet: SimulatedFleet, seed: int, *, warm_up: float, decisions: int
) -> SimulationReport:
    requests, now = state.requests, state.clockwork[0]
    last = int(requests["arrival"][-1]) if len(workload) else 0
    begin = round(warm_up * last)
    seconds = (last - begin) / SECOND
    arrived = requests["arrival"] >= begin
    completed = (requests["outcome"] == SERVED) & (requests["ended"] >= begin) & (requests["ended"] <= last)
    good = _good(requests, state.tiers)

    def figures(these: Mask) -> Figures:
        return _figures(requests, these & arrived, these & completed, good, seconds)

    everybody = np.ones(len(workload), np.bool_)
    tier_of = requests["kind"] // 3
    return SimulationReport(
        source=workload.source,
        seed=seed,
        seconds=seconds,
        whole=figures(everybody),
        pools=tuple(
            _pool(p, fleet, state, figures(requests["pool"] == p), float(now.clock)) for p in range(len(fleet.pools))
        ),
        tiers={tier: figures(tier_of == place) for place, tier in enumerate(QosTier) if bool((tier_of == place).any())},
        gpu_hours=fleet.gpus * seconds / 3600,
        dollars=fleet.dollars_per_hour * seconds / 3600,
        decisions=decisions,
        sojourn_picoseconds=sum((requests["ended"] - requests["arrival"]).tolist()),
        area_picoseconds=int(now.area_seconds) * SECOND + int(now.area_rest),
    )


def _pool(p: int, fleet: SimulatedFleet, state: State, figures: Figures, course: float) -> PoolFigures:
    pool = fleet.pools[p]
    these = state.instances[state.instances["pool"] == p]
    whole = pool.instances * course
    return PoolFigures(
        name=pool.name(fleet.policy),
        instances=pool.instances,
        gpus=pool.instances * pool.engine.gpus,
        figures=figures,
        busy=float(these["busy"].sum() / whole) if whole else 0.0,
        occupancy=float(these["occupied"].sum() / (whole * pool.engine.max_sequences)) if whole else 0.0,
        dollars_per_hour=pool.instances * pool.engine.dollars_per_hour,
    )


def _figures(requests: Records, arrived: Mask, completed: Mask, good: Mask, seconds: float) -> Figures:
    mine = requests[arrived]
    served = mine[mine["outcome"] == SERVED]
    ttft = (served["first"] - served["arrival"]) / SECOND
    several = served[served["output"] > 1]
    tpot = (several["ended"] - several["first"]) / SECOND / (several["output"] - 1)
    kept = int((arrived & good).sum())
    return Figures(
        requests=mine.size,
        endings=_endings(mine),
        requests_per_second=float(completed.sum() / seconds) if seconds else 0.0,
        tokens_per_second=float(requests["output"][completed].sum() / seconds) if seconds else 0.0,
        ttft=_times(ttft),
        tpot=_times(tpot),
        whole=_times((served["ended"] - served["arrival"]) / SECOND),
        good=kept / mine.size if mine.size else 0.0,
        goodput=kept / seconds if seconds else 0.0,
        shortened=int(mine["shortened"].sum()),
        preemptions=float(mine["preemptions"].mean()) if mine.size else 0.0,
    )


def _endings(mine: Records) -> Mapping[Ending, int]:
    counts = np.bincount(mine["outcome"], minlength=len(Ending) + 1)
    return {ending: int(counts[place]) for place, ending in enumerate(Ending, start=SERVED)}


def _times(seconds: npt.NDArray[np.float64]) -> Times:
    if not seconds.size:
        return Times(*[float("nan")] * 4)
    p50, p90, p99 = np.quantile(seconds, (0.5, 0.9, 0.99))
    return Times(float(seconds.mean()), float(p50), float(p90), float(p99))


def _good(requests: Records, tiers: Records) -> Mask:
    """Who was served within the targets of its tier, as `policy.sla` judges streamed answers."""
    target = tiers[requests["kind"] // 3]
    took = requests["ended"] - requests["arrival"]
    in_time = (requests["first"] - requests["arrival"] <= target["first_token"]) & (took <= target["whole"])
    base = np.where(target["first_token"] < NEVER, target["first_token"], 0)
    paced = target["per_token"] < NEVER
    allowed = base + np.where(paced, target["per_token"], 0) * requests["output"]
    return (requests["outcome"] == SERVED) & in_time & (~paced | (took <= allowed))  # type: ignore[no-any-return]
