"""What the access log teaches of a model's tokens: one observation per answered request that has usage, or why none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from enum import StrEnum

from controlplane.features import TextCounts
from controlplane.learning.statistics import Observation
from controlplane.ledger.ended import Ended
from controlplane.messages import cap_told, features
from headrace_protos.headrace.v1 import calibration_pb2, decision_pb2


class Lesson(StrEnum):
    """What an answered request taught, as in `UsageCount.result`."""

    LEARNED = "learned"
    NOT_NEEDED = "not_needed"
    NO_USAGE = "no_usage"
    UNREADABLE = "unreadable"
    IMPLAUSIBLE = "implausible"
    CUT = "cut"
    FAILED = "failed"
    NOT_ESTIMATED = "not_estimated"
    UNKNOWN_MODEL = "unknown_model"


# Of requests that could have taught something, those that told their usage and those that did not.
TOLD_USAGE = (Lesson.LEARNED, Lesson.NOT_NEEDED)
TAUGHT_NOTHING = (Lesson.NO_USAGE, Lesson.UNREADABLE, Lesson.IMPLAUSIBLE, Lesson.CUT)


def taught_nothing(ended: Ended, served: Container[str]) -> Lesson | None:
    """Why nothing can be learned from a request that an engine was asked about; None when it can. `served` are the
    models of the fleet: what anybody else names is not kept."""
    decision, outcome = ended.decision, ended.outcome
    if outcome.status != 200:
        return Lesson.FAILED
    if decision.text_counts != len(TextCounts._fields):  # of another version, or none
        return Lesson.NOT_ESTIMATED
    if decision.is_cut:
        return Lesson.CUT
    if outcome.prompt_tokens is None:
        return Lesson.UNREADABLE if outcome.usage_unreadable else Lesson.NO_USAGE
    return None if decision.model in served else Lesson.UNKNOWN_MODEL


def observation_of(recorded: decision_pb2.RecordedDecision) -> Observation:
    """Of a request that can be learned from."""
    decision, outcome = recorded.decision, recorded.outcome
    counted = features(decision.features)
    assert counted is not None
    choices = max(1, decision.choices)
    # An answer that was cut off, or of which only the sum over several choices is known, does not tell how long it is.
    is_whole = choices == 1 and not outcome.flags and outcome.HasField("completion_tokens")
    return Observation(
        model=decision.model,
        tenant=decision.tenant,
        features=counted,
        prompt_tokens=outcome.prompt_tokens,
        output_tokens=outcome.completion_tokens if is_whole else None,
        output_cap=cap_told(decision),
        reserved_output=decision.budget.output_tokens // choices,
    )


class Tally:
    """Counts answered requests by what they taught, from the start of the process."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[Lesson, bool]] = Counter()

    def count(self, lesson: Lesson, *, streamed: bool) -> None:
        self._counts[lesson, streamed] += 1

    def messages(self) -> list[calibration_pb2.UsageCount]:
        """Ordered by result."""
        return [
            calibration_pb2.UsageCount(result=lesson, streamed=streamed, requests=requests)
            for (lesson, streamed), requests in sorted(self._counts.items())
        ]
