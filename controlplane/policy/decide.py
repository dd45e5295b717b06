"""Decides about one request: whom it is for, how sensitive it is, what it needs, and which pool gets it.

Pure: the same request, table and pin give the same decision, in the filter, in `explain` and in tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from msgspec import Struct, structs

from controlplane.model import (
    Action,
    Ask,
    Budget,
    Decision,
    Endpoint,
    FormatTier,
    Pin,
    Pool,
    QosTier,
    Reason,
    Refusal,
    Sensitivity,
    WouldDo,
)
from controlplane.policy.budget import FROM_PRESSURE, budget_of, sequence_tokens
from controlplane.policy.estimator import group_of
from controlplane.policy.govern import UNGOVERNED, Course, Governing, course, overloaded, without_fallback
from controlplane.policy.preference import as_met, disregarded, stated_preference
from controlplane.policy.qos import Measure, Mode
from controlplane.policy.refusals import no_model, no_ready_node, shown_name, tier_quiescing, unknown_model
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
from controlplane.policy.settings import LostTier
from controlplane.policy.table import Candidate, RoutingTable

_WAITING = frozenset({Reason.WAITING_FOR_ROOM, Reason.HELD_UNDER_PRESSURE})

# Whether a request may go to the cluster of this name now, without waiting.
Free = Callable[[str], bool]


def anywhere(_: str) -> bool:
    """What is free as long as nothing is known of anybody's room."""
    return True


def decide(
    ask: Ask,
    table: RoutingTable,
    pin: Pin | None,
    free: Free = anywhere,
    *,
    waited_seconds: float = 0.0,
    draw: float = 0.5,
) -> Decision:
    """What is done with a request. `pin` is what its session keeps to, None for a new one or none.

    `waited_seconds` is how long it was let wait so far, `draw`, from 0 to 1, for the jitter of when to come back.
    """
    tier = table.qos_tier_of(ask.tenant)
    if ask.endpoint is Endpoint.MODELS:
        return Decision(Action.ANSWER, ask.endpoint, "", (Reason.LISTED_MODELS,), qos_tier=tier)
    models, retry_after = table.models_of(ask.tenant), table.policy.selection.retry_after_seconds
    name = requested_model(ask, table)
    if name is None:
        reason = Reason.NO_MODEL if models else Reason.NO_READY_NODE
        return refused(no_model(models, retry_after), reason, ask, qos_tier=tier)
    if not table.models:  # an empty fleet cannot tell an unknown model from one whose nodes are all away
        return refused(no_model(models, retry_after), Reason.NO_READY_NODE, ask, model=shown_name(name), qos_tier=tier)
    candidates = table.pools_of(name, ask.tenant)
    if not candidates:
        reason = Reason.MODEL_NOT_ALLOWED if table.pools_of(name) else Reason.UNKNOWN_MODEL
        return refused(unknown_model(name, models), reason, ask, model=shown_name(name), qos_tier=tier)
    qos = table.policy.qos
    by = None if qos.mode is Mode.DISABLED else Governing(qos, tier, waited_seconds, draw)
    decision = _choose(ask, candidates, table, pin, free, by=by)
    if qos.mode is Mode.DRY_RUN:
        return _tried(_choose(ask, candidates, table, pin, free), decision)
    return decision


def _tried(decision: Decision, governed: Decision) -> Decision:
    """The decision as it is without governance, with what it would have been."""
    where = governed.pool.name if governed.pool else ""
    return structs.replace(
        decision,
        pressure=governed.pressure,
        pressed_pool=governed.pressed_pool,
        would_do=WouldDo(governed.action, governed.reasons, where, governed.output_limit),
    )


def requested_model(ask: Ask, table: RoutingTable) -> str | None:
    """The name of the model that a request is for: what it says, else the default, else the only one that there is."""
    if ask.model or table.policy.default_model:
        return ask.model or table.policy.default_model
    models = table.models_of(ask.tenant)
    return models[0] if len(models) == 1 else None


def refused(
    refusal: Refusal,
    reason: Reason,
    ask: Ask | None = None,
    *,
    endpoint: Endpoint = Endpoint.OTHER,
    model: str = "",
    qos_tier: QosTier | None = None,
) -> Decision:
    """The decision to answer a request with an error; `endpoint` is that of one that could not be read."""
    return Decision(
        action=Action.REJECT,
        endpoint=ask.endpoint if ask else endpoint,
        model=model,
        reasons=(reason,),
        session=ask.session if ask else None,
        tenant=ask.tenant if ask else "",
        known_by=ask.known_by if ask else "",
        qos_tier=qos_tier,
        stream=ask.stream if ask else False,
        refusal=refusal,
    )


def not_served(waiting: Decision, reason: Reason, seconds: float, retry_after: float) -> Decision:
    """The refusal of a request that is to wait no longer; it has waited for `seconds`."""
    kind = f" in a {waiting.pinned.value} format" if waiting.pinned else ""
    lack = "is under less load" if waiting.held_seconds else "has room"
    message = f"No node that serves `{waiting.model}`{kind} {lack}"
    if reason is Reason.QUEUE_FULL:
        message += ", and too many requests wait for it"
    elif reason is Reason.WOULD_WAIT_TOO_LONG:
        message += ", and those who wait for it go on too slowly for one more to be served in time"
    else:
        message += f"; the request has waited {seconds:.1f} s"
    return structs.replace(
        waiting,
        action=Action.REJECT,
        reasons=(reason, *(r for r in waiting.reasons if r not in _WAITING)),
        waited_seconds=seconds,
        refusal=Refusal(
            429, "rate_limit_error", "no_capacity", f"{message}. Try again later.", retry_after=retry_after
        ),
    )


class _Read(Struct, frozen=True, gc=False):
    """What a request says of itself, as far as the candidates' model matters to it."""

    need_from: Callable[[tuple[Candidate, ...]], Need]
    sensitivity: Sensitivity | None = None
    budget: Budget | None = None
    pin: Pin | None = None
    reasons: tuple[Reason, ...] = ()


class _Outcome(Struct, frozen=True, gc=False):
    action: Action
    reasons: tuple[Reason, ...]
    pool: Pool | None = None
    waits_for: tuple[Pool, ...] = ()
    refusal: Refusal | None = None


def _choose(
    ask: Ask,
    candidates: tuple[Candidate, ...],
    table: RoutingTable,
    pin: Pin | None,
    free: Free,
    *,
    by: Governing | None = None,
    in_place_of: str = "",
) -> Decision:
    """`by` is None where QoS tiers are not governed; `in_place_of` is the model that the candidates' stands in for."""
    read = _read(ask, candidates, table, pin)
    if by is None:
        need = read.need_from(candidates)
    else:
        need = of_the_qos_tier(read.need_from, candidates, by.tier, by.rules.spot)
    # Most have room, and are taken as they are in the table.
    candidates = tuple(c if free(_cluster(c.pool, need)) else replace(c, free=False) for c in candidates)
    selection = select(need, candidates, table.policy.selection.weights)
    if read.reasons:
        more = tuple(reason for reason in read.reasons if reason not in selection.reasons)
        selection = structs.replace(selection, reasons=selection.reasons + more)
    if ask.preference is not None:
        selection = structs.replace(selection, reasons=as_met(selection.reasons, ask, selection.pool))
    model = candidates[0].pool.model
    pressed = selection.pool or next(iter(selection.waits_for), None)
    meets = UNGOVERNED
    if by is not None and pressed is not None:
        meets = course(ask, pressed, by, fell_back=bool(in_place_of))
        if meets.measure is Measure.FALLBACK:
            other = _fallen_back(ask, table, free, by, model)
            if other is not None:
                return other
            meets = without_fallback(meets)
    if by is not None and meets.measure is Measure.REJECT:
        outcome = _Outcome(Action.REJECT, (Reason.OVERLOADED, *selection.reasons), refusal=overloaded(model, by))
    elif meets.measure is Measure.QUEUE and pressed is not None:
        outcome = _Outcome(Action.QUEUE, (*selection.reasons, Reason.HELD_UNDER_PRESSURE), waits_for=(pressed,))
    else:
        outcome = _sent(_outcome(selection, need, candidates, table), meets, fell_back=bool(in_place_of))
    return Decision(
        action=outcome.action,
        endpoint=ask.endpoint,
        model=model,
        reasons=outcome.reasons,
        pool=outcome.pool,
        cluster=_cluster(outcome.pool, need) if outcome.pool else "",
        sensitivity=read.sensitivity,
        budget=_capped(read.budget, meets.output_limit, ask.choices),
        alternatives=selection.alternatives,
        pinned=read.pin.tier if read.pin else None,
        session=ask.session,
        tenant=ask.tenant,
        known_by=ask.known_by,
        qos_tier=table.qos_tier_of(ask.tenant),
        stream=ask.stream,
        refusal=outcome.refusal,
        waits_for=tuple(_cluster(pool, need) for pool in outcome.waits_for),
        pressure=meets.pressure,
        pressed_pool=pressed.name if meets.pressure is not None and pressed is not None else "",
        output_limit=meets.output_limit,
        asked_model=in_place_of,
        held_seconds=meets.held_seconds,
        contexts=contexts_around(selection, candidates) if read.budget else None,
        features=ask.features if read.budget is not None else None,
        choices=ask.choices,
        output_cap=ask.output_cap,
    )


def _read(ask: Ask, candidates: tuple[Candidate, ...], table: RoutingTable, pin: Pin | None) -> _Read:
    if ask.endpoint in {Endpoint.EMBEDDINGS, Endpoint.OTHER}:
        return _Read(need_of_unclassified)
    rules = table.policy.selection
    contexts = [c.pool.max_context for c in candidates if c.ready]
    budget = budget_of(
        ask.features,
        table.calibrations,
        candidates[0].pool.model,
        group_of(ask.tenant),
        output_cap=ask.output_cap,
        choices=ask.choices,
        max_context=max(contexts, default=None),
    )
    tokens = sequence_tokens(budget, ask.choices)
    sensitivity = table.classifier.classify(ask, budget.output_tokens // ask.choices)
    lost = pin is not None and _is_lost(pin.tier, tokens, candidates)
    repinned = lost and table.policy.sessions.lost_tier is LostTier.REPIN

    def need_from(usable: tuple[Candidate, ...]) -> Need:
        if pin is not None and not repinned:
            return need_of_session(pin, tokens, usable)
        if preference := stated_preference(ask, table):
            need = need_of_preference(*preference, tokens, usable, rules)
        else:
            need = need_of(sensitivity.verdict, tokens, usable, rules)
        # Free to go to either tier, it may get the lost one all the same, and be refused by an engine that it knows.
        return structs.replace(need, goes_on_in=pin.tier, since=pin.since) if pin is not None else need

    reasons = (Reason.TIER_UNAVAILABLE,) if repinned else ()
    return _Read(need_from, sensitivity, budget, pin, reasons + disregarded(ask, table, None if repinned else pin))


def _outcome(selection: Selection, need: Need, candidates: tuple[Candidate, ...], table: RoutingTable) -> _Outcome:
    """Of a request that no pressure stops."""
    if selection.pool is not None:
        return _Outcome(Action.PASS, selection.reasons, selection.pool)
    if selection.waits_for:
        reasons = (*selection.reasons, Reason.WAITING_FOR_ROOM)
        return _Outcome(Action.QUEUE, reasons, waits_for=selection.waits_for)
    model = candidates[0].pool.model
    quiescing = {found.pool for found in selection.alternatives if found.excluded_by == QUIESCING}
    if quiescing:  # waiting helps for sure, and for how long is known
        settles_in = min(c.pool.settles_in for c in candidates if c.pool.name in quiescing)
        reasons = (Reason.TIER_QUIESCING, *selection.reasons)
        return _Outcome(Action.REJECT, reasons, refusal=tier_quiescing(model, settles_in))
    refusal = no_ready_node(model, need.tier, table.policy.selection.retry_after_seconds)
    return _Outcome(Action.REJECT, (Reason.NO_READY_NODE, *selection.reasons), refusal=refusal)


def _sent(outcome: _Outcome, meets: Course, *, fell_back: bool) -> _Outcome:
    """With what pressure does to a request that is sent, now or once it has room."""
    action, reasons = outcome.action, outcome.reasons
    if meets.output_limit is not None:
        reasons = (*reasons, Reason.DEGRADED_UNDER_PRESSURE)
    if fell_back:
        reasons = (*reasons, Reason.FELL_BACK_UNDER_PRESSURE)
    if action is Action.PASS and reasons is not outcome.reasons:
        action = Action.FALLBACK if fell_back else Action.DEGRADE
    return structs.replace(outcome, action=action, reasons=reasons) if reasons is not outcome.reasons else outcome


def _fallen_back(ask: Ask, table: RoutingTable, free: Free, by: Governing, model: str) -> Decision | None:
    """The decision to have another model serve a request; None where it cannot."""
    candidates = table.pools_of(by.rules.fallback_model or "", ask.tenant)
    if not candidates or candidates[0].pool.model == model:
        return None
    other = _choose(ask, candidates, table, None, free, by=by, in_place_of=model)
    return None if other.action is Action.REJECT else other


def _capped(budget: Budget | None, limit: int | None, choices: int) -> Budget | None:
    if budget is None or limit is None:
        return budget
    return structs.replace(budget, output_tokens=min(budget.output_tokens, limit * choices), output_from=FROM_PRESSURE)


def _cluster(pool: Pool, need: Need) -> str:
    if not need.goes_on(pool):
        return pool.open_cluster
    return pool.name if pool.settled_nodes or not pool.ready_nodes else pool.since_cluster


def _is_lost(pin: FormatTier, tokens: int, candidates: tuple[Candidate, ...]) -> bool:
    """Whether a session's tier can serve it no more: it is gone, or the session has outgrown it and fits elsewhere."""
    holding = [c for c in candidates if c.pool.max_context >= tokens]
    if any(c.tier is pin for c in holding):
        return False
    return all(c.tier is not pin for c in candidates) or any(c.ready for c in holding)
