"""Which of a model's pools a request gets, by what a choice depends on and nothing else: equal questions about the same
pools have equal answers, so that an `Offer` remembers them (docs/decisions/0022-remembered-choices.md).

A routing table stays as it is for about a second, and in that time most requests ask what others have asked before.
What differs from request to request is rounded to what makes a difference here: its tokens to the contexts that hold
them, the beginning of its session to the registrations before it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import filterfalse

from msgspec import Struct, structs

from controlplane.model import (
    Action,
    Alternative,
    Contexts,
    FormatTier,
    Pin,
    Pool,
    QosTier,
    Reason,
    Refusal,
    Verdict,
)
from controlplane.policy.candidate import Candidate
from controlplane.policy.govern import Standing, standing_of
from controlplane.policy.preference import as_met, disregarded, stated_preference
from controlplane.policy.refusals import no_ready_node, tier_quiescing
from controlplane.policy.select import (
    QUIESCING,
    Need,
    Selection,
    contexts_around,
    need_of,
    need_of_preference,
    need_of_session,
    need_of_unclassified,
    of_the_qos_tier,
    select,
)
from controlplane.policy.settings import LostTier, Policy

# Questions that are remembered of one model's pools: far more than are asked while all of these have room.
_REMEMBERED = 256

# So many of the pools that were looked at go into the access log, the best ones.
MOST_SHORTLISTED = 16

# Whether a request may go to the cluster of this name now, without waiting.
Free = Callable[[str], bool]


class Question(Struct, frozen=True, gc=False):
    """What is asked about some pools.

    `verdict` is None for a request that is not classified, which any of them can serve. A pool must hold `tokens` in
    one sequence. `pinned` is the tier that its session keeps to, since `since`. `asks_for` and `asks_unknown` are the
    client's preference as in Ask, `tenant_prefers` is its tenant's. `tier` is None where QoS tiers are not governed.
    `full` are those clusters that it could go to where it would have to wait.
    """

    verdict: Verdict | None
    tokens: int = 0
    pinned: FormatTier | None = None
    since: float = 0.0
    asks_for: FormatTier | None = None
    asks_unknown: bool = False
    tenant_prefers: FormatTier | None = None
    tier: QosTier | None = None
    full: tuple[str, ...] = ()


class Choice(Struct, frozen=True, gc=False):
    """What is done with a request that no pressure stops: it passes to `pool`, waits for some clusters, the best first,
    or is refused. `reasons` are those of the action, `because` just those of the choice of pools; `shortlist` as in
    Decision.

    `pressed` is the pool whose pressure counts for it, the best one, in `pressed_cluster`; `standing` is how that
    stands to the question's QoS tier, None where there is none.
    """

    action: Action
    reasons: tuple[Reason, ...]
    because: tuple[Reason, ...]
    alternatives: tuple[Alternative, ...]
    shortlist: tuple[Alternative, ...]
    pool: Pool | None = None
    cluster: str = ""
    waits_for: tuple[str, ...] = ()
    refusal: Refusal | None = None
    contexts: Contexts | None = None
    pressed: Pool | None = None
    pressed_cluster: str = ""
    standing: Standing | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """The pools that there are for a request to one model, made ready for choosing; never none.

    `contexts` are their contexts in tokens, `registrations` when the last of the nodes that quiesce registered, by
    pool; each once, the smallest first. `largest_ready` is the largest context of those with ready nodes, None without.
    `clusters` are those that a request could go to, by the tier that its session goes on in. `choice` answers questions
    whose tokens and time are rounded, and remembers the last ones.
    """

    candidates: tuple[Candidate, ...]
    model: str
    contexts: tuple[int, ...]
    registrations: tuple[float, ...]
    largest_ready: int | None
    clusters: Mapping[FormatTier | None, tuple[str, ...]]
    choice: Callable[[Question], Choice]

    def rounded_tokens(self, tokens: int) -> int:
        """Of equal effect: the smallest context that holds so many, or more than any does."""
        place = bisect_left(self.contexts, tokens)
        return self.contexts[place] if place < len(self.contexts) else self.contexts[-1] + 1

    def rounded_time(self, since: float) -> float:
        """Of equal effect: the last registration that is not after it, or 0."""
        place = bisect_right(self.registrations, since)
        return self.registrations[place - 1] if place else 0.0

    def full(self, free: Free, pinned: FormatTier | None) -> tuple[str, ...]:
        """As in Question, of a session that is pinned like this."""
        return tuple(filterfalse(free, self.clusters[pinned]))


def offer_of(candidates: tuple[Candidate, ...], policy: Policy) -> Offer:
    pools = [candidate.pool for candidate in candidates]
    return Offer(
        candidates=candidates,
        model=pools[0].model,
        contexts=tuple(sorted({pool.max_context for pool in pools})),
        registrations=tuple(sorted({pool.quiesces_since for pool in pools if pool.quiesces_since > 0})),
        largest_ready=max((c.pool.max_context for c in candidates if c.ready), default=None),
        clusters={pinned: tuple(_cluster(pool, pinned) for pool in pools) for pinned in (None, *FormatTier)},
        choice=lru_cache(_REMEMBERED)(partial(choose, candidates, policy)),
    )


def choose(candidates: tuple[Candidate, ...], policy: Policy, question: Question) -> Choice:
    """The answer to a question about these pools."""
    repinned = _may_change_tier(candidates, policy, question)
    kept_in = None if repinned else question.pinned
    need_from = partial(_need, question, kept_in, policy)
    if question.tier is None:
        need = need_from(candidates)
    else:
        need = of_the_qos_tier(need_from, candidates, question.tier, policy.qos.of(question.tier).spot)
    if question.full:
        full = frozenset(question.full)
        candidates = tuple(
            replace(c, free=False) if _cluster(c.pool, question.pinned) in full else c for c in candidates
        )
    selection = select(need, candidates, policy.selection.weights)
    pool, waits_for = selection.pool, selection.waits_for
    because = _because(question, kept_in, policy, selection)
    refusal = None
    if pool is not None:
        action, reasons = Action.PASS, because
    elif waits_for:
        action, reasons = Action.QUEUE, (*because, Reason.WAITING_FOR_ROOM)
    else:
        reason, refusal = _refusal(need, candidates, policy, selection)
        action, reasons = Action.REJECT, (reason, *because)
    pressed = pool or (waits_for[0] if waits_for else None)
    return Choice(
        action=action,
        reasons=reasons,
        because=because,
        alternatives=selection.alternatives,
        shortlist=_shortlist(selection.alternatives),
        pool=pool,
        cluster=_cluster(pool, question.pinned) if pool is not None else "",
        waits_for=tuple(_cluster(each, question.pinned) for each in waits_for),
        refusal=refusal,
        contexts=contexts_around(selection, candidates) if question.verdict is not None else None,
        pressed=pressed,
        pressed_cluster=_cluster(pressed, question.pinned) if pressed is not None else "",
        standing=standing_of(pressed, question.tier, policy.qos) if pressed and question.tier else None,
    )


def _shortlist(alternatives: tuple[Alternative, ...]) -> tuple[Alternative, ...]:
    """All of them where they are few."""
    if len(alternatives) <= MOST_SHORTLISTED:
        return alternatives
    return tuple(sorted(alternatives, key=lambda found: -found.total)[:MOST_SHORTLISTED])


def _may_change_tier(candidates: tuple[Candidate, ...], policy: Policy, question: Question) -> bool:
    """Whether a session is not kept in its tier since that can serve it no more: it is gone, or the session has
    outgrown it and fits elsewhere."""
    if question.pinned is None or policy.sessions.lost_tier is not LostTier.REPIN:
        return False
    holding = [c for c in candidates if c.pool.max_context >= question.tokens]
    if any(c.tier is question.pinned for c in holding):
        return False
    return all(c.tier is not question.pinned for c in candidates) or any(c.ready for c in holding)


def _need(question: Question, kept_in: FormatTier | None, policy: Policy, candidates: tuple[Candidate, ...]) -> Need:
    """What is needed of these of the pools."""
    if question.verdict is None:
        return need_of_unclassified(candidates)
    if kept_in is not None:
        return need_of_session(Pin(kept_in, question.since), question.tokens, candidates)
    preference = stated_preference(question.asks_for, question.tenant_prefers, policy.tenants.client_may_prefer)
    if preference is not None:
        need = need_of_preference(*preference, question.tokens, candidates, policy.selection)
    else:
        need = need_of(question.verdict, question.tokens, candidates, policy.selection)
    if question.pinned is None:
        return need
    # Free to go to either tier, it may get the lost one all the same, and be refused by an engine that it knows.
    return structs.replace(need, goes_on_in=question.pinned, since=question.since)


def _because(
    question: Question, kept_in: FormatTier | None, policy: Policy, selection: Selection
) -> tuple[Reason, ...]:
    """Why these pools: what selection says, and what became of the session's tier and of preferences."""
    repinned = kept_in is not question.pinned
    may_prefer = policy.tenants.client_may_prefer
    more = (
        *((Reason.TIER_UNAVAILABLE,) if repinned else ()),
        *disregarded(question.asks_for, may_prefer, kept_in, unknown=question.asks_unknown),
    )
    reasons = (*selection.reasons, *(reason for reason in more if reason not in selection.reasons))
    return as_met(reasons, question.asks_for, selection.pool)


def _refusal(
    need: Need, candidates: tuple[Candidate, ...], policy: Policy, selection: Selection
) -> tuple[Reason, Refusal]:
    """Where no pool could serve, not even later."""
    model = candidates[0].pool.model
    quiescing = {found.pool for found in selection.alternatives if found.excluded_by == QUIESCING}
    if quiescing:  # waiting helps for sure, and for how long is known
        settles_in = min(c.pool.settles_in for c in candidates if c.pool.name in quiescing)
        return Reason.TIER_QUIESCING, tier_quiescing(model, settles_in)
    return Reason.NO_READY_NODE, no_ready_node(model, need.tier, policy.selection.retry_after_seconds)


def _cluster(pool: Pool, pinned: FormatTier | None) -> str:
    """Where a request goes whose session, pinned to this tier, may have been served by nodes before they registered
    anew."""
    if pool.tier is not pinned:
        return pool.open_cluster
    return pool.name if pool.settled_nodes or not pool.ready_nodes else pool.since_cluster
