"""Chooses a pool: filters take out what cannot serve, scores compare the rest, the best one is picked.

What a request needs is worked out first (`Need`), so that each filter and score is one line. To add one, write a
function and add its name to a tuple.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, structs

from controlplane.model import Alternative, Contexts, FormatTier, Pin, Pool, QosTier, Reason, Verdict
from controlplane.policy.candidate import Candidate
from controlplane.policy.qos import SpotUse
from controlplane.policy.settings import ScoreWeights, SelectionRules


class Need(Struct, frozen=True, gc=False):
    """What a request needs of a pool.

    `tier` is required, `preferred_tier` only preferred; None is no matter. Where `must_pay`, the preference is for
    those of its pools that gain enough. A pool must hold `tokens` in one sequence. `preferred_rank` is the smallest
    context class that serves. `reasons` say why. `goes_on_in` is the tier that the session of a later request is pinned
    to, since `since`: there it is for nodes that have settled, or that it was new to.
    `qos` is what its QoS tier asks for where tiers are governed.
    """

    tier: FormatTier | None
    preferred_tier: FormatTier | None
    tokens: int
    preferred_rank: int
    reasons: tuple[Reason, ...]
    must_pay: bool = False
    goes_on_in: FormatTier | None = None
    since: float = 0.0
    qos: QosNeed | None = None

    def goes_on(self, pool: Pool) -> bool:
        """Whether its session may have been served by the pool's nodes before they registered anew."""
        return pool.tier is self.goes_on_in


class QosNeed(Struct, frozen=True, gc=False):
    """Which capacity a QoS tier's request is for, and whether it leaves pools where its tier's pressure is critical."""

    tier: QosTier
    on_demand_only: bool = False
    prefers_spot: bool = False
    leaves_critical: bool = False


class Selection(Struct, frozen=True, gc=False):
    """The chosen pool, None when there is none, with the reasons, and every pool that was looked at.

    Where no pool that could serve has room now, `waits_for` are these, the best first.
    """

    pool: Pool | None
    reasons: tuple[Reason, ...]
    alternatives: tuple[Alternative, ...]
    waits_for: tuple[Pool, ...] = ()


# --- filters: whether a pool can serve -----------------------------------------------------------------------------


def is_ready(_: Need, candidate: Candidate) -> bool:
    return candidate.ready


def has_the_tier(need: Need, candidate: Candidate) -> bool:
    return need.tier is None or candidate.tier is need.tier


def holds_the_request(need: Need, candidate: Candidate) -> bool:
    return candidate.pool.max_context >= need.tokens


def is_settled(need: Need, candidate: Candidate) -> bool:
    pool = candidate.pool
    return not need.goes_on(pool) or pool.settled_nodes > 0 or need.since >= pool.quiesces_since > 0


def is_for_the_qos_tier(need: Need, candidate: Candidate) -> bool:
    return need.qos is None or not need.qos.on_demand_only or candidate.on_demand


def is_not_pressed(need: Need, candidate: Candidate) -> bool:
    """Pressure evicts, from spot nodes as from others, as long as there is another pool to go to."""
    return need.qos is None or not need.qos.leaves_critical or need.qos.tier not in candidate.critical_for


CONTEXT_TOO_SMALL = "context_too_small"
QUIESCING = "quiescing"
SPOT = "spot"
CRITICAL_PRESSURE = "critical_pressure"
FILTERS: tuple[tuple[str, Callable[[Need, Candidate], bool]], ...] = (
    ("no_ready_node", is_ready),
    ("other_tier", has_the_tier),
    (CONTEXT_TOO_SMALL, holds_the_request),
    (QUIESCING, is_settled),
    (SPOT, is_for_the_qos_tier),
    (CRITICAL_PRESSURE, is_not_pressed),
)


# --- scores: 0 to 1, how well a pool serves -----------------------------------------------------------------------


def spot(need: Need, candidate: Candidate) -> float:
    return 1.0 if need.qos is not None and need.qos.prefers_spot and not candidate.on_demand else 0.0


def room(need: Need, candidate: Candidate) -> float:
    """1 where the request need not wait. The preferred pool is left only when overloaded, others must have room."""
    if not candidate.free:
        return 0.0
    if candidate.has_room:
        return 1.0
    preferred = candidate.context_rank == need.preferred_rank and tier(need, candidate) == 1.0
    return 1.0 if preferred and not candidate.overloaded else 0.0


def tier(need: Need, candidate: Candidate) -> float:
    preferred = need.preferred_tier is None or candidate.tier is need.preferred_tier
    return 1.0 if preferred and (candidate.pays or not need.must_pay) else 0.0


def context(need: Need, candidate: Candidate) -> float:
    """1 for the smallest context class that serves, less for each one above: long context is dear."""
    return 1.0 / (1 + abs(candidate.context_rank - need.preferred_rank))


def gain(need: Need, candidate: Candidate) -> float:
    """What there is to gain above 1, for a request that prefers quantized pools; twice as fast and more is best."""
    return candidate.pool.gain - 1.0 if need.preferred_tier is FormatTier.QUANTIZED else 0.0


def headroom(_: Need, candidate: Candidate) -> float:
    return candidate.headroom


def on_demand(_: Need, candidate: Candidate) -> float:
    return 1.0 if candidate.on_demand else 0.0


def fidelity(_: Need, candidate: Candidate) -> float:
    return candidate.fidelity


# Named as their weights are in ScoreWeights.
SCORES: tuple[tuple[str, Callable[[Need, Candidate], float]], ...] = (
    ("spot", spot),
    ("room", room),
    ("tier", tier),
    ("context", context),
    ("gain", gain),
    ("headroom", headroom),
    ("on_demand", on_demand),
    ("fidelity", fidelity),
)


# --- choosing ------------------------------------------------------------------------------------------------------


def select(need: Need, candidates: tuple[Candidate, ...], weights: ScoreWeights) -> Selection:
    """The best of the free candidates, which are in the order of their names: of equals the first one is taken."""
    best: Candidate | None = None
    best_total = -1.0
    without_room: list[tuple[float, Pool]] = []
    serving: list[Candidate] = []
    too_small: list[Candidate] = []
    alternatives: list[Alternative] = []
    for candidate in candidates:
        pool = candidate.pool
        excluded_by = _excluded_by(need, candidate)
        if excluded_by is not None:
            alternatives.append(Alternative(pool.name, excluded_by, overridden=pool.overridden))
            if excluded_by == CONTEXT_TOO_SMALL:
                too_small.append(candidate)
            continue
        serving.append(candidate)
        scores: list[tuple[str, float]] = []
        total = 0.0
        for name, score in SCORES:
            mark = _clamp(score(need, candidate))
            scores.append((name, mark))
            total += mark * getattr(weights, name)
        alternatives.append(Alternative(pool.name, None, tuple(scores), total, pool.overridden))
        if not candidate.free:
            without_room.append((total, pool))
        elif total > best_total:
            best, best_total = candidate, total
    if best is None:
        without_room.sort(key=lambda found: -found[0])
        return Selection(None, need.reasons, tuple(alternatives), tuple(pool for _, pool in without_room))
    return Selection(best.pool, need.reasons + _reasons_of(need, best, serving, too_small), tuple(alternatives))


def _excluded_by(need: Need, candidate: Candidate) -> str | None:
    """The first filter that the candidate does not pass; None when it passes all."""
    for name, passes in FILTERS:
        if not passes(need, candidate):
            return name
    return None


def _clamp(mark: float) -> float:
    return 0.0 if mark < 0.0 else 1.0 if mark > 1.0 else mark


def _reasons_of(
    need: Need, chosen: Candidate, serving: list[Candidate], too_small: list[Candidate]
) -> tuple[Reason, ...]:
    """Why the chosen pool is not the one that was preferred."""
    reasons: list[Reason] = []
    if need.qos is not None and need.qos.prefers_spot:
        reasons.append(Reason.SPOT_EVICTED if chosen.on_demand else Reason.SPOT_PREFERRED)
    if need.goes_on(chosen.pool) and chosen.pool.quiescing_nodes and chosen.pool.settled_nodes:
        reasons.append(Reason.SETTLED_NODES_ONLY)
    if tier(need, chosen) < 1.0:
        served = any(c.tier is need.preferred_tier for c in serving)
        reasons.append(Reason.SPILLED_UNDER_LOAD if served else Reason.TIER_UNAVAILABLE)
    elif chosen.context_rank > need.preferred_rank:
        reasons.append(Reason.SPILLED_UNDER_LOAD)
    # Passed over for being too small, though of a smaller class: the request needs the larger one.
    outgrown = any(candidate.context_rank < chosen.context_rank for candidate in too_small)
    if outgrown and Reason.EXCEEDS_EVERY_CONTEXT not in need.reasons:
        reasons.append(Reason.NEEDS_LONG_CONTEXT)
    return tuple(reasons)


def contexts_around(selection: Selection, candidates: tuple[Candidate, ...]) -> Contexts | None:
    """What there was beside the chosen pool; None without one. `candidates` are those that it was chosen from."""
    pool = selection.pool
    if pool is None:
        return None
    smaller = larger = rank = 0
    for candidate in candidates:
        if candidate.pool is pool:
            rank = candidate.context_rank
    for alternative, candidate in zip(selection.alternatives, candidates, strict=True):
        if candidate.context_rank < rank and alternative.excluded_by == CONTEXT_TOO_SMALL:
            smaller = max(smaller, candidate.pool.max_context)
        elif candidate.context_rank > rank and alternative.excluded_by is None:
            larger = max(larger, candidate.pool.max_context)
    return Contexts(pool.max_context, smaller, larger)


# --- what a request needs ------------------------------------------------------------------------------------------


def of_the_qos_tier(
    need_from: Callable[[tuple[Candidate, ...]], Need], candidates: tuple[Candidate, ...], tier: QosTier, use: SpotUse
) -> Need:
    """The need of a QoS tier's request; `need_from` gives what it is among those candidates that the tier may use.

    Spot nodes that are the last resort count only where they can serve it and no on-demand pool could."""
    if all(c.on_demand and not c.critical_for for c in candidates):
        return need_from(candidates)  # as most are, there is nothing that a tier could ask for
    on_demand = tuple(c for c in candidates if c.on_demand)
    mixed = len(on_demand) < len(candidates)
    usable = on_demand if mixed and use is not SpotUse.PREFERRED else candidates
    need = need_from(usable)
    if usable is on_demand and use is SpotUse.LAST and not _could_serve(need, usable):
        other = need_from(candidates)
        if _could_serve(other, candidates) or not any(c.ready for c in on_demand):
            usable, need = candidates, other
    serving = [c for c in usable if _excluded_by(need, c) is None]
    leaves = any(tier in c.critical_for for c in serving) and any(tier not in c.critical_for for c in serving)
    prefers = use is SpotUse.PREFERRED and any(
        not c.on_demand and has_the_tier(need, c) and holds_the_request(need, c) for c in candidates
    )
    return structs.replace(need, qos=QosNeed(tier, usable is not candidates, prefers, leaves))


def _could_serve(need: Need, usable: tuple[Candidate, ...]) -> bool:
    if Reason.EXCEEDS_EVERY_CONTEXT in need.reasons:
        return False
    return any(_excluded_by(need, c) in {None, QUIESCING} for c in usable)


def need_of_unclassified(candidates: tuple[Candidate, ...]) -> Need:
    """Of embeddings and unknown endpoints: any pool of the model, the smallest context that there is."""
    return _need(None, None, 0, candidates, reason=Reason.NOT_CLASSIFIED)


def need_of_session(pin: Pin, tokens: int, candidates: tuple[Candidate, ...]) -> Need:
    """Of a session's later request: its tier, even if it has to wait there or does not fit."""
    need = _need(pin.tier, pin.tier, tokens, candidates, reason=Reason.SESSION_PINNED)
    return structs.replace(need, goes_on_in=pin.tier, since=pin.since)


def need_of(verdict: Verdict, tokens: int, candidates: tuple[Candidate, ...], rules: SelectionRules) -> Need:
    """Of a request that is free to go to either tier."""
    match verdict:
        case Verdict.TOLERANT:
            return _need_of_tolerant(tokens, candidates)
        case Verdict.NEUTRAL:
            return _need(None, FormatTier.FULL, tokens, candidates, reason=Reason.NEUTRAL_PREFERS_FULL)
        case Verdict.SENSITIVE:
            return _need_of_full(tokens, candidates, rules, reason=Reason.SENSITIVE_NEEDS_FULL)


def need_of_preference(
    preferred: FormatTier, reason: Reason, tokens: int, candidates: tuple[Candidate, ...], rules: SelectionRules
) -> Need:
    """Of a request for which a tier is preferred whatever it is; for `full` that is as strong as being sensitive."""
    if preferred is FormatTier.FULL:
        return _need_of_full(tokens, candidates, rules, reason=reason)
    return _need(None, preferred, tokens, candidates, reason=reason)


def _need_of_full(tokens: int, candidates: tuple[Candidate, ...], rules: SelectionRules, *, reason: Reason) -> Need:
    """The best tier that can serve it; a tier that cannot hold it would only refuse it."""
    full = [c for c in candidates if c.ready and c.tier is FormatTier.FULL]
    other = [c for c in candidates if c.ready and c.tier is not FormatTier.FULL]
    full_serves = any(c.pool.max_context >= tokens for c in full)
    other_serves = any(c.pool.max_context >= tokens for c in other)
    stays = full_serves or (bool(full) and not other_serves) or not rules.sensitive_may_use_quantized
    return _need(FormatTier.FULL if stays else None, FormatTier.FULL, tokens, candidates, reason=reason)


def _need_of_tolerant(tokens: int, candidates: tuple[Candidate, ...]) -> Need:
    """Where no quantized pool is faster than full ones of its hardware, there is no reason to leave the full tier."""
    ready = [c for c in candidates if c.ready]
    holding = [c for c in ready if c.pool.max_context >= tokens] or ready
    tiers = {c.tier for c in holding}
    if any(c.pays for c in holding):
        reason, preferred, must_pay = Reason.TOLERANT_PREFERS_QUANTIZED, FormatTier.QUANTIZED, True
    elif tiers == set(FormatTier):
        reason, preferred, must_pay = Reason.TOLERANT_GAINS_TOO_LITTLE, FormatTier.FULL, False
    else:
        reason, preferred, must_pay = Reason.TOLERANT_PREFERS_QUANTIZED, FormatTier.QUANTIZED, False
    return _need(None, preferred, tokens, candidates, reason=reason, must_pay=must_pay)


def _need(
    required: FormatTier | None,
    preferred: FormatTier | None,
    tokens: int,
    candidates: tuple[Candidate, ...],
    reason: Reason,
    *,
    must_pay: bool = False,
) -> Need:
    eligible = [c for c in candidates if c.ready and (required is None or c.tier is required)]
    reasons: tuple[Reason, ...] = (reason,)
    holding = [c for c in eligible if c.pool.max_context >= tokens]
    if eligible and not holding:
        # Nothing holds it: the largest gets it, and its engine decides.
        tokens = max(c.pool.max_context for c in eligible)
        holding = [c for c in eligible if c.pool.max_context >= tokens]
        reasons = (reason, Reason.EXCEEDS_EVERY_CONTEXT)
    of_tier = [c for c in holding if c.tier is preferred and (c.pays or not must_pay)] or holding
    rank = min((c.context_rank for c in of_tier), default=0)
    return Need(required, preferred, tokens, rank, reasons, must_pay)
