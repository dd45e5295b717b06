"""Decides about one request: whom it is for, how sensitive it is, what it needs, and which pool gets it.

Pure: the same request, table and pin give the same decision, in the filter, in `explain` and in tests.
"""

from __future__ import annotations

from msgspec import Struct, structs

from controlplane.model import (
    Action,
    Ask,
    Budget,
    Decision,
    Endpoint,
    Pin,
    QosTier,
    Reason,
    Refusal,
    Sensitivity,
    WouldDo,
)
from controlplane.policy.budget import FROM_PRESSURE, budget_of, sequence_tokens
from controlplane.policy.choice import Choice, Free, Offer, Question
from controlplane.policy.estimator import group_of
from controlplane.policy.govern import UNGOVERNED, Course, Governing, course, overloaded, without_fallback
from controlplane.policy.qos import Measure, Mode
from controlplane.policy.refusals import no_model, shown_name, unknown_model
from controlplane.policy.table import RoutingTable

_UNCLASSIFIED = frozenset({Endpoint.EMBEDDINGS, Endpoint.OTHER})
_WAITING = frozenset({Reason.WAITING_FOR_ROOM, Reason.HELD_UNDER_PRESSURE})


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
    name = requested_model(ask, table)
    offer = table.offer_of(name, ask.tenant) if name is not None else None
    if offer is None:
        return _nothing_to_choose(ask, table, name, tier)
    case = _Case(ask, table, pin, free, tier)
    read = _read(case, offer)
    qos = table.policy.qos
    if qos.mode is Mode.DISABLED:
        return _choose(case, offer, read)
    decision = _choose(case, offer, read, by=Governing(qos, tier, waited_seconds, draw))
    if qos.mode is Mode.DRY_RUN:
        return _tried(_choose(case, offer, read), decision)
    return decision


def _nothing_to_choose(ask: Ask, table: RoutingTable, name: str | None, tier: QosTier) -> Decision:
    """Of a request that names no model, or one that there is not for its tenant."""
    models, retry_after = table.models_of(ask.tenant), table.policy.selection.retry_after_seconds
    if name is None:
        reason = Reason.NO_MODEL if models else Reason.NO_READY_NODE
        return refused(no_model(models, retry_after), reason, ask, qos_tier=tier)
    shown = shown_name(name)
    if not table.models:  # an empty fleet cannot tell an unknown model from one whose nodes are all away
        return refused(no_model(models, retry_after), Reason.NO_READY_NODE, ask, model=shown, qos_tier=tier)
    reason = Reason.MODEL_NOT_ALLOWED if table.pools_of(name) else Reason.UNKNOWN_MODEL
    return refused(unknown_model(name, models), reason, ask, model=shown, qos_tier=tier)


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


class _Case(Struct, frozen=True, gc=False):
    """One request and what it is decided by, as `decide` is given it; `tier` is its QoS tier."""

    ask: Ask
    table: RoutingTable
    pin: Pin | None
    free: Free
    tier: QosTier


class _Read(Struct, frozen=True, gc=False):
    """What is made of a request that is classified, for one model: `tokens` are those of one sequence of it."""

    sensitivity: Sensitivity
    budget: Budget
    tokens: int


def _read(case: _Case, offer: Offer) -> _Read | None:
    ask, table = case.ask, case.table
    if ask.endpoint in _UNCLASSIFIED:
        return None
    budget = budget_of(
        ask.features,
        table.calibrations,
        offer.model,
        group_of(ask.tenant),
        output_cap=ask.output_cap,
        choices=ask.choices,
        max_context=offer.largest_ready,
    )
    sensitivity = table.classifier.classify(ask, budget.output_tokens // ask.choices)
    return _Read(sensitivity, budget, sequence_tokens(budget, ask.choices))


def _choose(
    case: _Case, offer: Offer, read: _Read | None, *, by: Governing | None = None, in_place_of: str = ""
) -> Decision:
    """`by` is None where QoS tiers are not governed; `in_place_of` is the model that the offer's stands in for."""
    ask = case.ask
    question = _question(case, offer, read, governed=by is not None)
    choice = offer.choice(question)
    meets = UNGOVERNED
    if by is not None and choice.standing is not None:
        meets = course(ask, choice.standing, by, fell_back=bool(in_place_of))
        if meets.measure is Measure.FALLBACK:
            other = _fallen_back(case, by, offer.model)
            if other is not None:
                return other
            meets = without_fallback(meets)
    if meets is not UNGOVERNED or in_place_of:
        choice = _pressed(choice, meets, offer.model, by, fell_back=bool(in_place_of))
    return Decision(
        action=choice.action,
        endpoint=ask.endpoint,
        model=offer.model,
        reasons=choice.reasons,
        pool=choice.pool,
        cluster=choice.cluster,
        sensitivity=read.sensitivity if read is not None else None,
        budget=_capped(read.budget, meets.output_limit, ask.choices) if read is not None else None,
        alternatives=choice.alternatives,
        shortlist=choice.shortlist,
        pinned=question.pinned,
        session=ask.session,
        tenant=ask.tenant,
        known_by=ask.known_by,
        qos_tier=case.tier,
        stream=ask.stream,
        refusal=choice.refusal,
        waits_for=choice.waits_for,
        pressure=meets.pressure,
        pressed_pool=choice.pressed.name if meets.pressure is not None and choice.pressed is not None else "",
        output_limit=meets.output_limit,
        asked_model=in_place_of,
        held_seconds=meets.held_seconds,
        contexts=choice.contexts,
        features=ask.features if read is not None else None,
        choices=ask.choices,
        output_cap=ask.output_cap,
    )


def _pressed(choice: Choice, meets: Course, model: str, by: Governing | None, *, fell_back: bool) -> Choice:
    """With what pressure does to the request."""
    if meets.measure is Measure.REJECT and by is not None:
        reasons, refusal = (Reason.OVERLOADED, *choice.because), overloaded(model, by)
        return structs.replace(
            choice, action=Action.REJECT, reasons=reasons, pool=None, cluster="", waits_for=(), refusal=refusal
        )
    if meets.measure is Measure.QUEUE:
        reasons, waits_for = (*choice.because, Reason.HELD_UNDER_PRESSURE), (choice.pressed_cluster,)
        return structs.replace(choice, action=Action.QUEUE, reasons=reasons, pool=None, cluster="", waits_for=waits_for)
    # It is sent, now or once it has room.
    action, reasons = choice.action, choice.reasons
    if meets.output_limit is not None:
        reasons = (*reasons, Reason.DEGRADED_UNDER_PRESSURE)
    if fell_back:
        reasons = (*reasons, Reason.FELL_BACK_UNDER_PRESSURE)
    if action is Action.PASS and reasons is not choice.reasons:
        action = Action.FALLBACK if fell_back else Action.DEGRADE
    return structs.replace(choice, action=action, reasons=reasons) if reasons is not choice.reasons else choice


def _question(case: _Case, offer: Offer, read: _Read | None, *, governed: bool) -> Question:
    """What the choice depends on; no pin binds a request that is not classified, and no preference counts."""
    ask, pin, tier = case.ask, case.pin, case.tier if governed else None
    pinned = pin.tier if pin is not None and read is not None else None
    full = () if case.free is anywhere else offer.full(case.free, pinned)
    if read is None:
        return Question(None, tier=tier, full=full)
    tenant = case.table.tenants.get(ask.tenant)
    return Question(
        verdict=read.sensitivity.verdict,
        tokens=offer.rounded_tokens(read.tokens),
        pinned=pinned,
        since=offer.rounded_time(pin.since) if pin is not None else 0.0,
        asks_for=ask.preference,
        asks_unknown=ask.preference_unknown,
        tenant_prefers=tenant.prefers if tenant is not None else None,
        tier=tier,
        full=full,
    )


def _fallen_back(case: _Case, by: Governing, model: str) -> Decision | None:
    """The decision to have another model serve a request; None where it cannot.

    A pin is to a tier of the model asked for, and says nothing of another one (docs/qos.md)."""
    offer = case.table.offer_of(by.rules.fallback_model or "", case.ask.tenant)
    if offer is None or offer.model == model:
        return None
    fresh = structs.replace(case, pin=None)
    other = _choose(fresh, offer, _read(fresh, offer), by=by, in_place_of=model)
    return None if other.action is Action.REJECT else other


def _capped(budget: Budget, limit: int | None, choices: int) -> Budget:
    if limit is None:
        return budget
    return structs.replace(budget, output_tokens=min(budget.output_tokens, limit * choices), output_from=FROM_PRESSURE)
