"""What `decide` answers, asked once for each case that it can tell apart.

An answer depends on the kind of request (QoS tier and verdict), on which pools can hold it, on its session's pin, on
whether it has waited, on which pools have room for it now, and on what the routing table says of the fleet. There are
few of these, so each is asked for when it first comes up, with a request that stands for all of its kind, and found in
a table from then on.

The routing table's headroom is a real number. It has a say only where two pools are as good otherwise: where it could
turn the answer, the answer holds for this very headroom alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from controlplane.features import Category, Features
from controlplane.model import (
    Action,
    Ask,
    Decision,
    Endpoint,
    FormatTier,
    Pin,
    Pool,
    QosTier,
    Sensitivity,
    Verdict,
)
from controlplane.policy.candidate import Candidate
from controlplane.policy.decide import decide
from controlplane.policy.estimator import TENANT_GROUPS, Calibration, Calibrations, Estimate
from controlplane.policy.identity import tenant_of_name
from controlplane.policy.qos import Measure, Mode
from controlplane.policy.settings import Policy, Tenant
from controlplane.policy.table import RoutingTable, compile_table, with_pools
from planner.simulation.fleet import SimulatedFleet
from planner.simulation.state import HOLD, LOOK_CLOSER, NOBODY, REFUSE, SEND, WAIT

TIERS, VERDICTS, PINS = tuple(QosTier), tuple(Verdict), (None, *FormatTier)
KINDS = len(TIERS) * len(VERDICTS)


@dataclass(frozen=True, slots=True)
class Case:
    """All that an answer depends on, besides the fleet. `need` counts the contexts that pools have, from the smallest;
    one more is larger than all. `pin` is a place in PINS. `waited` is 0 for who has not waited, 2 for who has aged.
    `free` has a bit for each pool that the request may go to at once."""

    kind: int
    need: int
    pin: int
    waited: int
    free: int


@dataclass(frozen=True, slots=True)
class Answer:
    """`pool` is where to send it, `limit` the most output tokens, 0 for none; `waits` are pools, the best first. It
    `binds` a session that has no pin yet."""

    action: int
    pool: int = NOBODY
    limit: int = 0
    waits: tuple[int, ...] = ()
    binds: bool = False


class Routes:
    """Decisions for a fleet. Its states have numbers, by which its answers are asked for."""

    def __init__(self, fleet: SimulatedFleet) -> None:
        self._fleet = fleet
        self.policy = _with_tiers(fleet.policy)
        self.contexts = tuple(sorted({pool.engine.max_context for pool in fleet.pools}))
        # The workload has judged its requests already.
        self.empty_table = replace(compile_table("", (), self.policy, _COUNTED), classifier=_Judged())
        self._tables: list[RoutingTable] = []
        self._numbers: dict[object, int] = {}
        self._closer: dict[int, bool] = {}
        self._places = {pool.name(fleet.policy): place for place, pool in enumerate(fleet.pools)}
        self._may_fall_back = fleet.policy.qos.mode is Mode.ENABLED and any(
            fleet.policy.qos.of(tier).fallback_model for tier in QosTier
        )

    def number(self, pools: Sequence[Pool]) -> tuple[int, int]:
        """Of the fleet in this state, without and with its headroom."""
        table = with_pools(self.empty_table, pools)
        candidates = [candidate for pool in pools for candidate in table.pools_of(pool.model) if candidate.pool is pool]
        alike = tuple(self._told_apart_by(candidate) for candidate in candidates)
        exact = (*alike, *(candidate.headroom for candidate in candidates))
        return self._numbered(alike, table, exact=False), self._numbered(exact, table, exact=True)

    def answer(self, fleet: int, case: Case) -> Answer:
        decision = self.decide(fleet, case)
        if not self._closer[fleet] and self._headroom_counts(decision, case.free):
            return Answer(LOOK_CLOSER)
        if decision.pool is not None and decision.is_sent:
            place = self._places[decision.pool.name]
            return Answer(SEND, place, decision.output_limit or 0, binds=not decision.asked_model)
        if decision.action is Action.QUEUE:
            waits = tuple(self._places[name] for name in decision.waits_for)
            return Answer(HOLD if decision.held_seconds else WAIT, waits=waits)
        return Answer(REFUSE)

    def decide(self, fleet: int, case: Case) -> Decision:
        """Of the request that stands for all of its case."""
        aged = self.policy.qos.aged_after_seconds
        pin = PINS[case.pin]
        return decide(
            self.ask(case),
            self._tables[fleet],
            Pin(pin) if pin else None,
            lambda cluster: bool(case.free >> self._places[cluster] & 1),
            waited_seconds=(0.0, aged / 2, aged)[case.waited],
        )

    def ask(self, case: Case) -> Ask:
        tier, verdict = divmod(case.kind, len(VERDICTS))
        contexts = (*self.contexts, self.contexts[-1] + 1)
        return Ask(
            Endpoint.CHAT,
            self._fleet.model,
            last_user=VERDICTS[verdict],
            features=Features(token_ids=contexts[case.need] - _OUTPUT),
            tenant=tenant_of_name(TIERS[tier]),
            stream=True,
            session="session" if case.pin else None,
        )

    def _numbered(self, key: object, table: RoutingTable, *, exact: bool) -> int:
        if key not in self._numbers:
            number = self._numbers[key] = len(self._tables)
            self._tables.append(table)
            self._closer[number] = exact
        return self._numbers[key]

    def _told_apart_by(self, candidate: Candidate) -> object:
        """A candidate's own constants are left out."""
        pressures = []
        for found in candidate.pool.pressures:
            rules = self.policy.qos.of(found.tier)
            degrades = rules.measure(found.pressure) is Measure.DEGRADE
            pressures.append((found.pressure, found.level if degrades else None))
        return candidate.ready, candidate.overloaded, candidate.has_room, candidate.critical_for, tuple(pressures)

    def _headroom_counts(self, decision: Decision, free: int) -> bool:
        """Whether another headroom, from 0 to 1, could make another answer."""
        if self._may_fall_back:
            return True
        weight = self.policy.selection.weights.headroom
        found = [each for each in decision.alternatives if each.excluded_by is None]
        if decision.pool is not None:
            found = [each for each in found if free >> self._places[each.pool] & 1]
        totals = sorted(each.total - weight * dict(each.scores)["headroom"] for each in found)
        gaps = [high - low for low, high in pairwise(totals)]
        decisive = gaps[-1:] if decision.pool is not None else gaps
        return any(gap <= weight + 1e-9 for gap in decisive)


_OUTPUT = 1


class _Counted:
    """The workload says how many tokens a request is expected to need."""

    def estimate(self, features: Features, group: int) -> Estimate:
        del group
        return Estimate(features.token_ids, features.token_ids)


class _Judged:
    def classify(self, ask: Ask, expected_output_tokens: int) -> Sensitivity:
        del expected_output_tokens
        return Sensitivity(Verdict(ask.last_user), 0.0)


_COUNTED = Calibrations(
    priors={category: Calibration(_Counted(), outputs=(_OUTPUT,) * TENANT_GROUPS) for category in Category}
)


def _with_tiers(policy: Policy) -> Policy:
    """With a tenant of each QoS tier, who asks for nothing else."""
    tenants = replace(policy.tenants, known=tuple(Tenant(tier.value, qos_tier=tier) for tier in QosTier))
    return replace(policy, tenants=tenants)
