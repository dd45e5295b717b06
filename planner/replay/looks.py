"""What a recorded decision tells of the pools that were looked at, and what the records together tell of each pool.

A pool's marks are recorded, not its load. What they leave open is None here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf, nextafter
from typing import NamedTuple

from controlplane.messages import tier_pressure
from controlplane.model import CapacityType, FormatTier, Pool, Pressure, QosTier, Reason, TierPressure
from controlplane.policy.budget import sequence_tokens
from controlplane.policy.candidate import Candidate, candidate_of
from controlplane.policy.priors import PRIOR_OUTPUT_TOKENS
from controlplane.policy.qos import QosRules
from controlplane.policy.select import CONTEXT_TOO_SMALL, CRITICAL_PRESSURE, QUIESCING
from controlplane.policy.settings import Policy
from headrace_protos.headrace.v1 import decision_pb2
from planner.replay import pressures
from planner.replay.asks import budget_of, outputs_told

_LARGEST_CONTEXT = 2**31
_NO_READY_NODE = "no_ready_node"
# Of a pool that nobody looked at: what one with room may have.
_USUAL_HEADROOM = 0.9
# States are sampled once a second, and change by two samples.
_NEAR_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class SeenPool:
    """One pool as one decision saw it. `critical` says whether its pressure was, for the tier of the request;
    `gains_too_little` that no quantized pool was worth leaving the full tier for."""

    pool: Pool
    ready: bool
    free: bool | None
    has_room: bool | None
    overloaded: bool | None
    headroom: float | None
    fidelity: float | None
    gain: float | None
    gains_too_little: bool
    pressure: TierPressure | None
    critical: bool | None


@dataclass(frozen=True, slots=True)
class Look:
    """All pools of one model as one decision saw them, in the order of their names."""

    pools: tuple[SeenPool, ...]
    tier: QosTier

    def under(self, pressure: TierPressure, pool: str, *, free: bool | None = None) -> Look:
        """With that pressure in one of its pools, which is free or not."""
        critical = pressure.pressure is Pressure.CRITICAL
        pools = (
            replace(seen, pressure=pressure, critical=critical, free=free) if seen.pool.name == pool else seen
            for seen in self.pools
        )
        return Look(tuple(pools), self.tier)


class _Met(NamedTuple):
    """In Unix seconds."""

    at: float
    pressure: TierPressure


def _began(recorded: decision_pb2.RecordedDecision) -> float:
    return recorded.time.ToMicroseconds() / 1e6


@dataclass(slots=True)
class Memory:
    """What the records together tell: of pools the largest context, gain and fidelity; of models the last look,
    by model and category the tokens that answers without a cap were expected to have, and by pool and QoS tier which
    pressure was met when, in order."""

    contexts: dict[str, int] = field(default_factory=dict)
    gains: dict[str, float] = field(default_factory=dict)
    fidelities: dict[str, float] = field(default_factory=dict)
    looks: dict[str, Look] = field(default_factory=dict)
    outputs: dict[tuple[str, str], int] = field(default_factory=dict)
    pressures: dict[tuple[str, str], list[_Met]] = field(default_factory=dict)

    def learn(self, records: Iterable[decision_pb2.RecordedDecision]) -> None:
        """All of them, before the first one is decided anew."""
        for recorded in records:
            decision = recorded.decision
            if decision.pool and decision.HasField("contexts"):
                self.contexts[decision.pool] = decision.contexts.chosen
            for alternative in decision.alternatives:
                if alternative.excluded_by:
                    continue
                self.fidelities[alternative.pool] = alternative.scores.get("fidelity", 0.0)
                if _prefers_quantized(decision):
                    self.gains[alternative.pool] = 1.0 + alternative.scores.get("gain", 0.0)
            if decision.HasField("pressure"):
                met = _Met(_began(recorded) + decision.waited_seconds, tier_pressure(decision.pressure))
                self.pressures.setdefault((decision.pressed_pool, decision.pressure.qos_tier), []).append(met)
            if (output := outputs_told(decision)) is not None:
                self.outputs[decision.model, decision.budget.category] = output
            if decision.alternatives and decision.model not in self.looks:
                self.note(decision)
        for found in self.pressures.values():
            found.sort(key=lambda met: met.at)

    def pressures_as_it_came(self, recorded: decision_pb2.RecordedDecision) -> tuple[TierPressure, ...]:
        """Of the pool that a request waited for: what others of its tier met shortly before it came, and shortly after.
        Where nobody did, the one of its last turn, and none at all. Empty for one that did not wait."""
        decision = recorded.decision
        if not decision.waited_seconds or not decision.HasField("pressure") or decision.asked_model:
            return ()
        met = self.pressures[decision.pressed_pool, decision.pressure.qos_tier]
        came = _began(recorded)
        after = bisect_left(met, came, key=lambda each: each.at)
        near = [each.pressure for each in met[max(after - 1, 0) : after + 1] if abs(each.at - came) <= _NEAR_SECONDS]
        if len(near) == 2:
            return tuple(near)
        last = tier_pressure(decision.pressure)
        return (*near, last, TierPressure(last.tier))

    def expected_output(self, decision: decision_pb2.Decision) -> int:
        """Of a request whose record has a cap in the place of what its answer was expected to have."""
        learned = self.outputs.get((decision.model, decision.budget.category), PRIOR_OUTPUT_TOKENS)
        return max(learned, decision.budget.output_tokens // max(decision.choices, 1))

    def note(self, decision: decision_pb2.Decision) -> None:
        self.looks[decision.model] = look_at(decision, self.contexts)


def look_at(decision: decision_pb2.Decision, contexts: Mapping[str, int]) -> Look:
    tier = QosTier(decision.qos_tier or QosTier.STANDARD)
    taken = decision.pool or decision.pressed_pool
    best = next(((n, a.total) for n, a in enumerate(decision.alternatives) if a.pool == taken), None)
    waits = {name.partition("@")[0] for name in decision.waits_for}
    some_were_left = any(a.excluded_by == CRITICAL_PRESSURE for a in decision.alternatives)
    pressed = tier_pressure(decision.pressure) if decision.HasField("pressure") else None
    pools = []
    for number, alternative in enumerate(decision.alternatives):
        pool = _pool(alternative, decision, contexts)
        serves = not alternative.excluded_by
        room = alternative.scores.get("room", 0.0)
        preferred = alternative.scores.get("context") == 1.0 and alternative.scores.get("tier") == 1.0
        is_pressed = pressed is not None and alternative.pool == decision.pressed_pool
        seen = SeenPool(
            pool=pool,
            ready=alternative.excluded_by != _NO_READY_NODE,
            free=_was_free(alternative, (number, alternative.total), best, waits),
            has_room=None if not serves or (preferred and room) else room == 1.0,
            overloaded=None if not serves or (not preferred and not room) else room == 0.0,
            headroom=alternative.scores["headroom"] if serves and "headroom" in alternative.scores else None,
            fidelity=alternative.scores["fidelity"] if serves and "fidelity" in alternative.scores else None,
            gain=1.0 + alternative.scores.get("gain", 0.0) if serves and _prefers_quantized(decision) else None,
            gains_too_little=Reason.TOLERANT_GAINS_TOO_LITTLE in decision.reasons,
            pressure=pressed if is_pressed else None,
            critical=_was_critical(alternative, decision, pressed, left=some_were_left),
        )
        pools.append(seen)
    return Look(tuple(pools), tier)


def _was_free(
    alternative: decision_pb2.Alternative,
    found: tuple[int, float],
    best: tuple[int, float] | None,
    waits: Collection[str],
) -> bool | None:
    """`found` and `best` are the places and totals of a pool and of the one taken: the best of those that were free, of
    equals the first one. Only of one that is free the mark for room is more than 0."""
    if alternative.excluded_by:
        return None
    if alternative.pool in waits:
        return False
    if alternative.scores.get("room") or found == best:
        return True
    if best is None:
        return None
    (number, total), (place, taken) = found, best
    return False if total > taken or (total == taken and number < place) else None


def _prefers_quantized(decision: decision_pb2.Decision) -> bool:
    """Only then the gain is among the marks."""
    return decision.pinned == FormatTier.QUANTIZED or Reason.TOLERANT_PREFERS_QUANTIZED in decision.reasons


def _was_critical(
    alternative: decision_pb2.Alternative,
    decision: decision_pb2.Decision,
    pressed: TierPressure | None,
    *,
    left: bool,
) -> bool | None:
    """A pool is left while it is critical and another one is not; so where none was left, all that serve are alike."""
    if alternative.excluded_by == CRITICAL_PRESSURE:
        return True
    if alternative.excluded_by or pressed is None or decision.HasField("would_do"):
        return None
    return False if left else pressed.pressure is Pressure.CRITICAL


def _pool(alternative: decision_pb2.Alternative, decision: decision_pb2.Decision, contexts: Mapping[str, int]) -> Pool:
    """Of a pool's name, as `fleet` makes it."""
    name, _, served = alternative.pool.partition("=")
    model, tier, context_class, capacity = name.rsplit("/", 3)
    ready = alternative.excluded_by != _NO_READY_NODE
    return Pool(
        name=alternative.pool,
        model=model,
        tier=FormatTier(tier),
        context_class=context_class,
        capacity_type=CapacityType(capacity),
        max_context=_max_context(alternative, decision, contexts),
        max_sequences=1,
        ready_nodes=int(ready),
        nodes=1,
        served_name=served or model,
        overridden=tuple(alternative.overridden),
        quiescing_nodes=int(alternative.excluded_by == QUIESCING),
        quiesces_since=float(alternative.excluded_by == QUIESCING),
    )


def _max_context(
    alternative: decision_pb2.Alternative, decision: decision_pb2.Decision, contexts: Mapping[str, int]
) -> int:
    """As it was seen when the pool was chosen; else what agrees with its being taken or left out."""
    known = contexts.get(alternative.pool)
    budget = budget_of(decision)
    if budget is None:
        return known or _LARGEST_CONTEXT
    tokens = sequence_tokens(budget, max(decision.choices, 1))
    taken = not alternative.excluded_by
    if Reason.EXCEEDS_EVERY_CONTEXT in decision.reasons:
        largest = decision.contexts.chosen or max(tokens - 1, 2)
        return largest if taken else min(known or largest, largest - 1)
    if alternative.excluded_by == CONTEXT_TOO_SMALL or (alternative.excluded_by and _lost(alternative, decision)):
        return known if known is not None and known < tokens else max(tokens - 1, 1)
    if known is not None and (known >= tokens or not taken):
        return known
    return _LARGEST_CONTEXT if taken else max(decision.contexts.chosen, tokens)


def _lost(alternative: decision_pb2.Alternative, decision: decision_pb2.Decision) -> bool:
    """Whether the request's session was not kept in its format tier, of which this pool is, since that was lost."""
    kept = not decision.pinned or Reason.SESSION_PINNED in decision.reasons
    return not kept and _tier(alternative.pool) == decision.pinned


def _tier(pool: str) -> str:
    return pool.partition("=")[0].rsplit("/", 3)[1]


@dataclass(frozen=True, slots=True)
class Assumptions:
    """How what was not recorded is taken. By default: nobody is pressed, loaded or gains other than is known."""

    pressed: str = "likely"  # or `least`, `most`
    loaded: bool = False
    gains: bool = True


@dataclass(frozen=True, slots=True)
class Meeting:
    """Who meets the pools: a request of this QoS tier, under `policy`; they were seen under `was`."""

    was: Policy
    policy: Policy
    tier: QosTier
    memory: Memory
    assumed: Assumptions


def candidates_of(look: Look, meeting: Meeting) -> tuple[Candidate, ...]:
    return tuple(_candidate(seen, look.tier, meeting) for seen in look.pools)


def _candidate(seen: SeenPool, seen_for: QosTier, meeting: Meeting) -> Candidate:
    was, policy, memory, assumed = meeting.was, meeting.policy, meeting.memory, meeting.assumed
    found = _range(seen, seen_for, was.qos, policy.qos, meeting.tier)
    pool = replace(seen.pool, gain=_gain(seen, meeting), pressures=(getattr(found, assumed.pressed),))
    usual = 0.0 if assumed.loaded else _USUAL_HEADROOM
    return replace(
        candidate_of(pool, policy),
        ready=seen.ready,
        has_room=not assumed.loaded if seen.has_room is None else seen.has_room,
        overloaded=assumed.loaded if seen.overloaded is None else seen.overloaded,
        headroom=usual if seen.headroom is None else seen.headroom,
        fidelity=memory.fidelities.get(pool.name, 0.0) if seen.fidelity is None else seen.fidelity,
        free=not assumed.loaded if seen.free is None else seen.free,
    )


def _gain(seen: SeenPool, meeting: Meeting) -> float:
    known = seen.gain or meeting.memory.gains.get(seen.pool.name)
    if seen.pool.tier is FormatTier.FULL or not meeting.assumed.gains:
        return seen.gain or 1.0
    if seen.gains_too_little:
        return nextafter(min(known or inf, meeting.was.gain.worthwhile), 0.0)
    return known or meeting.was.gain.default


def _range(seen: SeenPool, seen_for: QosTier, was: QosRules, now: QosRules, tier: QosTier) -> pressures.Range:
    if seen.pressure is not None:
        return pressures.rejudged(seen.pressure, was, now, tier)
    if seen.critical is None or not pressures.alike(was, seen_for, now, tier):
        return pressures.unknown(tier)
    if seen.critical:
        return pressures.unchanged(TierPressure(tier, Pressure.CRITICAL, 1.0))
    calm = TierPressure(tier)
    return pressures.Range(calm, calm, TierPressure(tier, Pressure.ELEVATED, 1.0))
