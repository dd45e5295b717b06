"""How hard each pool is pressed, by the policy's own state machine, sampled at each heartbeat."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from controlplane.model import Pressure, QosTier, TierPressure
from controlplane.policy.pressure import PressureState, Signals, Thresholds, level_of, step
from controlplane.policy.qos import QosRules
from controlplane.policy.sla import SlaRules
from planner.simulation.state import Array


class PoolPressure:
    """Of one pool, for each QoS tier."""

    def __init__(self, rules: QosRules, sla: SlaRules, heartbeat_seconds: float) -> None:
        self._rules = rules
        self._sla = sla
        self._states = tuple(PressureState() for _ in QosTier)
        self._beat = heartbeat_seconds
        self._missed: deque[Array] = deque(maxlen=max(1, round(sla.window_seconds / heartbeat_seconds)))

    @property
    def is_calm(self) -> bool:
        """Whether samples of an idle pool would change nothing."""
        calm = all(state.pressure is Pressure.NORMAL and state.samples == 0 for state in self._states)
        return calm and not any(missed.any() for missed in self._missed)

    def sample(
        self, kv_cache_use: float | None, waiting: float | None, missed: Array, now: float
    ) -> tuple[TierPressure, ...]:
        """After a heartbeat at `now` (seconds). `waiting` is per instance; of `missed`, which has the shape (tiers, 2),
        so many requests ended since the last one, and so many of them missed their targets."""
        self._missed.append(missed.copy())
        worst = list(accumulate(self._rates(), _worse))
        states, pressures = [], []
        for tier, rate, state in zip(QosTier, worst, self._states, strict=True):
            rules = self._rules.of(tier)
            thresholds = Thresholds(rules.elevated_at, rules.critical_at)
            signals = Signals(kv_cache_use, waiting, rate)
            after = step(state, signals, thresholds, self._rules.stability, now)
            level, signal = level_of(signals, thresholds)
            states.append(after)
            pressures.append(TierPressure(tier, after.pressure, round(level, 2), signal, rate))
        self._states = tuple(states)
        return tuple(pressures)

    def _rates(self) -> Sequence[float | None]:
        """Of violations among the requests that ended within the window; None where they are too few or too old."""
        window = np.array(self._missed)
        judged, violated = window.sum(axis=0).T
        stale = max(1, round(self._sla.stale_seconds / self._beat))
        known = (judged >= self._sla.minimum_requests) & (window[-stale:, :, 0].sum(axis=0) > 0)
        return [float(v / j) if k else None for j, v, k in zip(judged, violated, known, strict=True)]


def _worse(one: float | None, other: float | None) -> float | None:
    known = [rate for rate in (one, other) if rate is not None]
    return max(known, default=None)
