"""What an entry of the access log teaches of tokens, and why others teach nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec import structs

from controlplane.estimation.lessons import Lesson, Tally, observation_of, taught_nothing
from controlplane.ledger.encoding import ended_of
from controlplane.messages import features_message
from headrace_protos.headrace.v1 import decision_pb2
from support.usage import MODEL, make_features, recorded, report

SERVED = {MODEL}
Change = Callable[[decision_pb2.RecordedDecision], None]


def test_an_answered_request_is_an_observation() -> None:
    given = report(output_tokens=70, output_cap=100)
    assert taught_nothing(ended_of(recorded(given)), SERVED) is None
    assert observation_of(recorded(given)) == given
    open_ended = report(output_tokens=70)
    assert observation_of(recorded(open_ended)) == open_ended


@pytest.mark.parametrize(
    ("change", "lesson"),
    [
        (lambda r: r.outcome.ClearField("prompt_tokens"), Lesson.NO_USAGE),
        (
            lambda r: (r.outcome.ClearField("prompt_tokens"), setattr(r.outcome, "usage_unreadable", True)),
            Lesson.UNREADABLE,
        ),
        (lambda r: setattr(r.outcome, "status", 400), Lesson.FAILED),
        (lambda r: setattr(r.outcome, "status", 0), Lesson.FAILED),
        (lambda r: r.decision.ClearField("features"), Lesson.NOT_ESTIMATED),
        (lambda r: r.decision.features.text.pop(), Lesson.NOT_ESTIMATED),  # of another version
        (lambda r: setattr(r.decision.features, "is_cut", True), Lesson.CUT),
        (lambda r: setattr(r.decision, "model", "not-served"), Lesson.UNKNOWN_MODEL),
    ],
)
def test_what_tells_no_tokens_teaches_nothing(change: Change, lesson: Lesson) -> None:
    """Facts row: production code (what is not learned from)."""
    message = recorded(report())
    change(message)
    assert taught_nothing(ended_of(message), SERVED) is lesson


def test_an_answer_that_was_cut_off_or_is_one_of_several_tells_the_prompt_alone() -> None:
    given = report(output_tokens=70)
    cut_off = recorded(given, flags=["downstream_connection_termination"])
    several = recorded(given)
    several.decision.choices = 3
    uncounted = recorded(given)
    uncounted.outcome.ClearField("completion_tokens")
    for message in (cut_off, several, uncounted):
        assert observation_of(message) == replace(given, output_tokens=None)


def test_what_pressure_capped_counts_as_capped() -> None:
    message = recorded(report(output_tokens=64))
    message.decision.output_limit = 64
    observation = observation_of(message)
    assert (observation.output_cap, observation.output_tokens) == (64, 64)


def test_what_is_reserved_is_for_one_choice() -> None:
    message = recorded(report(output_cap=50))
    message.decision.choices, message.decision.budget.output_tokens = 4, 200
    observation = observation_of(message)
    assert (observation.output_cap, observation.reserved_output) == (50, 50)


def test_features_come_through_messages_as_they_were() -> None:
    features = structs.replace(make_features("mixed", 40, 1), tools=2, calls=3, images=4, token_ids=5, schema_bytes=6)
    message = recorded(replace(report(), features=features))
    assert message.decision.features == features_message(features)
    observation = observation_of(message)
    assert observation.features == features


def test_answered_requests_are_counted_by_what_they_taught_streamed_and_not() -> None:
    tally = Tally()
    for lesson, streamed in ((Lesson.LEARNED, True), (Lesson.NO_USAGE, True), (Lesson.NO_USAGE, True)):
        tally.count(lesson, streamed=streamed)
    tally.count(Lesson.LEARNED, streamed=False)
    counted = {(each.result, each.streamed): each.requests for each in tally.messages()}
    assert counted == {("learned", True): 1, ("learned", False): 1, ("no_usage", True): 2}
