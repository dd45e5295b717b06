"""What a simulated fleet did: plain values, for people, programs and plots.

Every request that arrived in the measured time counts, also those that were refused or lost: shares are of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from controlplane.model import QosTier


class Ending(StrEnum):
    """How requests end."""

    SERVED = "served"
    REFUSED = "refused"  # by the policy: overloaded, or nothing is ready
    QUEUE_FULL = "queue_full"
    WAITED_TOO_LONG = "waited_too_long"
    ENGINE_REFUSED = "engine_refused"  # larger than the context of every pool that may serve it
    LOST = "lost"  # with an instance that failed while it answered


@dataclass(frozen=True, slots=True)
class Times:
    """Quantiles and mean, in seconds; all NaN where nobody was served."""

    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class Figures:
    """Of the requests of one pool, one tier, or all.

    `requests` arrived in the measured time, and ended as `endings` say. Rates are per second of this time: of requests
    and of output tokens that were completed in it. `ttft` counts from the arrival at the gateway, `tpot` from the first
    token, per further one; `whole` until the last. `good` is the share of requests that were served within the targets
    of their tier, `goodput` their number per second. `shortened` answers were cut by pressure or by the context,
    `preemptions` are per request.
    """

    requests: int
    endings: Mapping[Ending, int]
    requests_per_second: float
    tokens_per_second: float
    ttft: Times
    tpot: Times
    whole: Times
    good: float
    goodput: float
    shortened: int
    preemptions: float

    @property
    def served(self) -> int:
        return self.endings[Ending.SERVED]

    @property
    def not_served(self) -> float:
        """As a share."""
        return 1 - self.served / self.requests if self.requests else 0.0


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """Of one pool. `busy` is the share of time in which an instance computes, `occupancy` the mean share of its
    sequences that run, over the whole course and all instances."""

    name: str
    instances: int
    gpus: int
    figures: Figures
    busy: float
    occupancy: float
    dollars_per_hour: float


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """One course of events. `seconds` are those that were measured: from the end of the warm-up to the last arrival.
    `sojourn_picoseconds` is the sum over all requests, `area_picoseconds` that under the number of them in the system,
    which by Little's law is the same. `decisions` is how often the policy was asked."""

    source: str
    seed: int
    seconds: float
    whole: Figures
    pools: tuple[PoolFigures, ...]
    tiers: Mapping[QosTier, Figures] = field(default_factory=dict)
    gpu_hours: float = 0.0
    dollars: float = 0.0
    decisions: int = 0
    sojourn_picoseconds: int = 0
    area_picoseconds: int = 0

    @property
    def dollars_per_million_tokens(self) -> float:
        """Of output."""
        tokens = self.whole.tokens_per_second * self.seconds
        return 1e6 * self.dollars / tokens if tokens else float("inf")
