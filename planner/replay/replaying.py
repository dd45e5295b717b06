"""Decides recorded requests anew, by another policy, from what was recorded of them.

The same `decide` decides that the filter calls, about a request and pools rebuilt from the record. First it has to come
to the recorded decision by the policy that was in force: else the record holds too little, or that policy was another
one, and nothing is claimed of the request. Then it decides by the other policy; and again for each assumption that
stands in for what was not recorded, taken the other way. An answer is certain when all come to the same.

Load and lines are taken to stay as they were, whatever the other policy would have made of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum

from controlplane.messages import tier_pressure
from controlplane.model import Action, Decision, FormatTier, Pin, Pressure, QosTier, Reason, TierPressure, Verdict
from controlplane.policy.decide import decide
from controlplane.policy.qos import Measure, Mode
from controlplane.policy.settings import Policy
from controlplane.policy.table import RoutingTable, compile_table
from headrace_protos.headrace.v1 import decision_pb2
from planner.replay.asks import ask_of, calibrations_of, sensitivity_of
from planner.replay.looks import Assumptions, Look, Meeting, Memory, candidates_of
from planner.replay.verdicts import Recalled, fits, reweighed


class Standing(StrEnum):
    """What is known of the answer for one request."""

    CERTAIN = "certain"
    LIKELY = "likely"  # it hangs on what was not recorded
    UNKNOWN = "unknown"  # what was recorded does not follow from the policy that was in force
    OUTSIDE = "outside"  # answered before any pool was looked at, or for its tenant's rate


class Doubt(StrEnum):
    """What was not recorded, and would lead to another answer."""

    VERDICT = "verdict"
    PRESSURE = "pressure"
    LOAD = "load"
    GAIN = "gain"
    ARRIVAL = "arrival"


@dataclass(frozen=True, slots=True)
class Fate:
    """What is done with a request. `pool` is empty when none gets it; `output_limit` is 0 without a cap."""

    action: Action
    model: str
    pool: str = ""
    output_limit: int = 0


@dataclass(frozen=True, slots=True)
class Replayed:
    """One request: what was done with it, and what would be. Both are the same where nothing is known."""

    recorded: decision_pb2.RecordedDecision
    was: Fate
    now: Fate
    was_tier: QosTier | None
    tier: QosTier | None
    standing: Standing
    doubts: tuple[Doubt, ...] = ()

    @property
    def changes(self) -> bool:
        return self.was != self.now


_USUAL = Assumptions()


@dataclass(frozen=True, slots=True)
class _Reading:
    """One way to read the record."""

    pools: Assumptions = _USUAL
    verdict: Verdict | None = None
    came_under: TierPressure | None = None  # the pressure as it came, where it waited; None for that of its last turn


_LIKELY = _Reading()
_OTHERS = (
    (Doubt.PRESSURE, _LIKELY),
    (Doubt.PRESSURE, _Reading(Assumptions(pressed="least"))),
    (Doubt.PRESSURE, _Reading(Assumptions(pressed="most"))),
    (Doubt.LOAD, _Reading(Assumptions(loaded=True))),
    (Doubt.GAIN, _Reading(Assumptions(gains=False))),
    *((Doubt.VERDICT, _Reading(verdict=verdict)) for verdict in Verdict),
)
# The first one from which the record follows is taken.
_FIRST = (
    _LIKELY,
    _Reading(Assumptions(pressed="most")),
    _Reading(Assumptions(loaded=True)),
    _Reading(Assumptions(pressed="most", loaded=True)),
)
_WAITED_IN_VAIN = frozenset({Reason.WAIT_TOO_LONG, Reason.WOULD_WAIT_TOO_LONG, Reason.QUEUE_FULL})
# What is done with a request as it comes or never: who was let wait is not turned away.
_AT_ONCE = frozenset({Action.REJECT, Action.FALLBACK})


def replay(records: Sequence[decision_pb2.RecordedDecision], was: Policy, now: Policy) -> list[Replayed]:
    """In the order in which the requests began. `was` is the policy that was in force when they were decided."""
    ordered = sorted(records, key=lambda r: (r.time.ToMicroseconds(), r.recorded.ToMicroseconds(), r.request_id))
    replaying = _Replaying(was, now)
    replaying.memory.learn(ordered)
    return [replaying.replayed(recorded) for recorded in ordered]


class _Replaying:
    def __init__(self, was: Policy, now: Policy) -> None:
        self.memory = Memory()
        self._was = compile_table("was", (), was)
        self._now = compile_table("now", (), _sharing(was, now))
        # Of sessions whose first request would have gone to another format tier: to which one, None for nowhere.
        self._pins: dict[tuple[str, str, str], FormatTier | None] = {}

    def replayed(self, recorded: decision_pb2.RecordedDecision) -> Replayed:
        decision = recorded.decision
        done = fate_recorded(decision)
        known_tiers = {str(tier): tier for tier in QosTier}
        was_tier = known_tiers.get(decision.qos_tier)
        if not decision.alternatives or Reason.RATE_LIMITED in decision.reasons:
            tier = self._now.qos_tier_of(decision.tenant) if was_tier else None
            return Replayed(recorded, done, done, was_tier, tier, Standing.OUTSIDE)
        self.memory.note(decision)
        tier = self._now.qos_tier_of(decision.tenant)
        likely = next((reading for reading in _FIRST if self._follows(decision, done, reading)), None)
        if likely is None:
            return Replayed(recorded, done, done, was_tier, tier, Standing.UNKNOWN)
        new = self._fate(decision, self._now, done, likely)
        doubts: dict[Doubt, None] = {}
        for doubt, reading in self._others(decision):
            other = self._fate(decision, self._now, done, reading)
            differs = (other.action, other.model, other.pool) != (new.action, new.model, new.pool)
            if differs and self._follows(decision, done, reading):
                doubts[doubt] = None
        fates = self._fates_as_it_came(recorded, done, likely, new)
        if len(set(fates)) > 1:
            doubts[Doubt.ARRIVAL] = None
        new = fates[0]
        self._remember(decision, done, new)
        standing = Standing.LIKELY if doubts else Standing.CERTAIN
        return Replayed(recorded, done, new, was_tier, tier, standing, tuple(doubts))

    def _follows(self, decision: decision_pb2.Decision, done: Fate, reading: _Reading) -> bool:
        """Whether the record follows from the policy that was in force, read like this."""
        sensitivity = sensitivity_of(decision)
        if sensitivity is not None and not fits(sensitivity, self._was.policy.sensitivity):
            return False
        made = self._made(decision, self._was, reading)
        if _fate_made(made, done, decision) != done:
            return False
        told = decision.would_do
        would = made.would_do
        # Of who waited in vain it is told as of his last turn, whose time is not recorded.
        if would is None or not decision.HasField("would_do") or _WAITED_IN_VAIN.intersection(decision.reasons):
            return True
        return (would.action, would.pool, would.output_limit or 0) == (told.action, told.pool, told.output_limit)

    def _others(self, decision: decision_pb2.Decision) -> Iterator[tuple[Doubt, _Reading]]:
        was, now = self._was.policy, self._now.policy
        if was == now:
            return
        sensitivity = sensitivity_of(decision)
        unsure = (
            sensitivity is not None
            and was.sensitivity != now.sensitivity
            and not reweighed(sensitivity, was.sensitivity, now.sensitivity, 0).certain
        )
        matters = {
            Doubt.VERDICT: unsure,
            Doubt.PRESSURE: now.qos.mode is Mode.ENABLED,
        }
        look = self.memory.looks.get(decision.asked_model or decision.model)
        if look is not None and not decision.asked_model:
            matters[Doubt.LOAD] = any(None in {seen.has_room, seen.overloaded, seen.free} for seen in look.pools)
            matters[Doubt.GAIN] = any(seen.gain is None for seen in look.pools)
        for doubt, reading in _OTHERS:
            if matters.get(doubt, True):
                yield doubt, reading

    def _fates_as_it_came(
        self, recorded: decision_pb2.RecordedDecision, done: Fate, likely: _Reading, at_last: Fate
    ) -> Sequence[Fate]:
        """What becomes of a request that waited, by each pressure under which it may have come: it may have been turned
        away then, in the place of what is done with it `at_last`."""
        decision = recorded.decision
        fates = []
        for pressure in self.memory.pressures_as_it_came(recorded) if self._was.policy != self._now.policy else ():
            reading = replace(likely, came_under=pressure)
            if self._fate(decision, self._was, done, reading).action in _AT_ONCE:
                continue  # it was let wait, so that was not the pressure
            fate = self._fate(decision, self._now, done, reading)
            fates.append(fate if fate.action in _AT_ONCE else at_last)
        return fates or (at_last,)

    def _fate(self, decision: decision_pb2.Decision, table: RoutingTable, done: Fate, reading: _Reading) -> Fate:
        return _fate_made(self._made(decision, table, reading), done, decision)

    def _made(self, decision: decision_pb2.Decision, table: RoutingTable, reading: _Reading) -> Decision:
        """By the policy of `table`, as the record is read."""
        was, policy = self._was.policy, table.policy
        model = decision.asked_model or decision.model
        tier = table.qos_tier_of(decision.tenant)
        meeting = Meeting(was, policy, tier, self.memory, reading.pools)
        looks = self._looks(decision, policy, tier)
        if reading.came_under is not None:
            looks = {name: look.under(reading.came_under, decision.pressed_pool) for name, look in looks.items()}
        names = {name: candidates_of(look, meeting) for name, look in looks.items()}
        sensitivity = sensitivity_of(decision)
        rebuilt = replace(
            table,
            names=names,
            models=tuple(sorted(names)),
            classifier=table.classifier
            if sensitivity is None
            else Recalled(
                sensitivity, was.sensitivity, policy.sensitivity, None if table is self._was else reading.verdict
            ),
        )
        calibrations = calibrations_of(decision, self.memory.expected_output(decision))
        if calibrations is not None:
            rebuilt = replace(rebuilt, calibrations=calibrations)
        waited = decision.waited_seconds if reading.came_under is None else 0.0
        return decide(ask_of(decision, was), rebuilt, self._pin(decision, model, table), waited_seconds=waited)

    def _looks(self, decision: decision_pb2.Decision, policy: Policy, tier: QosTier) -> Mapping[str, Look]:
        """Of the model that was asked for, and of the one that may stand in for it."""
        looks = {}
        model = decision.asked_model or decision.model
        fallback = policy.qos.of(tier).fallback_model
        for name in (model, decision.model, fallback):
            if name and name in self.memory.looks:
                looks[name] = self.memory.looks[name]
        would_fall_back = Reason.FELL_BACK_UNDER_PRESSURE in decision.would_do.reasons
        if (decision.asked_model or would_fall_back) and model in looks:
            looks[model] = self._pressed_to_fall(looks[model], decision)
        if would_fall_back and fallback in looks:
            free = False if decision.would_do.action == Action.QUEUE else None
            looks[fallback] = looks[fallback].under(tier_pressure(decision.pressure), decision.pressed_pool, free=free)
        return looks

    def _pressed_to_fall(self, look: Look, decision: decision_pb2.Decision) -> Look:
        """The pools of a model that another one stood in for: what is known is that its tier's pressure did that."""
        tier = QosTier(decision.qos_tier)
        rules = self._was.policy.qos.of(tier)
        elevated = rules.when_elevated is Measure.FALLBACK
        pressure = TierPressure(tier, Pressure.ELEVATED if elevated else Pressure.CRITICAL, 0.5)
        return Look(tuple(replace(seen, pressure=pressure, critical=not elevated) for seen in look.pools), tier)

    def _pin(self, decision: decision_pb2.Decision, model: str, table: RoutingTable) -> Pin | None:
        """What its session kept to, or by the other policy would keep to."""
        key = (model, decision.tenant, decision.session)
        if table is self._now and key in self._pins:
            pinned = self._pins[key]
        else:
            pinned = FormatTier(decision.pinned) if decision.pinned else None
        return None if pinned is None else Pin(pinned)

    def _remember(self, decision: decision_pb2.Decision, done: Fate, new: Fate) -> None:
        """Where the session goes on."""
        if not decision.session or not decision.HasField("sensitivity"):
            return
        key = (decision.asked_model or decision.model, decision.tenant, decision.session)
        if key not in self._pins and (decision.pinned or _tier_of(done.pool) == _tier_of(new.pool)):
            return
        if new.action in {Action.PASS, Action.DEGRADE, Action.QUEUE}:
            self._pins[key] = _tier_of(new.pool)
        else:
            self._pins.setdefault(key, None)


def _sharing(was: Policy, now: Policy) -> Policy:
    """The policy `now`, with what is equal in `was` the very same values, which are compared at once."""
    words = was.sensitivity.words if was.sensitivity.words == now.sensitivity.words else now.sensitivity.words
    now = replace(now, sensitivity=replace(now.sensitivity, words=words))
    return replace(now, **{f.name: part for f in fields(was) if (part := getattr(was, f.name)) == getattr(now, f.name)})


def fate_recorded(decision: decision_pb2.Decision) -> Fate:
    """An unset decision, of a request that reached no filter, passes."""
    action = Action(decision.action) if decision.action else Action.PASS
    if action is Action.REJECT:
        return Fate(action, "")
    return Fate(action, decision.model, decision.pool, decision.output_limit)


def _fate_made(made: Decision, done: Fate, decision: decision_pb2.Decision) -> Fate:
    """Of a request that waits the record tells what came of it, since lines are taken to stay as they were."""
    if made.action is Action.REJECT:
        return Fate(Action.REJECT, "")
    if made.action is Action.QUEUE:
        if _WAITED_IN_VAIN.intersection(decision.reasons):
            return done
        pool = made.waits_for[0].partition("@")[0] if made.waits_for else ""
        return Fate(Action.QUEUE, made.model, pool, made.output_limit or 0)
    return Fate(made.action, made.model, made.pool.name if made.pool else "", made.output_limit or 0)


def _tier_of(pool: str) -> FormatTier | None:
    return FormatTier(pool.partition("=")[0].rsplit("/", 3)[1]) if pool else None
