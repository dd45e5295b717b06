"""Which format tier a decision pins its session to. Where pins are kept is no concern of the policy."""

from __future__ import annotations

from controlplane.model import Action, Decision, FormatTier


def tier_to_pin(decision: Decision) -> FormatTier | None:
    """The tier that the decision fixes for its session's later requests; None when there is nothing to remember.

    Only classified requests pin: embeddings and unknown endpoints say nothing about the conversation.
    """
    if decision.action is not Action.PASS or decision.session is None or decision.sensitivity is None:
        return None
    return decision.pool.tier if decision.pool is not None else None
