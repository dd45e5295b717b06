"""The body as a decision has it sent: the engine's name for the model, a cap on the output, the tier as a priority.

Nothing else of it changes; None means that it is sent as it came.
"""

from __future__ import annotations

from collections.abc import Iterator

from controlplane.model import Ask, Decision, Endpoint, QosTier
from controlplane.policy.qos import Mode, QosRules
from ext_proc.rewrite import cap_output, replace_model, set_member

# The members that may hold a request's output cap; where none does, the first is set, which all engines know.
_CAPS = {
    Endpoint.CHAT: ("max_tokens", "max_completion_tokens"),
    Endpoint.COMPLETIONS: ("max_tokens",),
    Endpoint.RESPONSES: ("max_output_tokens",),
    Endpoint.MESSAGES: ("max_tokens",),
}
# llama.cpp takes its own name for it before all others.
_OTHER_CAPS = ("n_predict",)
# https://docs.vllm.ai/en/latest/serving/openai_compatible_server: lower is sooner
_PRIORITIES = {tier: str(rank) for rank, tier in enumerate(QosTier)}


def shaped_body(body: bytes, ask: Ask, decision: Decision, qos: QosRules) -> bytes | None:
    """The body for the pool of a decision that sends its request. Raises TooManyMembersError."""
    shaped = body
    pool = decision.pool
    if pool is not None and ask.model is not None and ask.model != pool.served_name and ask.model not in pool.aliases:
        shaped = replace_model(shaped, pool.served_name)
    if decision.output_limit is not None:
        shaped = cap_output(shaped, decision.output_limit, _CAPS[decision.endpoint], _OTHER_CAPS)
    if qos.engine_priority and qos.mode is Mode.ENABLED and ask.endpoint in qos.shapes and decision.qos_tier:
        shaped = set_member(shaped, "priority", _PRIORITIES[decision.qos_tier])
    return None if shaped is body else shaped


def degraded_to(decision: Decision) -> str:
    """What a client gets less of, for a response header; empty when nothing."""
    return ", ".join(_less(decision))


def _less(decision: Decision) -> Iterator[str]:
    if decision.asked_model:
        yield f"model={decision.model}"
    if decision.output_limit is not None:
        yield f"max_tokens={decision.output_limit}"
