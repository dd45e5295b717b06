"""Only the model, the output cap and, where configured, the priority of a body are changed, and no other byte."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from msgspec import structs

from controlplane.model import Action, Decision, Endpoint, QosTier, Reason
from controlplane.policy.qos import Mode, QosRules
from ext_proc.rewrite import set_member
from ext_proc.shaping import degraded_to, shaped_body
from support.asks import make_ask, make_pool

PASSED = Decision(
    Action.PASS, Endpoint.CHAT, "llama", (Reason.NEUTRAL_PREFERS_FULL,), make_pool(), qos_tier=QosTier.STANDARD
)
DEGRADED = structs.replace(PASSED, action=Action.DEGRADE, output_limit=100)
PRIORITIES = QosRules(mode=Mode.ENABLED, engine_priority=True)
BODY = b'{ "model":"llama","messages":[{"role":"user","content":"max_tokens: 5000"}],"x":1.50,"x":2e400}'


def shaped(body: bytes, decision: Decision, qos: QosRules | None = None) -> bytes | None:
    return shaped_body(body, make_ask(body), decision, qos or QosRules())


def test_what_passes_is_sent_as_it_came() -> None:
    assert shaped(BODY, PASSED) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (BODY, BODY.replace(b"{ ", b'{"max_tokens":100, ', 1)),
        (b'{"model":"llama","max_tokens":5000}', b'{"model":"llama","max_tokens":100}'),
        (b'{"model":"llama","max_completion_tokens":5000}', b'{"model":"llama","max_completion_tokens":100}'),
        (b'{"max_tokens":9,"model":"llama","max_tokens":5000}', b'{"max_tokens":9,"model":"llama","max_tokens":100}'),
    ],
)
def test_a_degraded_body_has_a_cap_and_every_other_byte_as_it_was(before: bytes, after: bytes) -> None:
    """Facts row: shapeable (only the cap and the model are changed)."""
    assert shaped(before, DEGRADED) == after


@pytest.mark.parametrize(
    ("endpoint", "name"),
    [
        (Endpoint.CHAT, "max_tokens"),
        (Endpoint.COMPLETIONS, "max_tokens"),
        (Endpoint.RESPONSES, "max_output_tokens"),
        (Endpoint.MESSAGES, "max_tokens"),
    ],
)
def test_each_api_has_its_own_name_for_the_cap(endpoint: Endpoint, name: str) -> None:
    """Facts row: output caps under several names."""
    body = shaped(b'{"model":"llama"}', structs.replace(DEGRADED, endpoint=endpoint))
    assert body is not None
    assert json.loads(body) == {"model": "llama", name: 100}


def test_a_model_that_stands_in_replaces_the_name_in_the_body() -> None:
    small = structs.replace(
        PASSED, action=Action.FALLBACK, model="small", asked_model="llama", pool=make_pool(model="small")
    )
    assert shaped(BODY, small) == BODY.replace(b'"llama"', b'"small"')
    assert degraded_to(small) == "model=small"
    assert degraded_to(structs.replace(small, output_limit=7)) == "model=small, max_tokens=7"
    assert degraded_to(PASSED) == ""


@pytest.mark.parametrize(("tier", "priority"), [(tier, rank) for rank, tier in enumerate(QosTier)])
def test_engines_are_told_the_tier_whatever_the_client_says(tier: QosTier, priority: int) -> None:
    decision = structs.replace(PASSED, qos_tier=tier)
    for own in ({}, {"priority": -5}, {"priority": priority}):
        body = shaped(json.dumps({"model": "llama", **own}).encode(), decision, PRIORITIES)
        assert body is not None
        assert json.loads(body) == {"model": "llama", "priority": priority}
        assert body.count(b"priority") == 1


@pytest.mark.parametrize(
    "qos",
    [
        replace(PRIORITIES, mode=Mode.DRY_RUN),
        replace(PRIORITIES, shapes=()),
        replace(PRIORITIES, engine_priority=False),
    ],
)
def test_engines_are_told_nothing_else(qos: QosRules) -> None:
    assert shaped(BODY, PASSED, qos) is None


def test_a_member_is_set_in_the_top_level_only() -> None:
    assert set_member(b'{"a":{"p":1},"p" : 2}', "p", "3") == b'{"a":{"p":1},"p" : 3}'
    assert set_member(b'{"p":1,"p":2}', "p", "3") == b'{"p":3,"p":3}'
    assert set_member(b"{ }", "p", "3") == b'{"p":3 }'
