"""A recorded decision as one row: what is filtered by as columns, and the whole message as bytes.

What comes from outside is made fit for every database: bounded in length, and without the null character, which
PostgreSQL takes in no text.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp

from controlplane.ledger.encoding import Place, encoded, ended_of
from controlplane.ledger.ended import Ended
from headrace_protos.headrace.v1 import decision_pb2

MOST_CHARACTERS = 200  # of one text; far below what an index entry may hold
MOST_ITEMS = 16  # reasons or flags
MOST_MESSAGE_BYTES = 64 * 1024
_REMEMBERED = 1024


class Row(NamedTuple):
    """`recorded` is in Unix microseconds, and with `recorder` names the row. `status` 0 is a client that left before
    there was one. `message` is the whole, as headrace.v1.RecordedDecision."""

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
    worker: str
    worker_minute: int
    worker_number: int
    message: bytes

    @property
    def key(self) -> tuple[int, int]:
        return self.recorded, self.recorder


class Recorded:
    """What `recorder` recorded at `at`, in Unix microseconds. Its row is made when it is first asked for, since many
    are never written or looked at."""

    __slots__ = ("_row", "at", "ended", "recorder")

    def __init__(self, ended: Ended, at: int, recorder: int) -> None:
        self.ended = ended
        self.at = at
        self.recorder = recorder
        self._row: Row | None = None

    @property
    def row(self) -> Row:
        if self._row is None:
            self._row = _row(self.ended, self.at, self.recorder)
        return self._row


def _row(ended: Ended, recorded: int, recorder: int) -> Row:
    decision, status = ended.decision, ended.outcome.status
    model, pool, tier, tenant, verdict = _all_fit(
        (decision.model, decision.pool, decision.tier, decision.tenant, decision.verdict)
    )
    message = encoded(ended, Place(recorded, recorder))
    if len(message) > MOST_MESSAGE_BYTES:
        message = _bounded(decision_pb2.RecordedDecision.FromString(message))
    return Row(
        recorded=recorded,
        recorder=recorder,
        status=status if status < 1000 else 0,
        model=model,
        pool=pool,
        tier=tier,
        tenant=tenant,
        verdict=verdict,
        reasons=_all_fit(decision.reasons[:MOST_ITEMS]),
        misroute=ended.misroute,
        session=fit(decision.session),
        request_id=fit(ended.request_id),
        worker=fit(ended.worker),
        worker_minute=ended.worker_minute,
        worker_number=ended.worker_number,
        message=message,
    )


def row_of(message: decision_pb2.RecordedDecision) -> Row:
    """The row of a message whose `recorded` and `recorder` are set."""
    return Recorded(ended_of(message), microseconds(message.recorded), message.recorder).row


def microseconds(time: Timestamp) -> int:
    """Since 1970; as `ToMicroseconds`, which is written in Python and checks each time."""
    return time.seconds * 1_000_000 + time.nanos // 1_000


@lru_cache(_REMEMBERED)
def _all_fit(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Of texts that many requests have the same."""
    return tuple(map(fit, texts))


def fit(text: str) -> str:
    """Made fit for every database."""
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
        request_id=fit(message.request_id),
        time=message.time,
        recorded=message.recorded,
        recorder=message.recorder,
        worker=fit(message.worker),
        worker_minute=message.worker_minute,
        worker_number=message.worker_number,
        misroute=fit(message.misroute),
        decision=decision_pb2.Decision(
            action=fit(decision.action),
            model=fit(decision.model),
            pool=fit(decision.pool),
            tier=fit(decision.tier),
            reasons=[fit(reason) for reason in decision.reasons[:MOST_ITEMS]],
            sensitivity=decision_pb2.Sensitivity(verdict=fit(decision.sensitivity.verdict)),
            tenant=fit(decision.tenant),
            session=fit(decision.session),
        ),
        outcome=decision_pb2.Outcome(
            status=outcome.status, upstream=fit(outcome.upstream), duration_seconds=outcome.duration_seconds
        ),
    )
    return short.SerializeToString()
