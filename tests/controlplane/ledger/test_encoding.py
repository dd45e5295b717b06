"""Requests that have ended as messages, and back: the short way says what the long way does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.ledger.encoding import Place, encoded, ended_of, message_of
from controlplane.ledger.ended import NOT_DECIDED, Decided, Ended, Outcome, decided
from headrace_protos.headrace.v1 import decision_head_pb2, decision_pb2

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
COUNTS = st.integers(0, 2**31 - 1)
TIMES = st.none() | st.floats(0, 1e9)
OUTCOMES = st.builds(
    Outcome,
    status=st.integers(0, 999),
    upstream=TEXTS,
    cluster=TEXTS,
    duration_seconds=st.floats(0, 1e9),
    first_byte_seconds=TIMES,
    prompt_tokens=st.none() | COUNTS,
    completion_tokens=st.none() | COUNTS,
    flags=st.lists(TEXTS, max_size=3).map(tuple),
    attempts=COUNTS,
    details=TEXTS,
    node_id=TEXTS,
    node_session_id=TEXTS,
    received_seconds=TIMES,
    first_content_seconds=TIMES,
    last_byte_seconds=TIMES,
    finish_reason=TEXTS,
    context_exceeded=st.booleans(),
    usage_unreadable=st.booleans(),
)
DECISIONS = st.builds(
    lambda model, reasons, verdict, score, cap, text: decision_pb2.Decision(
        model=model,
        reasons=reasons,
        sensitivity=decision_pb2.Sensitivity(verdict=verdict, score=score),
        output_cap=cap,
        features=decision_pb2.Features(text=text),
        alternatives=[decision_pb2.Alternative(pool=model, scores={"room": 0.5})],
    ).SerializeToString(deterministic=True),
    TEXTS,
    st.lists(TEXTS, max_size=20),
    TEXTS,
    st.floats(-1e6, 1e6),
    st.none() | COUNTS,
    st.lists(COUNTS, max_size=20),
)


@st.composite
def requests(draw: st.DrawFn) -> Ended:
    decision = draw(st.none() | DECISIONS)
    return Ended(
        draw(TEXTS),
        draw(st.integers(0, 2**33)),
        draw(st.integers(0, 999_999_999)),
        NOT_DECIDED if decision is None else decided(decision),
        decision,
        draw(OUTCOMES),
        draw(TEXTS),
        draw(COUNTS),
        draw(COUNTS),
        draw(TEXTS),
    )


@given(requests())
def test_what_was_read_is_in_the_message_and_nothing_of_it_is_lost(ended: Ended) -> None:
    message = message_of(ended)
    assert ended_of(message) == ended
    assert decision_pb2.RecordedDecision.FromString(message.SerializeToString()) == message


@given(requests(), st.integers(0, 2**52), COUNTS)
def test_its_place_comes_to_it(ended: Ended, recorded: int, recorder: int) -> None:
    message = decision_pb2.RecordedDecision.FromString(encoded(ended, Place(recorded, recorder)))
    assert (message.recorded.ToMicroseconds(), message.recorder) == (recorded, recorder)
    message.ClearField("recorded")
    message.ClearField("recorder")
    assert message == message_of(ended)


def test_what_is_looked_at_of_a_decision_stands_where_the_decision_has_it() -> None:
    """Numbers and types, so that the same bytes are read."""
    for head in decision_head_pb2.DESCRIPTOR.message_types_by_name.values():
        whole = decision_pb2.DESCRIPTOR.message_types_by_name[head.name.removesuffix("Head")]
        for field in head.fields:
            of_whole = whole.fields_by_name[field.name]
            kinds = [(each.number, each.type, each.is_repeated, each.has_presence) for each in (field, of_whole)]
            assert kinds[0] == kinds[1], field.full_name


def test_each_thing_that_is_looked_at_is_read_from_its_field() -> None:
    whole = decision_pb2.Decision(
        endpoint="chat",
        model="model",
        pool="pool",
        tier="full",
        reasons=["one", "two"],
        sensitivity=decision_pb2.Sensitivity(verdict="neutral", score=12.5),
        budget=decision_pb2.Budget(category="prose"),
        pinned="quantized",
        refusal=decision_pb2.Refusal(status=429),
        stream=True,
        tenant="name:acme",
        session="id:1",
        qos_tier="standard",
        features=decision_pb2.Features(text=[1, 2, 3], is_cut=True),
        output_cap=500,
        choices=2,
        contexts=decision_pb2.Contexts(chosen=3, smaller=2, larger=4),
        output_limit=300,
    )
    assert decided(whole.SerializeToString()) == Decided(
        endpoint="chat",
        model="model",
        pool="pool",
        tier="full",
        reasons=("one", "two"),
        verdict="neutral",
        score=12.5,
        category="prose",
        pinned="quantized",
        refused=True,
        stream=True,
        tenant="name:acme",
        session="id:1",
        qos_tier="standard",
        text_counts=3,
        is_cut=True,
        cap=300,
        choices=2,
        chosen=3,
        smaller=2,
        larger=4,
    )
    assert decided(b"") == NOT_DECIDED
