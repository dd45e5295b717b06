"""One line in the log for a request: what was decided, why, and what became of it. No prompt; of a session a digest.

Every decision is in the ledger; this is for those who gather logs. The control plane writes it, and not the filter: it
alone knows the outcome, and is in no request's way.
"""

from __future__ import annotations

import logging
from hashlib import blake2b
from typing import Any

from controlplane.ledger.encoding import message_of
from controlplane.ledger.ended import Ended
from controlplane.policy.sla import Judged
from headrace_protos.headrace.v1 import decision_pb2

_log = logging.getLogger(__name__)

# Of names that clients may have made up.
LONGEST_TEXT = 200


class DecisionLog:
    """Logs `share` of the requests, 0 to 1, chosen by their ids: the same ones everywhere and each time."""

    def __init__(self, share: float) -> None:
        self._below = round(share * 2**64)

    def request_finished(self, ended: Ended, judged: Judged | None) -> None:
        if self._below and _place(ended.request_id) < self._below:
            _log.info("decision", extra={"fields": {"decision": logged_fields(message_of(ended), judged)}})


def logged_fields(recorded: decision_pb2.RecordedDecision, judged: Judged | None) -> dict[str, Any]:
    """What is not known is left out. Times in milliseconds."""
    decision, outcome = recorded.decision, recorded.outcome
    fields: dict[str, Any] = {
        "request_id": recorded.request_id,
        "began": recorded.time.ToJsonString() if recorded.HasField("time") else "",
        "tenant": decision.tenant,
        "session": decision.session,
        "qos_tier": decision.qos_tier,
        "action": decision.action,
        "reasons": list(decision.reasons),
        "endpoint": decision.endpoint,
        "model": decision.model,
        "verdict": decision.sensitivity.verdict,
        "pinned": decision.pinned,
        "pool": decision.pool,
        "tier": decision.tier,
        "stream": decision.stream,
        "refusal": decision.refusal.code,
        "node_id": outcome.node_id,
        "upstream": outcome.upstream,
        "flags": list(outcome.flags),
        "sla": str(judged.judgement) if judged else "",
        "sla_cause": str(judged.cause) if judged else "",
    }
    if decision.HasField("budget"):
        fields["budget_tokens"] = decision.budget.prompt_tokens + decision.budget.output_tokens
    if decision.waited_seconds:
        fields["waited_ms"] = _milliseconds(decision.waited_seconds)
    for name, key in (("received_seconds", "received_ms"), ("first_content_seconds", "first_content_ms")):
        if outcome.HasField(name):
            fields[key] = _milliseconds(getattr(outcome, name))
    for name in ("prompt_tokens", "completion_tokens"):
        if outcome.HasField(name):
            fields[name] = getattr(outcome, name)
    shown = {key: _cut(value) for key, value in fields.items() if value not in ("", [])}
    return {**shown, "status": outcome.status, "duration_ms": _milliseconds(outcome.duration_seconds)}


def _place(request_id: str) -> int:
    """Evenly among 2**64."""
    return int.from_bytes(blake2b(request_id.encode(), digest_size=8).digest(), "big")


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 1)


def _cut(value: Any) -> Any:
    return value[:LONGEST_TEXT] if isinstance(value, str) else value
