"""How hard a pool was pressed, as another table of tiers has it: its signals were recorded with the pressure."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.model import Pressure, QosTier, TierPressure
from controlplane.policy.pressure import Signals, Thresholds, level_of, severity
from controlplane.policy.qos import QosRules

# Signals are recorded in whole steps: a hundredth of the cache, a tenth of a waiting request.
_HALF_STEPS = {"kv_cache_use": 0.005, "waiting_per_node": 0.05}


@dataclass(frozen=True, slots=True)
class Range:
    """The pressure that is assumed, and between which ones it lies."""

    likely: TierPressure
    least: TierPressure
    most: TierPressure


def unchanged(pressure: TierPressure) -> Range:
    return Range(pressure, pressure, pressure)


def unknown(tier: QosTier) -> Range:
    """Of a pool that nobody looked at. What is not known presses nobody."""
    calm = TierPressure(tier)
    return Range(calm, calm, TierPressure(tier, Pressure.CRITICAL, 1.0))


def rejudged(recorded: TierPressure, was: QosRules, now: QosRules, tier: QosTier) -> Range:
    """What a tier has to take by the table `now`, where `recorded` is by the table `was`.

    A state that is judged by the same limits stays as it was, with what it owes to the samples before. By others it
    is what the signals say by themselves, as if they had said so for long.
    """
    if alike(was, recorded.tier, now, tier):
        return unchanged(recorded)
    others = _thresholds(now, tier)
    low, likely, high = zip(*(_values(signal, recorded, tier) for signal in _ORDER_OF_SIGNALS), strict=True)
    return Range(*(_pressure(Signals(*values), others, tier) for values in (likely, low, high)))


def alike(was: QosRules, was_tier: QosTier, now: QosRules, tier: QosTier) -> bool:
    """Whether both tiers' states are the same ones."""
    before = (was_tier, _thresholds(was, was_tier), was.stability)
    return before == (tier, _thresholds(now, tier), now.stability)


def _thresholds(rules: QosRules, tier: QosTier) -> Thresholds:
    of_tier = rules.of(tier)
    return Thresholds(of_tier.elevated_at, of_tier.critical_at)


def _pressure(signals: Signals, thresholds: Thresholds, tier: QosTier) -> TierPressure:
    level, signal = level_of(signals, thresholds)
    state = severity(signals, thresholds, Pressure.NORMAL, 0.0)
    return TierPressure(tier, state, level, signal, signals.sla_violation_rate)


# The least that a signal may have been, what it is taken for, and the most; None is missing, which presses nobody.
_Values = tuple[float | None, float | None, float | None]
_ORDER_OF_SIGNALS = ("kv_cache_use", "waiting_per_node", "sla_violation_rate")


def _values(signal: str, recorded: TierPressure, tier: QosTier) -> _Values:
    if signal == "sla_violation_rate":
        return _rates(recorded, tier)
    value: float | None = getattr(recorded, signal)
    if value is None:
        return None, None, None
    return value - _HALF_STEPS[signal], value, value + _HALF_STEPS[signal]


def _rates(recorded: TierPressure, tier: QosTier) -> _Values:
    """A better tier's broken promises press the worse ones too, never the other way round."""
    rate = recorded.sla_violation_rate
    if recorded.tier is tier:
        return rate, rate, rate
    is_worse = _ORDER.index(tier) > _ORDER.index(recorded.tier)
    return (rate, rate, 1.0) if is_worse or rate is None else (None, rate, rate)


_ORDER = list(QosTier)
