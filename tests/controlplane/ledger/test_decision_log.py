"""One structured line per decision, of as many as are asked for."""

from __future__ import annotations

import logging

import pytest

from controlplane.digests import session_digest
from controlplane.ledger.decision_log import LONGEST_TEXT, DecisionLog, logged_fields
from controlplane.ledger.ended import Ended
from controlplane.policy.sla import Cause, Judged, Judgement
from headrace_protos.headrace.v1 import decision_pb2

RECORDED = decision_pb2.RecordedDecision(
    request_id="r-1",
    decision=decision_pb2.Decision(
        action="pass",
        endpoint="chat",
        model="m",
        pool="m/full/short/on_demand",
        tier="full",
        reasons=["sensitive_needs_full"],
        sensitivity=decision_pb2.Sensitivity(
            verdict="sensitive", contributions=[decision_pb2.Contribution(name="structured_words", why="words")]
        ),
        budget=decision_pb2.Budget(prompt_tokens=100, output_tokens=50),
        would_change=["a longer text"],
        stream=True,
        waited_seconds=0.0125,
        tenant="name:acme",
        session=session_digest("conversation-7"),
        qos_tier="guaranteed",
    ),
    outcome=decision_pb2.Outcome(
        status=200, duration_seconds=1.25, first_content_seconds=0.5, completion_tokens=0, node_id="n"
    ),
)


def logged(share: float, count: int, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.set_level(logging.INFO)
    caplog.clear()
    log = DecisionLog(share)
    for number in range(count):
        log.request_finished(Ended(request_id=f"r-{number}"), None)
    return [
        record.fields["decision"]["request_id"] for record in caplog.records if record.name.startswith("controlplane.")
    ]  # type: ignore[attr-defined]


def test_all_or_none_or_some_are_logged_and_the_same_ones_each_time(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(0.0, 100, caplog) == []
    assert len(logged(1.0, 100, caplog)) == 100
    some = logged(0.1, 1000, caplog)
    assert 60 < len(some) < 140
    assert logged(0.1, 1000, caplog) == some
    assert set(some) <= set(logged(0.2, 1000, caplog))


def test_a_line_tells_decision_outcome_and_judgement_and_leaves_out_what_is_not_known() -> None:
    """Facts row: ledger."""
    RECORDED.time.FromJsonString("2026-11-30T08:00:00Z")
    assert logged_fields(RECORDED, Judged(Judgement.VIOLATED, Cause.FIRST_TOKEN)) == {
        "request_id": "r-1",
        "began": "2026-11-30T08:00:00Z",
        "tenant": "name:acme",
        "session": session_digest("conversation-7"),
        "qos_tier": "guaranteed",
        "action": "pass",
        "reasons": ["sensitive_needs_full"],
        "endpoint": "chat",
        "model": "m",
        "verdict": "sensitive",
        "pool": "m/full/short/on_demand",
        "tier": "full",
        "stream": True,
        "budget_tokens": 150,
        "waited_ms": 12.5,
        "first_content_ms": 500.0,
        "completion_tokens": 0,
        "node_id": "n",
        "sla": "violated",
        "sla_cause": "first_token",
        "status": 200,
        "duration_ms": 1250.0,
    }


def test_a_request_that_no_filter_decided_about_has_its_outcome() -> None:
    recorded = decision_pb2.RecordedDecision(
        request_id="r", outcome=decision_pb2.Outcome(status=503, flags=["no_healthy_upstream"])
    )
    assert logged_fields(recorded, None) == {
        "request_id": "r",
        "stream": False,
        "flags": ["no_healthy_upstream"],
        "status": 503,
        "duration_ms": 0.0,
    }


def test_names_that_clients_make_up_are_cut() -> None:
    recorded = decision_pb2.RecordedDecision(decision=decision_pb2.Decision(model="m" * 10_000))
    assert logged_fields(recorded, None)["model"] == "m" * LONGEST_TEXT
