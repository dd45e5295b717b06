"""Sums up what would change: per QoS tier and tenant, from which action and pool to which, in requests and tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from controlplane.model import Action
from controlplane.policy.settings import Policy
from controlplane.policy.sla import Finished, Judgement, judge
from headrace_protos.headrace.v1 import decision_pb2
from planner.replay.replaying import Doubt, Replayed, Standing

NOWHERE = "(none)"

# What a recorded request's end says, for `policy.sla` to judge.
Ended = Callable[[decision_pb2.RecordedDecision], Finished]


@dataclass(slots=True)
class Group:
    """Some requests, those of a tier or a tenant.

    `actions` and `pools` count from which to which. Tokens: `tokens_used` as engines counted them, `tokens_saved` what
    answers had beyond their new caps, `tokens_rejected` those of answered requests that would be rejected,
    `tokens_admitted` what is expected of rejected ones that would pass. Violations: `violated` of the recorded
    `judged` requests by the targets that were in force; of these `violated_rejected` would be rejected now, and
    `violated_degraded` get a lower cap; `met_rejected` had kept their targets and would be rejected; `violated_now` by
    the other policy's targets, at the times that they took.
    """

    name: str
    requests: int = 0
    changed: int = 0
    standings: Counter[Standing] = field(default_factory=Counter)
    changed_for_certain: int = 0
    actions: Counter[tuple[Action, Action]] = field(default_factory=Counter)
    pools: Counter[tuple[str, str]] = field(default_factory=Counter)
    tokens_used: int = 0
    tokens_saved: int = 0
    tokens_rejected: int = 0
    tokens_admitted: int = 0
    judged: int = 0
    violated: int = 0
    violated_rejected: int = 0
    violated_degraded: int = 0
    met_rejected: int = 0
    violated_now: int = 0

    def add(self, each: Replayed, ended: Ended, was: Policy, now: Policy) -> None:
        self.requests += 1
        self.changed += each.changes
        self.standings[each.standing] += 1
        self.changed_for_certain += each.changes and each.standing is Standing.CERTAIN
        self.actions[each.was.action, each.now.action] += 1
        self.pools[each.was.pool or NOWHERE, each.now.pool or NOWHERE] += 1
        self._add_tokens(each)
        self._add_judgement(each, ended(each.recorded), was, now)

    def _add_tokens(self, each: Replayed) -> None:
        decision, outcome = each.recorded.decision, each.recorded.outcome
        used = outcome.prompt_tokens + outcome.completion_tokens
        self.tokens_used += used
        if each.now.action is Action.REJECT and each.was.action is not Action.REJECT:
            self.tokens_rejected += used
        elif each.was.action is Action.REJECT and each.now.action is not Action.REJECT:
            self.tokens_admitted += decision.budget.prompt_tokens + decision.budget.output_tokens
        elif each.changes and each.now.output_limit:
            most = each.now.output_limit * max(decision.choices, 1)
            self.tokens_saved += max(outcome.completion_tokens - most, 0)

    def _add_judgement(self, each: Replayed, finished: Finished, was: Policy, now: Policy) -> None:
        if each.was_tier is None or each.tier is None:
            return
        judgement = judge(finished, was.sla.of(each.was_tier)).judgement
        violated = judgement is Judgement.VIOLATED
        self.judged += violated or judgement is Judgement.MET
        self.violated += violated
        self.violated_now += judge(finished, now.sla.of(each.tier)).judgement is Judgement.VIOLATED
        if not each.changes:
            return
        if each.now.action is Action.REJECT:
            self.violated_rejected += violated
            self.met_rejected += judgement is Judgement.MET
        elif each.now.output_limit:
            self.violated_degraded += violated


@dataclass(frozen=True, slots=True)
class Summary:
    """`tiers` by the tier that requests would have, `tenants` those first of which most changes; `doubts` says of how
    many requests the answer hangs on what."""

    overall: Group
    tiers: tuple[Group, ...]
    tenants: tuple[Group, ...]
    doubts: tuple[tuple[Doubt, int], ...]
    blind: tuple[str, ...]
    policies_differ: bool


def summarise(
    replayed: Sequence[Replayed], ended: Ended, was: Policy, now: Policy, blind: Iterable[str] = ()
) -> Summary:
    """`blind` are the settings that differ and that no record tells of."""
    overall = Group("all")
    tiers: dict[str, Group] = {}
    tenants: dict[str, Group] = {}
    doubts: Counter[Doubt] = Counter()
    for each in replayed:
        tier = str(each.tier or NOWHERE)
        tenant = each.recorded.decision.tenant or NOWHERE
        groups = tiers.setdefault(tier, Group(tier)), tenants.setdefault(tenant, Group(tenant))
        for group in (overall, *groups):
            group.add(each, ended, was, now)
        doubts.update(each.doubts)
    return Summary(
        overall,
        tuple(tiers[name] for name in sorted(tiers, key=_place)),
        tuple(sorted(tenants.values(), key=lambda group: (-group.changed, -group.requests, group.name))),
        tuple(sorted(doubts.items(), key=lambda found: (-found[1], found[0]))),
        tuple(blind),
        was != now,
    )


def _place(tier: str) -> tuple[int, str]:
    order = ("guaranteed", "standard", "best_effort")
    return (order.index(tier) if tier in order else len(order)), tier
