"""How hard a pool is pressed, as each QoS tier has to take it: a state per pool and tier that follows its signals.

Pure: a step takes the state, a sample of the signals and the time, and gives the next state. What is done in a state is
`govern`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le

from controlplane.model import Pressure


@dataclass(frozen=True, slots=True)
class Signals:
    """One sample of what tells of pressure; None is missing, which is not the same as none.

    `kv_cache_use` and `sla_violation_rate` are shares, `waiting_per_node` counts requests in engines' queues.
    """

    kv_cache_use: float | None = None
    waiting_per_node: float | None = None
    sla_violation_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """From which value of each signal on a state is reached; None leaves the signal out."""

    kv_cache_use: Annotated[float, Ge(0), Le(1)] | None = None
    waiting_per_node: Annotated[float, Ge(0)] | None = None
    sla_violation_rate: Annotated[float, Ge(0), Le(1)] | None = None


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where a tier's requests begin to be degraded, and where to be rejected."""

    elevated: Limits = Limits()
    critical: Limits = Limits()


@dataclass(frozen=True, slots=True)
class Stability:
    """What keeps a state from flapping.

    A state begins when `samples_to_rise` samples in a row say so and at least `rise_cooldown_seconds` have passed since
    the last change; it ends likewise, by the other two. While it lasts, a signal must fall below its threshold by
    `hysteresis` (a share of 1; for waiting requests a share of the threshold) to say otherwise.
    """

    samples_to_rise: Annotated[int, Ge(1)] = 2
    samples_to_fall: Annotated[int, Ge(1)] = 2
    rise_cooldown_seconds: Annotated[float, Ge(0)] = 2.0
    fall_cooldown_seconds: Annotated[float, Ge(0)] = 2.0
    hysteresis: Annotated[float, Ge(0), Le(1)] = 0.05


@dataclass(frozen=True, slots=True)
class PressureState:
    """The pressure in force, and what the last samples said instead: `pending` for `samples` samples in a row.

    `changed_at` is the time of the last change, in seconds by the caller's clock.
    """

    pressure: Pressure = Pressure.NORMAL
    pending: Pressure = Pressure.NORMAL
    samples: int = 0
    changed_at: float = float("-inf")


def step(
    state: PressureState, signals: Signals, thresholds: Thresholds, stability: Stability, now: float
) -> PressureState:
    """The state after one more sample. A sample without any signal says that all is well: unknown is not overloaded."""
    says = severity(signals, thresholds, state.pressure, stability.hysteresis)
    if says is state.pressure:
        return PressureState(state.pressure, says, 0, state.changed_at)
    rises = says > state.pressure
    same_direction = state.samples > 0 and (state.pending > state.pressure) is rises
    samples = state.samples + 1 if same_direction else 1
    # Of samples that rise to different heights the lowest counts, of those that fall the highest: all of them say so.
    pending = says if not same_direction else min(says, state.pending) if rises else max(says, state.pending)
    needed = stability.samples_to_rise if rises else stability.samples_to_fall
    cooldown = stability.rise_cooldown_seconds if rises else stability.fall_cooldown_seconds
    if samples >= needed and now - state.changed_at >= cooldown:
        return PressureState(pending, pending, 0, now)
    return PressureState(state.pressure, pending, samples, state.changed_at)


def severity(signals: Signals, thresholds: Thresholds, at: Pressure, hysteresis: float) -> Pressure:
    """What the most severe signal says; those that are missing say nothing. `at` is the pressure in force."""
    if _reached(signals, thresholds.critical, hysteresis if at >= Pressure.CRITICAL else 0.0):
        return Pressure.CRITICAL
    if _reached(signals, thresholds.elevated, hysteresis if at >= Pressure.ELEVATED else 0.0):
        return Pressure.ELEVATED
    return Pressure.NORMAL


def _reached(signals: Signals, limits: Limits, margin: float) -> bool:
    return (
        _at_least(signals.kv_cache_use, limits.kv_cache_use, margin)
        or _at_least(signals.sla_violation_rate, limits.sla_violation_rate, margin)
        or _at_least(signals.waiting_per_node, limits.waiting_per_node, margin * (limits.waiting_per_node or 0.0))
    )


def _at_least(value: float | None, limit: float | None, margin: float) -> bool:
    return value is not None and limit is not None and value >= limit - margin


def level_of(signals: Signals, thresholds: Thresholds) -> tuple[float, str]:
    """How far the foremost signal has gone from where its tier's pressure is elevated, 0, to where it is critical, 1,
    and which one that is. Without the first limit the way begins at 0, without the second it ends at the largest share,
    or at twice the first limit. A signal that is missing or has no limit does not count; 0 and no name without any."""
    foremost, name = 0.0, ""
    for each, largest in _LARGEST:
        value = getattr(signals, each)
        start, end = getattr(thresholds.elevated, each), getattr(thresholds.critical, each)
        if value is None or (start is None and end is None):
            continue
        start = 0.0 if start is None else start
        end = (largest or 2 * start) if end is None else end
        gone = (value - start) / (end - start) if end > start else float(value >= end)
        level = min(max(gone, 0.0), 1.0)
        if not name or level > foremost:
            foremost, name = level, each
    return foremost, name


_LARGEST = (("kv_cache_use", 1.0), ("waiting_per_node", None), ("sla_violation_rate", 1.0))
