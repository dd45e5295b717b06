"""A request that has ended, as all who are told of it see it: each thing that anybody looks at, read once.

What is only kept stays encoded. `encoding` makes the whole message of it.
"""

from __future__ import annotations

import msgspec

from controlplane.messages import cap_told
from headrace_protos.headrace.v1 import decision_head_pb2


class Decided(msgspec.Struct, frozen=True, gc=False):
    """Of the decision; each as in headrace.v1.Decision, an empty text or 0 where that has nothing.

    `cap` is the most tokens that the engine was told to give in each answer. `chosen`, `smaller` and `larger` are of
    its contexts. Of its features, how many counts of the text there are, and whether they are of the whole body.
    """

    model: str = ""
    pool: str = ""
    tier: str = ""
    tenant: str = ""
    session: str = ""
    reasons: tuple[str, ...] = ()
    verdict: str = ""
    score: float = 0.0
    qos_tier: str = ""
    endpoint: str = ""
    pinned: str = ""
    stream: bool = False
    refused: bool = False
    choices: int = 0
    cap: int | None = None
    chosen: int = 0
    smaller: int = 0
    larger: int = 0
    category: str = ""
    text_counts: int = 0
    is_cut: bool = False


NOT_DECIDED = Decided()


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """As headrace.v1.Outcome; None is unset."""

    status: int = 0
    upstream: str = ""
    cluster: str = ""
    duration_seconds: float = 0.0
    first_byte_seconds: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    flags: tuple[str, ...] = ()
    attempts: int = 0
    details: str = ""
    node_id: str = ""
    node_session_id: str = ""
    received_seconds: float | None = None
    first_content_seconds: float | None = None
    last_byte_seconds: float | None = None
    finish_reason: str = ""
    context_exceeded: bool = False
    usage_unreadable: bool = False


class Ended(msgspec.Struct, frozen=True, gc=False):
    """When it began is by Envoy's clock, in Unix seconds and nanoseconds. `encoded` is the decision as the filter
    encoded it; None where there is none, or it cannot be read, and `decision` then is NOT_DECIDED. The rest is as in
    headrace.v1.RecordedDecision."""

    request_id: str = ""
    began_seconds: int = 0
    began_nanos: int = 0
    decision: Decided = NOT_DECIDED
    encoded: bytes | None = None
    outcome: Outcome = Outcome()
    worker: str = ""
    worker_minute: int = 0
    worker_number: int = 0
    misroute: str = ""


def decided(encoded: bytes) -> Decided:
    """Of a headrace.v1.Decision. Raises DecodeError."""
    head = decision_head_pb2.DecisionHead.FromString(encoded)
    sensitivity, contexts, features = head.sensitivity, head.contexts, head.features
    return Decided(
        model=head.model,
        pool=head.pool,
        tier=head.tier,
        tenant=head.tenant,
        session=head.session,
        reasons=tuple(head.reasons),
        verdict=sensitivity.verdict,
        score=sensitivity.score,
        qos_tier=head.qos_tier,
        endpoint=head.endpoint,
        pinned=head.pinned,
        stream=head.stream,
        refused=head.HasField("refusal"),
        choices=head.choices,
        cap=cap_told(head),
        chosen=contexts.chosen,
        smaller=contexts.smaller,
        larger=contexts.larger,
        category=head.budget.category,
        text_counts=len(features.text),
        is_cut=features.is_cut,
    )
