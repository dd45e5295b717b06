"""A recorded decision as one row: what is filtered and counted by as columns, and the whole message as bytes.

What comes from outside is made fit for every database: bounded in length, and without the null character, which
PostgreSQL takes in no text.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace_protos.headrace.v1 import decision_pb2

MOST_CHARACTERS = 200  # of one text; far below what an index entry may hold
MOST_ITEMS = 16  # reasons or flags
MOST_MESSAGE_BYTES = 64 * 1024
_YEAR_2200 = 7_258_118_400_000_000


class Row(NamedTuple):
    """`recorded` is in Unix microseconds, and with `recorder` names the row. Durations are in seconds.

    `status` 0 is a client that left before there was one. None is what is not known or does not apply.
    """

    recorded: int
    recorder: int
    status: int
    model: str
    pool: str
    tier: str
    tenant: str
    verdict: str
    reasons: tuple[str, ...]
    misroute: str
    session: str
    request_id: str
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
    message: bytes

    @property
    def key(self) -> tuple[int, int]:
        return self.recorded, self.recorder


class Recorded:
    """A decision as it was recorded at `at`, in Unix microseconds. Its row is made when it is first asked for, since
    many are never written or looked at."""

    __slots__ = ("_row", "at", "message")

    def __init__(self, message: decision_pb2.RecordedDecision) -> None:
        self.at = message.recorded.ToMicroseconds()
        self.message = message
        self._row: Row | None = None

    @property
    def row(self) -> Row:
        if self._row is None:
            self._row = row_of(self.message)
        return self._row


def row_of(message: decision_pb2.RecordedDecision) -> Row:
    """The row of a message whose `recorded` and `recorder` are set."""
    decision, outcome = message.decision, message.outcome
    sensitivity = decision.sensitivity if decision.HasField("sensitivity") else None
    budget = decision.budget if decision.HasField("budget") else None
    recorded, started, status = message.recorded.ToMicroseconds(), message.time.ToMicroseconds(), outcome.status
    return Row(
        recorded=recorded,
        recorder=message.recorder,
        status=status if status < 1000 else 0,
        model=_fit(decision.model),
        pool=_fit(decision.pool),
        tier=_fit(decision.tier),
        tenant=_fit(decision.tenant),
        verdict=_fit(sensitivity.verdict) if sensitivity is not None else "",
        reasons=tuple([_fit(reason) for reason in decision.reasons[:MOST_ITEMS]]),
        misroute=_fit(message.misroute),
        session=_fit(decision.session),
        request_id=_fit(message.request_id),
        endpoint=_fit(decision.endpoint),
        action=_fit(decision.action),
        pinned=_fit(decision.pinned),
        stream=decision.stream,
        score=sensitivity.score if sensitivity is not None else None,
        budget_prompt_tokens=budget.prompt_tokens if budget is not None else None,
        budget_output_tokens=budget.output_tokens if budget is not None else None,
        cluster=_fit(outcome.cluster),
        upstream=_fit(outcome.upstream),
        node_id=_fit(outcome.node_id),
        started=started if 0 <= started < _YEAR_2200 else recorded,
        duration=outcome.duration_seconds,
        first_byte=outcome.first_byte_seconds if outcome.HasField("first_byte_seconds") else None,
        prompt_tokens=outcome.prompt_tokens if outcome.HasField("prompt_tokens") else None,
        completion_tokens=outcome.completion_tokens if outcome.HasField("completion_tokens") else None,
        attempts=outcome.attempts,
        flags=tuple([_fit(flag) for flag in outcome.flags[:MOST_ITEMS]]),
        message=_bounded(message),
    )


def _fit(text: str) -> str:
    if "\0" in text:
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 3] + "..."


def _bounded(message: decision_pb2.RecordedDecision) -> bytes:
    """The filter bounds what it says of a decision; whoever else writes to the access log does not. Then what is looked
    for by filters is kept, and little more."""
    encoded = message.SerializeToString()
    if len(encoded) <= MOST_MESSAGE_BYTES:
        return encoded
    decision, outcome = message.decision, message.outcome
    short = decision_pb2.RecordedDecision(
        request_id=_fit(message.request_id),
        time=message.time,
        recorded=message.recorded,
        recorder=message.recorder,
        misroute=_fit(message.misroute),
        decision=decision_pb2.Decision(
            action=_fit(decision.action),
            model=_fit(decision.model),
            pool=_fit(decision.pool),
            tier=_fit(decision.tier),
            reasons=[_fit(reason) for reason in decision.reasons[:MOST_ITEMS]],
            sensitivity=decision_pb2.Sensitivity(verdict=_fit(decision.sensitivity.verdict)),
            tenant=_fit(decision.tenant),
            session=_fit(decision.session),
        ),
        outcome=decision_pb2.Outcome(
            status=outcome.status, upstream=_fit(outcome.upstream), duration_seconds=outcome.duration_seconds
        ),
    )
    return short.SerializeToString()
