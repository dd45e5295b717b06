"""A request that has ended as a headrace.v1.RecordedDecision, and back.

Encoded messages that follow each other are one with the fields of all. So what many requests have the same is encoded
once and remembered, and the decision stays as the filter encoded it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp

from controlplane.ledger.ended import NOT_DECIDED, Ended, Outcome, decided
from headrace_protos.headrace.v1 import decision_pb2

_REMEMBERED = 4096
# Of the outcome, what many requests have the same.
_ALIKE: Final = (
    "status",
    "upstream",
    "cluster",
    "flags",
    "attempts",
    "details",
    "node_id",
    "node_session_id",
    "finish_reason",
    "context_exceeded",
    "usage_unreadable",
)
_alike_of: Final[Callable[[Outcome], tuple[Any, ...]]] = attrgetter(*_ALIKE)
_DECISION = b"\x1a"  # the field `decision`, of a length that follows


class Place(NamedTuple):
    """When and by which control plane something was recorded, `recorded` in Unix microseconds."""

    recorded: int
    recorder: int


def encoded(ended: Ended, place: Place | None = None) -> bytes:
    """Without a place before it is recorded."""
    alike = _alike(ended.worker, ended.worker_minute, ended.misroute, _alike_of(ended.outcome))
    decision = ended.encoded
    if decision is None:
        return alike + _own(ended, place)
    return b"".join((_own(ended, place), _DECISION, _varint(len(decision)), decision, alike))


def message_of(ended: Ended) -> decision_pb2.RecordedDecision:
    return decision_pb2.RecordedDecision.FromString(encoded(ended))


def ended_of(message: decision_pb2.RecordedDecision) -> Ended:
    """The other way round. Raises DecodeError."""
    made = message.decision.SerializeToString() if message.HasField("decision") else None
    outcome = message.outcome
    return Ended(
        message.request_id,
        message.time.seconds,
        message.time.nanos,
        NOT_DECIDED if made is None else decided(made),
        made,
        Outcome(**{name: _value(outcome, name) for name in Outcome.__struct_fields__}),
        message.worker,
        message.worker_minute,
        message.worker_number,
        message.misroute,
    )


def _value(outcome: decision_pb2.Outcome, name: str) -> Any:
    field = outcome.DESCRIPTOR.fields_by_name[name]
    if field.has_presence and not outcome.HasField(name):
        return None
    value = getattr(outcome, name)
    return tuple(value) if field.is_repeated else value


@lru_cache(_REMEMBERED)
def _alike(worker: str, minute: int, misroute: str, of_outcome: tuple[Any, ...]) -> bytes:
    outcome = decision_pb2.Outcome(**dict(zip(_ALIKE, of_outcome, strict=True)))
    return decision_pb2.RecordedDecision(
        worker=worker, worker_minute=minute, misroute=misroute, outcome=outcome
    ).SerializeToString()


def _own(ended: Ended, place: Place | None) -> bytes:
    """What hardly any other request has the same."""
    outcome, recorded = ended.outcome, None
    if place is not None:
        seconds, microseconds = divmod(place.recorded, 1_000_000)
        recorded = Timestamp(seconds=seconds, nanos=microseconds * 1000)
    return decision_pb2.RecordedDecision(
        request_id=ended.request_id,
        time=Timestamp(seconds=ended.began_seconds, nanos=ended.began_nanos),
        recorded=recorded,
        recorder=0 if place is None else place.recorder,
        worker_number=ended.worker_number,
        outcome=decision_pb2.Outcome(
            duration_seconds=outcome.duration_seconds,
            first_byte_seconds=outcome.first_byte_seconds,
            prompt_tokens=outcome.prompt_tokens,
            completion_tokens=outcome.completion_tokens,
            received_seconds=outcome.received_seconds,
            first_content_seconds=outcome.first_content_seconds,
            last_byte_seconds=outcome.last_byte_seconds,
        ),
    ).SerializeToString()


def _varint(number: int) -> bytes:
    """As protobuf writes lengths: seven bits a byte, the lowest first."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)
