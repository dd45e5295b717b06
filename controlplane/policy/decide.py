"""Decides about one request: whom it is for, how sensitive it is, what it needs, and which pool gets it.

Pure: the same request, table and pin give the same decision, in the filter, in `explain` and in tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

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
)
from controlplane.policy.budget import estimate, sequence_tokens
from controlplane.policy.preference import stated_preference
from controlplane.policy.select import (
    QUIESCING,
    Need,
    need_of,
    need_of_preference,
    need_of_session,
    need_of_unclassified,
    select,
)
from controlplane.policy.settings import LostTier
from controlplane.policy.table import Candidate, RoutingTable

# A refusal names at most this many of the models that there are.
_MODELS_NAMED = 10

# Whether a request may go to the cluster of this name now, without waiting.
Free = Callable[[str], bool]


def anywhere(_: str) -> bool:
    """What is free as long as nothing is known of anybody's room."""
    return True


def decide(ask: Ask, table: RoutingTable, pin: Pin | None, free: Free = anywhere) -> Decision:
    """What is done with a request. `pin` is what its session keeps to, None for a new one or none."""
    tier = table.qos_tier_of(ask.tenant)
    if ask.endpoint is Endpoint.MODELS:
        return Decision(Action.ANSWER, ask.endpoint, "", (Reason.LISTED_MODELS,), qos_tier=tier)
    name = requested_model(ask, table)
    if name is None:
        return refused(_no_model(table), Reason.NO_MODEL if table.models else Reason.NO_READY_NODE, ask, qos_tier=tier)
    if not table.models:  # an empty fleet cannot tell an unknown model from one whose nodes are all away
        return refused(_no_model(table), Reason.NO_READY_NODE, ask, model=_shown(name), qos_tier=tier)
    candidates = table.pools_of(name)
    if not candidates:
        return refused(_unknown_model(name, table), Reason.UNKNOWN_MODEL, ask, model=_shown(name), qos_tier=tier)
    return _choose(ask, candidates, table, pin, free)


def requested_model(ask: Ask, table: RoutingTable) -> str | None:
    """The name of the model that a request is for: what it says, else the default, else the only one that there is."""
    return ask.model or table.policy.default_model or (table.models[0] if len(table.models) == 1 else None)


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
        qos_tier=qos_tier,
        stream=ask.stream if ask else False,
        refusal=refusal,
    )


def not_served(waiting: Decision, reason: Reason, seconds: float, retry_after: float) -> Decision:
    """The refusal of a request that is to wait no longer; it has waited for `seconds`."""
    kind = f" in a {waiting.pinned.value} format" if waiting.pinned else ""
    message = f"No node that serves `{waiting.model}`{kind} has room"
    if reason is Reason.QUEUE_FULL:
        message += ", and too many requests wait for it"
    else:
        message += f"; the request has waited {seconds:.1f} s"
    return replace(
        waiting,
        action=Action.REJECT,
        reasons=(reason, *(r for r in waiting.reasons if r is not Reason.WAITING_FOR_ROOM)),
        waited_seconds=seconds,
        refusal=Refusal(
            429, "rate_limit_error", "no_capacity", f"{message}. Try again later.", retry_after=retry_after
        ),
    )


def _choose(ask: Ask, candidates: tuple[Candidate, ...], table: RoutingTable, pin: Pin | None, free: Free) -> Decision:
    rules = table.policy.selection
    sensitivity: Sensitivity | None = None
    budget: Budget | None = None
    extra: tuple[Reason, ...] = ()
    need: Need
    if ask.endpoint in {Endpoint.EMBEDDINGS, Endpoint.OTHER}:
        pin = None
        need = need_of_unclassified(candidates)
    else:
        contexts = [c.pool.max_context for c in candidates if c.ready]
        budget = estimate(ask, table.policy.budget, max(contexts, default=None))
        tokens = sequence_tokens(budget, ask.choices)
        sensitivity = table.classifier.classify(ask, budget.output_tokens // ask.choices)
        lost = pin is not None and _is_lost(pin.tier, tokens, candidates)
        repinned = lost and table.policy.sessions.lost_tier is LostTier.REPIN
        if repinned:
            extra = (Reason.TIER_UNAVAILABLE,)
        if pin is not None and not repinned:
            need = need_of_session(pin, tokens, candidates)
        elif preference := stated_preference(ask, table):
            need = need_of_preference(*preference, tokens, candidates, rules)
        else:
            need = need_of(sensitivity.verdict, tokens, candidates, rules)
    # Most have room, and are taken as they are in the table.
    candidates = tuple(c if free(_cluster(c.pool, need)) else replace(c, free=False) for c in candidates)
    selection = select(need, candidates, rules.weights)
    model = candidates[0].pool.model
    reasons = selection.reasons + tuple(reason for reason in extra if reason not in selection.reasons)
    refusal: Refusal | None = None
    if selection.waits_for:
        reasons = (*reasons, Reason.WAITING_FOR_ROOM)
    elif selection.pool is None:
        quiescing = {found.pool for found in selection.alternatives if found.excluded_by == QUIESCING}
        if quiescing:  # waiting helps for sure, and for how long is known
            reasons = (Reason.TIER_QUIESCING, *reasons)
            refusal = _tier_quiescing(model, min(c.pool.settles_in for c in candidates if c.pool.name in quiescing))
        else:
            reasons = (Reason.NO_READY_NODE, *reasons)
            refusal = _no_ready_node(model, need.tier, rules.retry_after_seconds)
    return Decision(
        action=Action.REJECT if refusal else Action.QUEUE if selection.waits_for else Action.PASS,
        endpoint=ask.endpoint,
        model=model,
        reasons=reasons,
        pool=selection.pool,
        cluster=_cluster(selection.pool, need) if selection.pool else "",
        sensitivity=sensitivity,
        budget=budget,
        alternatives=selection.alternatives,
        pinned=pin.tier if pin else None,
        session=ask.session,
        tenant=ask.tenant,
        qos_tier=table.qos_tier_of(ask.tenant),
        stream=ask.stream,
        refusal=refusal,
        waits_for=tuple(_cluster(pool, need) for pool in selection.waits_for),
    )


def _cluster(pool: Pool, need: Need) -> str:
    if not need.goes_on:
        return pool.open_cluster
    return pool.name if pool.settled_nodes or not pool.ready_nodes else pool.since_cluster


def _is_lost(pin: FormatTier, tokens: int, candidates: tuple[Candidate, ...]) -> bool:
    """Whether a session's tier can serve it no more: it is gone, or the session has outgrown it and fits elsewhere."""
    holding = [c for c in candidates if c.pool.max_context >= tokens]
    if any(c.tier is pin for c in holding):
        return False
    return all(c.tier is not pin for c in candidates) or any(c.ready for c in holding)


# --- refusals ------------------------------------------------------------------------------------------------------


def _no_model(table: RoutingTable) -> Refusal:
    if not table.models:
        return Refusal(
            503,
            "server_error",
            "no_ready_node",
            "No model is being served yet; try again later.",
            retry_after=table.policy.selection.retry_after_seconds,
        )
    return Refusal(
        400,
        "invalid_request_error",
        "missing_model",
        f"The request names no model. Set `model` to one of {_named(table.models)}.",
        param="model",
    )


def _unknown_model(name: str, table: RoutingTable) -> Refusal:
    known = f"Known models are {_named(table.models)}." if table.models else "No model is being served yet."
    message = f"The model `{_shown(name)}` does not exist here. {known}"
    return Refusal(404, "invalid_request_error", "model_not_found", message, param="model")


def _no_ready_node(model: str, tier: FormatTier | None, retry_after: float) -> Refusal:
    kind = f" in a {tier.value} format" if tier else ""
    message = f"No node that serves `{model}`{kind} is ready now; try again later."
    return Refusal(503, "server_error", "no_ready_node", message, retry_after=retry_after)


def _tier_quiescing(model: str, retry_after: float) -> Refusal:
    message = (
        f"All nodes that serve `{model}` in this session's format have just registered anew and take only new sessions "
        f"for {retry_after:.0f} s more; try again then, or begin a new session."
    )
    return Refusal(503, "server_error", "tier_quiescing", message, retry_after=retry_after)


def _shown(name: str) -> str:
    """A name from a request, of a length and of characters that do no harm where it is shown."""
    short = name if len(name) <= 100 else f"{name[:100]}..."
    return "".join(char if char.isprintable() else "?" for char in short)


def _named(models: tuple[str, ...]) -> str:
    shown = ", ".join(f"`{model}`" for model in models[:_MODELS_NAMED])
    more = len(models) - _MODELS_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
