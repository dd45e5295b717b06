"""Learns from load reports how fast nodes decode: quantized against full ones, and one hardware class against another.

A report tells the output tokens per second of an engine since the one before; with the sequences that ran meanwhile it
is a sample of tokens per sequence and second. That falls as more sequences run, and differs between engines and numbers
of GPUs, so samples are summed up by load band (1, 2-3, 4-7, 8-15 ... sequences), engine and number of GPUs, and only
equals are compared. Two sides are told apart by the weighted mean of the logarithms of their ratios, each band weighing
as much as the time that both were in it.

Not learned from: engines that serve several models, since they report one rate for all; nodes that do not say their
hardware class; reports during which the load moved to another band or that follow each other too far apart.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from controlplane.fleet import FRESH_SECONDS
from controlplane.model import FormatTier, NodeLoad, NodeSession, ServedModel
from controlplane.policy.formats import tier_of
from controlplane.policy.gain import Learned, LearnedGain, Speeds
from controlplane.policy.settings import GainRules, Policy

# A learned value is replaced when it has moved by more than this share: each change is sent to all filters and Envoys.
STEADY_WITHIN = 0.03
# What was learned stays in force until this share of what is enough is left, so that it does not come and go.
KEPT_ABOVE = 0.5
FORGOTTEN_BELOW_SECONDS = 0.001
SPEED_BOUNDS = (0.1, 10.0)


class _Kind(NamedTuple):
    """Nodes whose samples are summed up together."""

    model: str
    tier: FormatTier
    hardware_class: str


class _Stratum(NamedTuple):
    """Where nodes can be compared. `band` is the binary logarithm of the running sequences."""

    engine: str
    gpu_count: int
    band: int


@dataclass(slots=True)
class _Sums:
    """`seconds` of nodes in which `tokens` came out of so many `sequence_seconds`."""

    seconds: float = 0.0
    sequence_seconds: float = 0.0
    tokens: float = 0.0

    def scale(self, factor: float) -> None:
        self.seconds *= factor
        self.sequence_seconds *= factor
        self.tokens *= factor

    @property
    def rate(self) -> float:
        return self.tokens / self.sequence_seconds if self.sequence_seconds > 0 else 0.0


_Strata = Mapping[_Stratum, _Sums]


class ThroughputLearner:
    """`observe` takes the fleet's last load reports as often as one likes; each report counts once."""

    def __init__(self) -> None:
        self._sums: defaultdict[_Kind, dict[_Stratum, _Sums]] = defaultdict(dict)
        self._last: dict[str, NodeLoad] = {}  # by node session
        self._forgot_at: float | None = None
        self._learned = Learned()

    def observe(
        self, sessions: Iterable[NodeSession], loads: Mapping[str, NodeLoad], policy: Policy, now: float
    ) -> Learned:
        """What is learned by now. `loads` by node id; `now` in Unix seconds, as the reports' times."""
        self._forget(policy.gain.half_life_seconds, now)
        last: dict[str, NodeLoad] = {}
        for session in sessions:
            load = loads.get(session.spec.node_id)
            if load is None:
                continue
            before = self._last.get(session.session_id)
            last[session.session_id] = load
            if (
                before is not None
                and before is not load
                and session.spec.hardware_class
                and len(session.spec.models) == 1
            ):
                self._sample(session, session.spec.models[0], before, load, policy)
        self._last = last
        self._learned = Learned(self._gains(policy.gain), self._speeds(policy.gain))
        return self._learned

    def _sample(
        self, session: NodeSession, model: ServedModel, before: NodeLoad, load: NodeLoad, policy: Policy
    ) -> None:
        seconds = load.reported_at - before.reported_at
        steady = before.running > 0 and load.running > 0 and _band(before) == _band(load)
        if not (steady and 0 < seconds <= FRESH_SECONDS and load.healthy) or load.tokens_per_second is None:
            return
        spec = session.spec
        kind = _Kind(model.id, tier_of(model.format, policy.formats), spec.hardware_class)
        stratum = _Stratum(spec.engine, spec.gpu_count, _band(load))
        sums = self._sums[kind].setdefault(stratum, _Sums())
        sums.seconds += seconds
        sums.sequence_seconds += seconds * (before.running + load.running) / 2
        sums.tokens += seconds * load.tokens_per_second

    def _forget(self, half_life: float, now: float) -> None:
        elapsed = 0.0 if self._forgot_at is None else max(now - self._forgot_at, 0.0)
        self._forgot_at = now
        factor = math.exp2(-elapsed / half_life)
        for kind, strata in list(self._sums.items()):
            for stratum, sums in list(strata.items()):
                sums.scale(factor)
                if sums.seconds < FORGOTTEN_BELOW_SECONDS:
                    del strata[stratum]
            if not strata:
                del self._sums[kind]

    def _gains(self, rules: GainRules) -> Mapping[tuple[str, str], LearnedGain]:
        gains: dict[tuple[str, str], LearnedGain] = {}
        for kind, strata in self._sums.items():
            full = self._sums.get(_Kind(kind.model, FormatTier.FULL, kind.hardware_class))
            if kind.tier is FormatTier.QUANTIZED and full is not None:
                key = (kind.model, kind.hardware_class)
                known = self._learned.gains.get(key)
                gains[key] = _learned_gain(strata, full, known.value if known else None, rules)
        return MappingProxyType(gains)

    def _speeds(self, rules: GainRules) -> Mapping[tuple[str, FormatTier], Speeds]:
        """The class of which most is known is the reference; it changes only when it is gone."""
        classes: defaultdict[tuple[str, FormatTier], dict[str, _Strata]] = defaultdict(dict)
        for kind, strata in self._sums.items():
            classes[kind.model, kind.tier][kind.hardware_class] = strata
        speeds: dict[tuple[str, FormatTier], Speeds] = {}
        for key, by_class in classes.items():
            known = self._learned.speeds.get(key)
            if known is None or known.reference not in by_class:
                known = Speeds(max(sorted(by_class), key=lambda name: sum(s.seconds for s in by_class[name].values())))
            found: dict[str, float] = {}
            for name in sorted(by_class.keys() - {known.reference}):
                before = known.relative.get(name)
                value, seconds = _compare(by_class[name], by_class[known.reference])
                if value is not None and _is_enough(seconds, rules, before=before):
                    found[name] = _steady(_clamp(value, *SPEED_BOUNDS), before)
            if found:
                speeds[key] = Speeds(known.reference, MappingProxyType(found))
        return MappingProxyType(speeds)


def _band(load: NodeLoad) -> int:
    return load.running.bit_length()


def _learned_gain(quantized: _Strata, full: _Strata, before: float | None, rules: GainRules) -> LearnedGain:
    value, seconds = _compare(quantized, full)
    if value is None or not _is_enough(seconds, rules, before=before):
        return LearnedGain(None, seconds)
    return LearnedGain(_steady(_clamp(value, rules.least, rules.most), before), seconds)


def _compare(one: _Strata, other: _Strata) -> tuple[float | None, float]:
    """How many times faster the first decodes at comparable load, and the seconds in which both were comparable."""
    weight = total = 0.0
    for stratum, sums in one.items():
        against = other.get(stratum)
        if against is not None and sums.rate > 0 and against.rate > 0:
            seconds = min(sums.seconds, against.seconds)
            weight += seconds
            total += seconds * math.log(sums.rate / against.rate)
    return (math.exp(total / weight), weight) if weight > 0 else (None, 0.0)


def _is_enough(seconds: float, rules: GainRules, *, before: float | None) -> bool:
    return seconds >= rules.enough_seconds * (1.0 if before is None else KEPT_ABOVE)


def _steady(value: float, before: float | None) -> float:
    """The value to two digits behind the point, or the one before where it has hardly moved."""
    return before if before is not None and abs(value / before - 1.0) <= STEADY_WITHIN else round(value, 2)


def _clamp(value: float, least: float, most: float) -> float:
    return min(max(value, least), most)
