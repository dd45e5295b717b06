"""Whether a context class was the right one, by what came of the request."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.ledger.encoding import ended_of
from controlplane.ledger.mistakes import Misroute, misroute
from headrace_protos.headrace.v1 import decision_pb2

POOL = "llama/full/short/on_demand"
SHORT = {"chosen": 8192, "larger": 32_768}
MIDDLE = {"chosen": 32_768, "smaller": 8192, "larger": 131_072}
LONG = {"chosen": 131_072, "smaller": 32_768}


def decision(contexts: dict[str, int], cap: int | None = None, choices: int = 1) -> decision_pb2.Decision:
    return decision_pb2.Decision(
        contexts=decision_pb2.Contexts(**contexts),
        choices=choices,
        pool=POOL,
        output_cap=cap,
        budget=decision_pb2.Budget(prompt_tokens=100, output_tokens=(cap or 1000) * choices),
    )


def limited(made: decision_pb2.Decision, limit: int) -> decision_pb2.Decision:
    made.output_limit = limit
    return made


def outcome(
    prompt: int | None = None, completion: int | None = None, *, status: int = 200, **more: Any
) -> decision_pb2.Outcome:
    return decision_pb2.Outcome(
        status=status,
        upstream="10.0.0.1:8000",
        cluster=f"{POOL}@all",
        prompt_tokens=prompt,
        completion_tokens=completion,
        **more,
    )


def retried(came: decision_pb2.Outcome) -> decision_pb2.Outcome:
    """As answered by another pool than the chosen one."""
    came.cluster = "llama/full/long/on_demand@all"
    return came


REFUSED = outcome(status=400, context_exceeded=True)


@pytest.mark.parametrize(
    ("made", "came", "expected"),
    [
        # Refused for its context: a mistake where a larger class might have taken it.
        (decision(SHORT), REFUSED, Misroute.TOO_SMALL),
        (decision(MIDDLE), REFUSED, Misroute.TOO_SMALL),
        (decision(LONG), REFUSED, Misroute.NONE),
        # Cut where the context ends.
        (decision(SHORT), outcome(8000, 192), Misroute.TOO_SMALL),
        (decision(SHORT), outcome(8000, 192, finish_reason="max_output_tokens"), Misroute.TOO_SMALL),
        (decision(SHORT), outcome(8000, 192, finish_reason="completed"), Misroute.NONE),  # just fitted
        (decision(SHORT), outcome(8000, 191), Misroute.NONE),
        (decision(LONG), outcome(131_000, 72), Misroute.NONE),
        # The engine's own cap, such as the 16 tokens of completions without one, is no matter of the context.
        (decision(SHORT), outcome(5000, 16, finish_reason="length"), Misroute.NONE),
        # A client's cap that was reached is its own wish; one that was not shows that the context ended before.
        (decision(SHORT, cap=192), outcome(8000, 192, finish_reason="max_tokens"), Misroute.NONE),
        (decision(SHORT, cap=500), outcome(8000, 192, finish_reason="max_tokens"), Misroute.TOO_SMALL),
        # A smaller class would have held it.
        (decision(MIDDLE), outcome(4000, 500), Misroute.TOO_LARGE),
        (decision(LONG), outcome(20_000, 12_767), Misroute.TOO_LARGE),
        (decision(LONG), outcome(20_000, 12_768), Misroute.NONE),  # and have been cut there, for all one knows
        (decision(SHORT), outcome(4, 5), Misroute.NONE),  # there is none smaller
        # With a cap the engine of the smaller class would have refused it.
        (decision(MIDDLE, cap=5000), outcome(4000, 10), Misroute.NONE),
        (decision(MIDDLE, cap=4192), outcome(4000, 10), Misroute.TOO_LARGE),
        # A cap that Headrace set under pressure counts as a client's.
        (limited(decision(SHORT), 192), outcome(8000, 192), Misroute.NONE),
        (limited(decision(MIDDLE), 4000), outcome(4500, 10), Misroute.NONE),
        (limited(decision(MIDDLE, cap=5000), 3000), outcome(4500, 10), Misroute.TOO_LARGE),
        # Each answer has a context of its own.
        (decision(SHORT, choices=4), outcome(4000, 8000), Misroute.NONE),
        (decision(SHORT, choices=4), outcome(4000, 16_768), Misroute.TOO_SMALL),
        (decision(MIDDLE, choices=4), outcome(4000, 8000), Misroute.TOO_LARGE),
        (decision(MIDDLE, cap=4000, choices=4), outcome(4000, 8000), Misroute.TOO_LARGE),
        # What cannot be told.
        (decision(SHORT), outcome(), Misroute.UNKNOWN),
        (decision(SHORT), outcome(4000, None), Misroute.UNKNOWN),
        (decision(MIDDLE), outcome(None, 5), Misroute.UNKNOWN),
        (decision(MIDDLE), outcome(4000, 5, status=500), Misroute.UNKNOWN),
        (decision(MIDDLE), outcome(status=400), Misroute.UNKNOWN),
        (decision(MIDDLE), outcome(status=0), Misroute.UNKNOWN),
        # Tried again in a larger class: after a refusal, or since no engine of its own could be reached.
        (decision(SHORT), retried(outcome(9000, 5)), Misroute.TOO_SMALL),
        (decision(SHORT, cap=5000), retried(outcome(4000, 5)), Misroute.TOO_SMALL),
        (decision(SHORT), retried(outcome(4000, 5)), Misroute.NONE),
        (decision(SHORT), retried(outcome()), Misroute.UNKNOWN),
        (decision(SHORT), retried(outcome(status=400)), Misroute.UNKNOWN),
        (decision(SHORT), retried(outcome(status=400, context_exceeded=True)), Misroute.NONE),
        # No choice, or no engine.
        (decision({"chosen": 8192}), REFUSED, None),
        (decision({"chosen": 8192}), outcome(4, 5), None),
        (decision(SHORT), decision_pb2.Outcome(status=503), None),
        (decision_pb2.Decision(), outcome(4, 5), None),
    ],
)
def test_a_class_is_judged_by_what_came_of_the_request(
    made: decision_pb2.Decision, came: decision_pb2.Outcome, expected: Misroute | None
) -> None:
    """Facts row: error asymmetry."""
    ended = ended_of(decision_pb2.RecordedDecision(decision=made, outcome=came))
    assert misroute(ended.decision, ended.outcome) == expected
