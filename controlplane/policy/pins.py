"""What a decision pins its session to, and under which key.

Where pins are kept is no concern of the policy.
"""

from __future__ import annotations

from controlplane.model import Ask, Decision, Endpoint, Pin
from controlplane.policy.decide import requested_model
from controlplane.policy.table import RoutingTable

_UNCLASSIFIED = frozenset({Endpoint.EMBEDDINGS, Endpoint.OTHER, Endpoint.MODELS})


def pin_key(ask: Ask, table: RoutingTable) -> str | None:
    """What the pin of the request's session is kept under; None for a request that no pin binds.

    Each model of a session has a pin of its own: that one model is not to be had in a tier must not move another one.
    Tenants that choose the same id have sessions of their own.
    """
    if ask.session is None or ask.endpoint in _UNCLASSIFIED:
        return None
    name = requested_model(ask, table)
    offer = table.offer_of(name, ask.tenant) if name is not None else None
    return f"{offer.model}\n{ask.tenant}\n{ask.session}" if offer is not None else None


def pin_of(decision: Decision, table: RoutingTable) -> Pin | None:
    """What the decision, by this table, fixes for its session's later requests; None for nothing.

    Only classified requests pin: embeddings and unknown endpoints say nothing about the conversation, and a model that
    stands in for another one says nothing about that one.
    """
    if not decision.is_sent or decision.asked_model or decision.session is None or decision.sensitivity is None:
        return None
    return Pin(decision.pool.tier, table.since) if decision.pool is not None else None
