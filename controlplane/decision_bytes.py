"""A decision as the bytes of its message, of which the filter makes one for each request: what
`messages.decision_message` says, but for alternatives that are not on the shortlist, in a fraction of its time.

The bytes of protobuf messages, one after the other, are those messages merged, embedded ones too
(https://protobuf.dev/programming-guides/encoding/#last-one-wins). So the parts that many decisions have in common are
remembered by their values, and only what is a request's own is made anew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

from controlplane import messages
from controlplane.digests import session_digest
from controlplane.model import Alternative, Contexts, Decision, FormatTier, Sensitivity, TierPressure, WouldDo
from headrace_protos.headrace.v1 import decision_pb2

# Of each part, some hundred bytes: what a fleet chooses between two changes of its load, and what its clients ask.
_REMEMBERED: Final = 2048

# What is called the same in the model and in the message, and is as it stands.
_ALIKE: Final = (
    "action",
    "endpoint",
    "model",
    "reasons",
    "would_change",
    "pinned",
    "stream",
    "waits_for",
    "tenant",
    "known_by",
    "qos_tier",
    "pressed_pool",
    "output_limit",
    "asked_model",
    "held_seconds",
    "choices",
    "output_cap",
)
_alike_of: Final[Callable[[Decision], tuple[Any, ...]]] = attrgetter(*_ALIKE)


def decision_bytes(decision: Decision) -> bytes:
    """A serialized `headrace.v1.Decision`; its fields may stand in another order than usual."""
    parts = [_alike(_alike_of(decision)), _alternatives(decision.shortlist), _own(decision)]
    if (pool := decision.pool) is not None:
        parts.append(_pool(pool.name, pool.tier, pool.context_class))
    if decision.contexts is not None:
        parts.append(_contexts(decision.contexts))
    if decision.sensitivity is not None:
        parts.append(_sensitivity(decision.sensitivity))
    if decision.pressure is not None:
        parts.append(_pressure(decision.pressure))
    if decision.would_do is not None:
        parts.append(_would_do(decision.would_do))
    if decision.refusal is not None:
        refusal = messages.refusal_message(decision.refusal)
        parts.append(decision_pb2.Decision(refusal=refusal).SerializeToString())
    return b"".join(parts)


@lru_cache(_REMEMBERED)
def _alike(values: tuple[Any, ...]) -> bytes:
    return decision_pb2.Decision(**dict(zip(_ALIKE, values, strict=True))).SerializeToString()


@lru_cache(_REMEMBERED)
def _alternatives(alternatives: tuple[Alternative, ...]) -> bytes:
    message = decision_pb2.Decision(alternatives=map(messages.alternative_message, alternatives))
    return message.SerializeToString()


@lru_cache(_REMEMBERED)
def _pool(name: str, tier: FormatTier, context_class: str) -> bytes:
    return decision_pb2.Decision(pool=name, tier=tier, context_class=context_class).SerializeToString()


@lru_cache(_REMEMBERED)
def _contexts(contexts: Contexts) -> bytes:
    return decision_pb2.Decision(contexts=messages.contexts_message(contexts)).SerializeToString()


@lru_cache(_REMEMBERED)
def _sensitivity(sensitivity: Sensitivity) -> bytes:
    return decision_pb2.Decision(sensitivity=messages.sensitivity_message(sensitivity)).SerializeToString()


@lru_cache(_REMEMBERED)
def _pressure(pressure: TierPressure) -> bytes:
    return decision_pb2.Decision(pressure=messages.pressure_message(pressure)).SerializeToString()


@lru_cache(_REMEMBERED)
def _would_do(would_do: WouldDo) -> bytes:
    return decision_pb2.Decision(would_do=messages.would_do_message(would_do)).SerializeToString()


def _own(decision: Decision) -> bytes:
    """What hardly any other request has the same."""
    own: dict[str, Any] = {}
    if (budget := decision.budget) is not None:
        own["budget"] = {
            "prompt_tokens": budget.prompt_tokens,
            "output_tokens": budget.output_tokens,
            "category": budget.category,
            "ratio": budget.ratio,
            "output_from": budget.output_from,
            "likely_prompt_tokens": budget.likely_prompt_tokens,
            "rests_on": budget.rests_on,
            "samples": budget.samples,
        }
    if (features := decision.features) is not None:
        own["features"] = {
            "text": features.text,
            "messages": features.messages,
            "tools": features.tools,
            "calls": features.calls,
            "images": features.images,
            "token_ids": features.token_ids,
            "schema_bytes": features.schema_bytes,
            "is_cut": features.is_cut,
        }
    if decision.session:
        own["session"] = session_digest(decision.session)
    if decision.waited_seconds:
        own["waited_seconds"] = decision.waited_seconds
    return decision_pb2.Decision(**own).SerializeToString()
