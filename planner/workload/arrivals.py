"""When requests arrive: as in the trace, as fast as wanted, or anew from a process of known burstiness.

A Poisson process is memoryless, its coefficient of variation (CV) of the times between arrivals is 1. Real traffic has
a larger one: of Azure's code trace of 2023 it is 13. Gamma-distributed times between arrivals have any.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.workload.workload import Floats, Workload

_SPAN_SECONDS = 10.0
_P99_DEVIATIONS = 2.33


def poisson(requests: int, per_second: float, dice: np.random.Generator) -> Floats:
    """Seconds of arrival, ascending from the first of the process."""
    return np.cumsum(dice.exponential(1 / per_second, requests))


def gamma(requests: int, per_second: float, cv: float, dice: np.random.Generator) -> Floats:
    """The same with this coefficient of variation of the times between arrivals, which is above 0."""
    shape = 1 / cv**2
    return np.cumsum(dice.gamma(shape, 1 / (per_second * shape), requests))


def scaled(workload: Workload, factor: float) -> Workload:
    """The same requests, arriving `factor` times as fast, so that bursts stay bursts."""
    return replace(workload, arrival_seconds=workload.arrival_seconds / factor)


def at_rate(workload: Workload, per_second: float) -> Workload:
    """Its own arrivals, scaled to this mean rate. A workload without times arrives all at once and stays so."""
    return scaled(workload, per_second / workload.requests_per_second) if workload.seconds else workload


def arriving(workload: Workload, arrival_seconds: Floats) -> Workload:
    """Its requests in their order, at these times."""
    return replace(workload, arrival_seconds=arrival_seconds)


def interarrival_cv(workload: Workload) -> float:
    """The coefficient of variation of the times between arrivals, 1 where there are too few to tell."""
    between = np.diff(workload.arrival_seconds)
    mean = float(between.mean()) if between.size else 0.0
    return float(between.std()) / mean if mean > 0 else 1.0


def busy_rate(workload: Workload) -> float:
    """Requests a second when there are many: the mean over spans of ten seconds, and 2.33 standard deviations more.

    What a Poisson process of the same rate varies by is left out of these, since queueing formulas have it.
    """
    if workload.seconds < 2 * _SPAN_SECONDS:
        return workload.requests_per_second
    spans = int(workload.seconds / _SPAN_SECONDS)
    counts, _ = np.histogram(workload.arrival_seconds, bins=spans, range=(0.0, spans * _SPAN_SECONDS))
    beyond_poisson = max(float(counts.var()) - float(counts.mean()), 0.0)
    return float(counts.mean() + _P99_DEVIATIONS * np.sqrt(beyond_poisson)) / _SPAN_SECONDS
