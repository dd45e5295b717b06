"""From the words of `headrace plan` and `headrace simulate` to a workload: files of a trace, or a summary's name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from controlplane.errors import ConfigurationError
from headrace.commands.options import read_text
from planner.workload.arrivals import at_rate
from planner.workload.reading import read_traces
from planner.workload.shipped import NAMES, shipped
from planner.workload.workload import Workload

# Ten years: what is longer has times of unlike units or clocks.
_MOST_SECONDS = 10 * 365 * 86_400.0


def workload_of(names: Sequence[str], rate: float | None, requests: int) -> Callable[[int], Workload]:
    """By seed, at so many requests a second, or at its own rate: of a summary as many are drawn for each seed, a trace
    is always the same. Raises ConfigurationError."""
    if len(names) == 1 and names[0] in NAMES:
        summary = shipped(names[0])
        per_second = rate or summary.requests_per_second
        return lambda seed: at_rate(summary.sample(requests, per_second, np.random.default_rng(seed)), per_second)
    for name in names:
        if not Path(name).exists():
            shipped(name)  # which says what there is
            raise ConfigurationError([f"{name}: a summary is a workload by itself; name one alone, or files"])
    trace = read_traces([(name, read_text(Path(name))) for name in names])
    _check_times(trace, ", ".join(names))
    if rate is not None:
        trace = at_rate(trace, rate)
    return lambda seed: trace


def _check_times(trace: Workload, name: str) -> None:
    if trace.seconds == 0:
        raise ConfigurationError([f"{name}: all requests arrive at one time, which has no rate"])
    if trace.seconds > _MOST_SECONDS:
        years = trace.seconds / (365 * 86_400)
        raise ConfigurationError([f"{name}: times lie {years:,.0f} years apart; are all of one unit and clock?"])
