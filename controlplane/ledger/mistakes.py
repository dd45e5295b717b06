"""Whether a request was sent to the right context class, judged by what came of it.

A class is too small for a request when its engine refuses it for its context, or has to cut the answer where the
context ends; too large when a smaller class would have held it. Judged only where there was a choice: a class that had
no ready pool, or belongs to another format tier, could not have been chosen, and a larger class that took the request
since the smaller one was overloaded is no mistake. The prompt itself is never looked at.
"""

from __future__ import annotations

from enum import StrEnum
from math import ceil
from typing import NamedTuple

from controlplane.ledger.ended import Decided, Outcome


class Misroute(StrEnum):
    NONE = "none"
    TOO_SMALL = "too_small"
    TOO_LARGE = "too_large"
    UNKNOWN = "unknown"


# What engines call an answer that ended because no more tokens were allowed: OpenAI's responses, Anthropic's messages.
CUT = frozenset({"length", "max_output_tokens", "max_tokens", "model_context_window_exceeded"})


def misroute(decision: Decided, outcome: Outcome) -> Misroute | None:
    """None where there was no choice between context classes, or no engine that answered.

    Engines hold a context for prompt and output of each answer. A client's cap counts whole, since they refuse a
    request whose cap does not fit. Without one they give what the context has left; an answer that fills it was cut.
    """
    if was_retried(decision, outcome):
        return _of_retried(decision, outcome)
    if not (decision.smaller or decision.larger) or not outcome.upstream:
        return None
    return _of_first_try(decision, outcome)


def _of_first_try(decision: Decided, outcome: Outcome) -> Misroute:
    if outcome.context_exceeded:
        return Misroute.TOO_SMALL if decision.larger else Misroute.NONE
    if (used := _used(decision, outcome)) is None:
        return Misroute.UNKNOWN
    if decision.larger and _was_cut(decision, outcome, used):
        return Misroute.TOO_SMALL
    if _needed(decision, used) <= decision.smaller:
        return Misroute.TOO_LARGE
    return Misroute.NONE


def was_retried(decision: Decided, outcome: Outcome) -> bool:
    """Whether another pool than the chosen one has answered."""
    pool, cluster = decision.pool, outcome.cluster
    return pool != cluster and bool(pool and outcome.upstream) and cluster.partition("@")[0] != pool


def _of_retried(decision: Decided, outcome: Outcome) -> Misroute:
    """Of a request that went to a larger context after its own pool had refused it, or could not be reached."""
    if outcome.context_exceeded:
        return Misroute.NONE  # no context would have held it
    if (used := _used(decision, outcome)) is None:
        return Misroute.UNKNOWN
    return Misroute.TOO_SMALL if _needed(decision, used) > decision.chosen else Misroute.NONE


class _Used(NamedTuple):
    """Tokens of the prompt, and of each answer on average."""

    prompt: int
    each: float


def _used(decision: Decided, outcome: Outcome) -> _Used | None:
    prompt, completion = outcome.prompt_tokens, outcome.completion_tokens
    if not 200 <= outcome.status < 300 or prompt is None or completion is None:
        return None
    return _Used(prompt, completion / max(decision.choices, 1))


def _was_cut(decision: Decided, outcome: Outcome, used: _Used) -> bool:
    """Not by a cap of the client's or the engine's own. Of several answers only the sum is known, so one that was cut
    among them may go unseen."""
    if outcome.finish_reason and outcome.finish_reason not in CUT:
        return False
    is_below_cap = decision.cap is None or used.each < decision.cap
    return used.prompt + used.each >= decision.chosen and is_below_cap


def _needed(decision: Decided, used: _Used) -> int:
    """The least context that would have given the same answers."""
    each, cap = ceil(used.each), decision.cap
    # Without a cap, an answer that just fills a context may have been cut there.
    return used.prompt + (each + 1 if cap is None else max(cap, each))
