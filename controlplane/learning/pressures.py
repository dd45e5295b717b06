"""Follows how hard each pool, and the fleet, is pressed for each QoS tier, from load reports and missed targets.

A sample is taken once per interval of the clock, however often it looks, so that control planes that see the same
reports come to the same states. Remembers, but is told the time, and does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate, groupby

from controlplane.fleet import Fleet, Member
from controlplane.model import Override, Pool, QosTier, TierPressure
from controlplane.policy.pressure import PressureState, Signals, Thresholds, level_of, step
from controlplane.policy.qos import QosRules

# The shares of requests that missed their targets of late, by pool and QoS tier; of the whole fleet by FLEET. A tier of
# which too little is known is left out, or None.
Rates = Mapping[tuple[str, QosTier], float | None]

# No pool has this name.
FLEET = ""


@dataclass(frozen=True, slots=True)
class _Followed:
    """One pool's states as of its last sample, in the order of the tiers."""

    states: tuple[PressureState, ...]
    pressures: tuple[TierPressure, ...]
    missing: tuple[str, ...]


class PressureWatch:
    """`rates` gives the shares of violations; `interval` is between two samples, in seconds: that of load reports."""

    def __init__(self, rates: Callable[[], Rates], interval: float) -> None:
        self._rates = rates
        self._interval = interval
        self._sampled = -1
        self._followed: dict[str, _Followed] = {}

    def observe(self, fleet: Fleet, rules: QosRules, now: float) -> Fleet:
        """The fleet with the pressures of its pools and its own. `now` in Unix seconds."""
        sample = int(now // self._interval)
        fresh = sample != self._sampled
        self._sampled = sample
        rates = self._rates()
        members = {name: list(group) for name, group in groupby(fleet.members, key=lambda member: member.pool)}
        before, self._followed = self._followed, {}
        for pool in fleet.pools:
            followed = before.get(pool.name)
            if fresh or followed is None:
                override = fleet.overrides.get(pool.name)
                signals = _signals(pool, members.get(pool.name, ()))
                rate_of = [_rate(rates.get((pool.name, tier)), override) for tier in QosTier]
                followed = _next(followed, signals, rate_of, rules, now)
            self._followed[pool.name] = followed
        whole = before.get(FLEET)
        if fresh or whole is None:
            whole = _next(whole, *_fleet_signals(fleet.pools, members, rates), rules, now)
        self._followed[FLEET] = whole
        pools = tuple(
            replace(pool, pressures=followed.pressures, missing_signals=followed.missing)
            for pool in fleet.pools
            if (followed := self._followed[pool.name])
        )
        return replace(fleet, pools=pools, pressures=whole.pressures)


def _next(
    followed: _Followed | None, signals: Signals, rates: Sequence[float | None], rules: QosRules, now: float
) -> _Followed:
    """After one more sample. `rates` are the tiers' own, in their order."""
    states, pressures = [], []
    worst = list(accumulate(rates, _worse))
    for tier, rate, state in zip(QosTier, worst, followed.states if followed else _calm(), strict=True):
        of_tier = rules.of(tier)
        thresholds = Thresholds(of_tier.elevated_at, of_tier.critical_at)
        sample = replace(signals, sla_violation_rate=rate)
        state = step(state, sample, thresholds, rules.stability, now)  # noqa: PLW2901 - the same one, later
        level, signal = level_of(sample, thresholds)
        states.append(state)
        # Rounded, so that not each report of a little more changes every filter's table.
        kv_cache_use, waiting = _rounded(signals.kv_cache_use, 2), _rounded(signals.waiting_per_node, 1)
        pressures.append(TierPressure(tier, state.pressure, round(level, 2), signal, rate, kv_cache_use, waiting))
    missing = tuple(
        each.name
        for each in fields(Signals)
        if each.name != "sla_violation_rate" and getattr(signals, each.name) is None
    )
    return _Followed(tuple(states), tuple(pressures), missing)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _calm() -> tuple[PressureState, ...]:
    return tuple(PressureState() for _ in QosTier)


def _worse(one: float | None, other: float | None) -> float | None:
    known = [rate for rate in (one, other) if rate is not None]
    return max(known, default=None)


def _rate(measured: float | None, override: Override | None) -> float | None:
    if override is not None and override.sla_violation_rate is not None:
        return override.sla_violation_rate
    return measured


def _signals(pool: Pool, members: Iterable[Member]) -> Signals:
    """What nodes reported lately, or an operator says; the violation rate is left to the tiers."""
    waiting: float | None = None
    if pool.load is not None and "waiting" in pool.overridden:
        waiting = pool.load.waiting / max(1, pool.ready_nodes)
    else:
        counted = [m.load.waiting for m in members if m.ready and m.load is not None and not m.load.uncounted]
        waiting = sum(counted) / len(counted) if counted else None
    return Signals(pool.load.kv_cache_use if pool.load is not None else None, waiting)


def _fleet_signals(
    pools: Iterable[Pool], members: Mapping[str, Sequence[Member]], rates: Rates
) -> tuple[Signals, list[float | None]]:
    """Each pool counts by its ready nodes."""
    known = [(_signals(pool, members.get(pool.name, ())), pool.ready_nodes) for pool in pools]
    mean = Signals(
        _mean((found.kv_cache_use, nodes) for found, nodes in known),
        _mean((found.waiting_per_node, nodes) for found, nodes in known),
    )
    return mean, [rates.get((FLEET, tier)) for tier in QosTier]


def _mean(values: Iterable[tuple[float | None, int]]) -> float | None:
    known = [(value, nodes) for value, nodes in values if value is not None and nodes]
    nodes = sum(nodes for _, nodes in known)
    return sum(value * count for value, count in known) / nodes if nodes else None
