"""From Envoy's access log to recorded decisions, whatever the entry lacks."""

from __future__ import annotations

import base64
import math
from dataclasses import replace
from typing import Any

import pytest

from controlplane.ledger.encoding import ended_of, message_of
from controlplane.ledger.entry import ended_request
from controlplane.ledger.sessions import SessionHistory
from controlplane.model import NodeSession
from headrace_protos.envoy.data.accesslog.v3 import accesslog_pb2
from headrace_protos.headrace.v1 import decision_pb2
from support.nodes import node

DECISION = decision_pb2.Decision(action="pass", model="llama", pool="llama/full", reasons=["session_pinned"])


def entry(**usage: Any) -> accesslog_pb2.HTTPAccessLogEntry:
    made = accesslog_pb2.HTTPAccessLogEntry()
    made.request.request_id = "r-1"
    made.response.response_code.value = 200
    made.response.response_code_details = "via_upstream"
    common = made.common_properties
    common.start_time.FromSeconds(1_700_000_000)
    common.duration.FromMilliseconds(1500)
    common.time_to_first_upstream_rx_byte.FromMilliseconds(250)
    common.upstream_cluster = "llama/full"
    common.upstream_request_attempt_count = 2
    common.upstream_remote_address.socket_address.address = "10.0.0.1"
    common.upstream_remote_address.socket_address.port_value = 8000
    encoded = base64.b64encode(DECISION.SerializeToString()).decode()
    common.metadata.filter_metadata["headrace"].update({"decision": encoded})
    if usage:
        common.metadata.filter_metadata["headrace.usage"].update(usage)
    return made


def recorded_of(made: accesslog_pb2.HTTPAccessLogEntry, sessions: SessionHistory) -> decision_pb2.RecordedDecision:
    ended = ended_request(made, sessions)
    recorded = message_of(ended)
    assert ended_of(recorded) == ended
    return recorded


def test_decision_and_outcome_come_together() -> None:
    recorded = recorded_of(entry(prompt_tokens=12, completion_tokens=34), SessionHistory(60.0))
    assert recorded.request_id == "r-1"
    assert recorded.time.seconds == 1_700_000_000
    assert recorded.decision == DECISION
    assert recorded.outcome == decision_pb2.Outcome(
        status=200,
        upstream="10.0.0.1:8000",
        cluster="llama/full",
        duration_seconds=1.5,
        first_byte_seconds=0.25,
        prompt_tokens=12,
        completion_tokens=34,
        attempts=2,
        details="via_upstream",
    )


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("aB3-_x 29000000 17", ("aB3-_x", 29_000_000, 17)),
        ("aB3-_x 29000000", ("", 0, 0)),
        ("a\0b 29000000 17", ("", 0, 0)),
        ("w 29000000 99999999999", ("", 0, 0)),
        (5, ("", 0, 0)),
    ],
)
def test_who_decided_when_and_as_which_of_his_decisions(told: object, expected: tuple[str, int, int]) -> None:
    found = entry()
    found.common_properties.metadata.filter_metadata["headrace"].update({"made": told})
    recorded = recorded_of(found, SessionHistory(60.0))
    assert (recorded.worker, recorded.worker_minute, recorded.worker_number) == expected
    assert recorded.decision == DECISION


def test_an_empty_entry_leaves_all_unset() -> None:
    recorded = recorded_of(accesslog_pb2.HTTPAccessLogEntry(), SessionHistory(60.0))
    assert not recorded.HasField("decision")
    for name in ("first_byte_seconds", "prompt_tokens", "completion_tokens"):
        assert not recorded.outcome.HasField(name)
    assert recorded.outcome == decision_pb2.Outcome()


@pytest.mark.parametrize(
    "value", ["%%%", "é", "/////w==", 7, None, True, ["x"], {"x": "y"}, base64.b64encode(b"\xff" * 20).decode()]
)
def test_a_decision_that_cannot_be_read_is_left_unset(value: Any) -> None:
    strange = entry()
    strange.common_properties.metadata.filter_metadata["headrace"].update({"decision": value})
    recorded = recorded_of(strange, SessionHistory(60.0))
    assert not recorded.HasField("decision") or recorded.decision == decision_pb2.Decision()
    assert recorded.outcome.status == 200


@pytest.mark.parametrize("value", ["12", -1, math.nan, math.inf, 2.0**31, None, True, [1], {"a": 1}])
def test_a_token_count_that_is_none_is_left_unset(value: object) -> None:
    recorded = recorded_of(entry(prompt_tokens=value, completion_tokens=3), SessionHistory(60.0))
    assert not recorded.outcome.HasField("prompt_tokens")
    assert recorded.outcome.completion_tokens == 3
    assert recorded.outcome.usage_unreadable


@pytest.mark.parametrize(("value", "tokens"), [(0, 0), (2.9, 2), (2**31 - 1, 2**31 - 1)])
def test_a_token_count_is_a_whole_number(value: float, tokens: int) -> None:
    assert recorded_of(entry(prompt_tokens=value), SessionHistory(60.0)).outcome.prompt_tokens == tokens


def test_the_times_of_the_request_and_of_the_answers_content_are_kept_apart() -> None:
    made = entry()
    common = made.common_properties
    common.time_to_last_rx_byte.FromMilliseconds(100)
    common.time_to_last_upstream_rx_byte.FromMilliseconds(1400)
    common.custom_tags["first_content_us"] = "750000"
    outcome = recorded_of(made, SessionHistory(60.0)).outcome
    assert (outcome.received_seconds, outcome.first_byte_seconds) == (0.1, 0.25)
    assert (outcome.first_content_seconds, outcome.last_byte_seconds) == (0.75, 1.4)


@pytest.mark.parametrize("value", ["", "-", "-5", "1.5", "²", "٣"])
def test_a_time_that_envoy_does_not_know_is_left_unset(value: str) -> None:
    made = entry()
    made.common_properties.custom_tags["first_content_us"] = value
    assert not recorded_of(made, SessionHistory(60.0)).outcome.HasField("first_content_seconds")


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"read_tokens": 1, "cached_tokens": 30, "predicted_tokens": 7}, (31, 7)),
        ({"read_tokens": 1, "predicted_tokens": 7}, (None, 7)),  # how many it had read before, is not known
        ({"read_tokens": "1", "cached_tokens": 30, "predicted_tokens": [7]}, (None, None)),
        # Usage is what counts where both are there, also when it is of a wrong type.
        (
            {"prompt_tokens": 5, "completion_tokens": 6, "read_tokens": 1, "cached_tokens": 2, "predicted_tokens": 3},
            (5, 6),
        ),
        ({"prompt_tokens": "5", "completion_tokens": None, "read_tokens": 1, "cached_tokens": 2}, (None, None)),
    ],
)
def test_llama_cpps_timings_stand_in_for_usage(usage: dict[str, Any], tokens: tuple[int | None, int | None]) -> None:
    outcome = recorded_of(entry(**usage), SessionHistory(60.0)).outcome
    found = [
        getattr(outcome, name) if outcome.HasField(name) else None for name in ("prompt_tokens", "completion_tokens")
    ]
    assert tuple(found) == tokens


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("max_output_tokens", "max_output_tokens"),
        (7, ""),
        (None, ""),
        (["stop"], ""),
        ("Of the prompt: ...", ""),
        ("x" * 41, ""),
    ],
)
def test_the_reason_of_an_answers_end_is_a_word_or_left_unset(value: object, reason: str) -> None:
    assert recorded_of(entry(finish_reason=value), SessionHistory(60.0)).outcome.finish_reason == reason


@pytest.mark.parametrize(
    ("error", "exceeded"),
    [
        # As engines say it: vLLM (two), SGLang, llama.cpp (two), OpenAI's own API.
        ({"error_message": "This model's maximum context length is 4096 tokens. However, you requested 5000"}, True),
        ({"error_message": "The decoder prompt (length 5000) is longer than the maximum model length of 4096."}, True),
        ({"error_message": "The input (5000 tokens) is longer than the model's context length (4096 tokens)."}, True),
        ({"error_type": "exceed_context_size_error"}, True),
        ({"error_message": "the request exceeds the available context size. try increasing the context size"}, True),
        ({"error_code": "context_length_exceeded"}, True),
        (
            {"error_message": "temperature must be non-negative", "error_type": "BadRequestError", "error_code": "400"},
            False,
        ),
        ({"error_message": 7, "error_type": ["exceed_context_size_error"], "error_code": None}, False),
        ({}, False),
    ],
)
def test_a_400_for_the_context_is_told_from_others(error: dict[str, Any], exceeded: bool) -> None:
    made = entry(**error)
    assert not recorded_of(made, SessionHistory(60.0)).outcome.context_exceeded
    made.response.response_code.value = 400
    recorded = recorded_of(made, SessionHistory(60.0))
    assert recorded.outcome.context_exceeded is exceeded
    assert b"5000" not in recorded.SerializeToString()


def test_an_ipv6_upstream_has_brackets() -> None:
    made = entry()
    made.common_properties.upstream_remote_address.socket_address.address = "fd00::7"
    assert recorded_of(made, SessionHistory(60.0)).outcome.upstream == "[fd00::7]:8000"


def test_flags_carry_envoys_names() -> None:
    made = entry()
    made.common_properties.response_flags.upstream_connection_failure = True
    made.common_properties.response_flags.no_healthy_upstream = True
    assert set(recorded_of(made, SessionHistory(60.0)).outcome.flags) == {
        "upstream_connection_failure",
        "no_healthy_upstream",
    }


def test_the_node_session_is_the_one_in_force_when_the_request_was_sent_to_the_engine() -> None:
    history = SessionHistory(600.0)
    first = NodeSession("first", node("a", "10.0.0.1:8000"), registered_at=1_600_000_000.0)
    history.observe([first], 1_600_000_000.0)
    history.observe([replace(first, session_id="second", registered_at=1_700_000_010.0)], 1_700_000_010.0)
    made = entry()
    made.common_properties.duration.FromSeconds(100)  # ends long after the second one began
    made.common_properties.time_to_first_upstream_tx_byte.FromSeconds(9)
    outcome = recorded_of(made, history).outcome
    assert (outcome.node_id, outcome.node_session_id) == ("a", "first")
    made.common_properties.time_to_first_upstream_tx_byte.FromSeconds(11)  # it waited in the filter
    assert recorded_of(made, history).outcome.node_session_id == "second"
