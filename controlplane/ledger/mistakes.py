"""Whether a request was sent to the right context class, judged by what came of it.

A class is too small for a request when its engine refuses it for its context, or has to cut the answer where the
context ends; too large when a smaller class would have held it. Judged only where there was a choice: a class that had
no ready pool, or belongs to another format tier, could not have been chosen, and a larger class that took the request
since the smaller one was overloaded is no mistake. The prompt itself is never looked at.
"""

from __future__ import annotations

from enum import StrEnum
from math import ceil

from controlplane.messages import cap_told
from headrace_protos.headrace.v1 import decision_pb2


class Misroute(StrEnum):
    NONE = "none"
    TOO_SMALL = "too_small"
    TOO_LARGE = "too_large"
    UNKNOWN = "unknown"


# What engines call an answer that ended because no more tokens were allowed: OpenAI's responses, Anthropic's messages.
CUT = frozenset({"length", "max_output_tokens", "max_tokens", "model_context_window_exceeded"})


def misroute(decision: decision_pb2.Decision, outcome: decision_pb2.Outcome) -> Misroute | None:
    """None where there was no choice between context classes, or no engine that answered.

    Engines hold a context for prompt and output of each answer. A client's cap counts whole, since they refuse a
    request whose cap does not fit. Without one they give what the context has left; an answer that fills it was cut.
    """
    if was_retried(decision, outcome):
        return _of_retried(decision, outcome)
    contexts = decision.contexts
    if not (contexts.smaller or contexts.larger) or not outcome.upstream:
        return None
    return _of_first_try(decision, outcome)


def _of_first_try(decision: decision_pb2.Decision, outcome: decision_pb2.Outcome) -> Misroute:
    contexts = decision.contexts
    if outcome.context_exceeded:
        return Misroute.TOO_SMALL if contexts.larger else Misroute.NONE
    if not 200 <= outcome.status < 300 or not _has_usage(outcome):
        return Misroute.UNKNOWN
    if contexts.larger and _was_cut(decision, outcome):
        return Misroute.TOO_SMALL
    if _needed(decision, outcome) <= contexts.smaller:
        return Misroute.TOO_LARGE
    return Misroute.NONE


def was_retried(decision: decision_pb2.Decision, outcome: decision_pb2.Outcome) -> bool:
    """Whether another pool than the chosen one has answered."""
    pool, cluster = decision.pool, outcome.cluster
    return pool != cluster and bool(pool and outcome.upstream) and cluster.partition("@")[0] != pool


def _of_retried(decision: decision_pb2.Decision, outcome: decision_pb2.Outcome) -> Misroute:
    """Of a request that went to a larger context after its own pool had refused it, or could not be reached."""
    if outcome.context_exceeded:
        return Misroute.NONE  # no context would have held it
    if not 200 <= outcome.status < 300 or not _has_usage(outcome):
        return Misroute.UNKNOWN
    return Misroute.TOO_SMALL if _needed(decision, outcome) > decision.contexts.chosen else Misroute.NONE


def _has_usage(outcome: decision_pb2.Outcome) -> bool:
    return outcome.HasField("prompt_tokens") and outcome.HasField("completion_tokens")


def _was_cut(decision: decision_pb2.Decision, outcome: decision_pb2.Outcome) -> bool:
    """Not by a cap of the client's or the engine's own. Of several answers only the sum is known, so one that was cut
    among them may go unseen."""
    if outcome.finish_reason and outcome.finish_reason not in CUT:
        return False
    cap = cap_told(decision)
    each = outcome.completion_tokens / max(decision.choices, 1)
    return outcome.prompt_tokens + each >= decision.contexts.chosen and (cap is None or each < cap)


def _needed(decision: decision_pb2.Decision, outcome: decision_pb2.Outcome) -> int:
    """The least context that would have given the same answers."""
    each = ceil(outcome.completion_tokens / max(decision.choices, 1))
    cap = cap_told(decision)
    # Without a cap, an answer that just fills a context may have been cut there.
    return outcome.prompt_tokens + (each + 1 if cap is None else max(cap, each))
