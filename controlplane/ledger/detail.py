"""What PostgreSQL shows of a decision in columns besides those that filters look at, for people who write SQL."""

from __future__ import annotations

from typing import NamedTuple

from controlplane.ledger.row import MOST_ITEMS, Row, fit
from headrace_protos.headrace.v1 import decision_pb2

_YEAR_2200 = 7_258_118_400_000_000


class Detail(NamedTuple):
    """`started` is in Unix microseconds, durations are in seconds. None is what is not known or does not apply."""

    endpoint: str
    action: str
    pinned: str
    stream: bool
    score: float | None
    budget_prompt_tokens: int | None
    budget_output_tokens: int | None
    cluster: str
    upstream: str
    node_id: str
    started: int
    duration: float
    first_byte: float | None
    prompt_tokens: int | None
    completion_tokens: int | None
    attempts: int
    flags: tuple[str, ...]


def detail_of(row: Row) -> Detail:
    """Of a message that was longer than a row keeps, only what is left of it."""
    message = decision_pb2.RecordedDecision.FromString(row.message)
    decision, outcome = message.decision, message.outcome
    sensitivity = decision.sensitivity if decision.HasField("sensitivity") else None
    budget = decision.budget if decision.HasField("budget") else None
    started = message.time.ToMicroseconds()
    return Detail(
        endpoint=fit(decision.endpoint),
        action=fit(decision.action),
        pinned=fit(decision.pinned),
        stream=decision.stream,
        score=sensitivity.score if sensitivity is not None else None,
        budget_prompt_tokens=budget.prompt_tokens if budget is not None else None,
        budget_output_tokens=budget.output_tokens if budget is not None else None,
        cluster=fit(outcome.cluster),
        upstream=fit(outcome.upstream),
        node_id=fit(outcome.node_id),
        started=started if 0 <= started < _YEAR_2200 else row.recorded,
        duration=outcome.duration_seconds,
        first_byte=outcome.first_byte_seconds if outcome.HasField("first_byte_seconds") else None,
        prompt_tokens=outcome.prompt_tokens if outcome.HasField("prompt_tokens") else None,
        completion_tokens=outcome.completion_tokens if outcome.HasField("completion_tokens") else None,
        attempts=outcome.attempts,
        flags=tuple(map(fit, outcome.flags[:MOST_ITEMS])),
    )
