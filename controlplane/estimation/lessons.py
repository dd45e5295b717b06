"""What the access log teaches of a model's tokens: one observation per answered request that has usage, or why none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from enum import StrEnum

from controlplane.learning.statistics import Observation
from controlplane.messages import cap_told, features
from headrace_protos.headrace.v1 import calibration_pb2, decision_pb2


class Lesson(StrEnum):
    """What an answered request taught, as in `UsageCount.result`."""

    LEARNED = "learned"
    NO_USAGE = "no_usage"
    UNREADABLE = "unreadable"
    IMPLAUSIBLE = "implausible"
    CUT = "cut"
    FAILED = "failed"
    NOT_ESTIMATED = "not_estimated"
    UNKNOWN_MODEL = "unknown_model"


# Of requests that could have taught something.
TAUGHT_NOTHING = (Lesson.NO_USAGE, Lesson.UNREADABLE, Lesson.IMPLAUSIBLE, Lesson.CUT)


def observation_of(recorded: decision_pb2.RecordedDecision, served: Container[str]) -> Observation | Lesson | None:
    """What is learned from, or why nothing is; None for a request that no engine was asked about. `served` are the
    models of the fleet: what anybody else names is not kept."""
    decision, outcome = recorded.decision, recorded.outcome
    if not decision.pool:
        return None
    counted = features(decision.features) if decision.HasField("features") else None
    nothing: Lesson | None = None
    if outcome.status != 200:
        nothing = Lesson.FAILED
    elif counted is None:
        nothing = Lesson.NOT_ESTIMATED
    elif counted.is_cut:
        nothing = Lesson.CUT
    elif not outcome.HasField("prompt_tokens"):
        nothing = Lesson.UNREADABLE if outcome.usage_unreadable else Lesson.NO_USAGE
    elif decision.model not in served:
        nothing = Lesson.UNKNOWN_MODEL
    if nothing is not None or counted is None:
        return nothing
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
