"""Status and decisions over HTTP: the same as by gRPC, to operators only."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from controlplane.http_serving import Answer, Question
from controlplane.ledger.decisions import Decisions
from controlplane.ledger.encoding import ended_of
from controlplane.services.access import BearerTokens
from controlplane.services.surface import MOST_DECISIONS, RECENT, STATUS, Surface
from headrace_protos.headrace.v1 import decision_pb2, fleet_pb2

OPERATOR, NODE = "operator-token-91bc", "node-token-7f3a"
STATUS_NOW = fleet_pb2.GetStatusResponse(version="1.2.3", etcd="connected", sla=[fleet_pb2.SlaRate(met=3)])


def surface(*operator_tokens: str, trusts_strangers: bool = True) -> Surface:
    decisions = Decisions(100, 7, lambda: 1_700_000_000.0)
    for number, tenant in enumerate(("name:acme", "name:acme", "name:other")):
        message = decision_pb2.RecordedDecision(
            request_id=f"r-{number}",
            decision=decision_pb2.Decision(tenant=tenant, model="m"),
            outcome=decision_pb2.Outcome(status=200 + 300 * (number == 1)),
        )
        decisions.record(ended_of(message))
    tokens = BearerTokens([NODE], operator_tokens)
    return Surface(decisions, lambda: STATUS_NOW, tokens, lambda: 1_700_000_100.0, trusts_strangers=trusts_strangers)


async def ask(shown: Surface, path: str, authorization: str | None = None, **parameters: str) -> Answer:
    headers = {} if authorization is None else {"authorization": authorization}
    return await shown.routes[path](Question(path, tuple(parameters.items()), headers))


async def listed(**parameters: str) -> list[str]:
    answer = await ask(surface(), RECENT, **parameters)
    assert answer.status == 200, answer.body
    shown = json.loads(answer.body)
    assert ParseDict(shown, fleet_pb2.ListDecisionsResponse()).ledger_trouble == ""
    assert set(shown) == {"decisions", "ledger_trouble"}
    return [each["request_id"] for each in shown["decisions"]]


async def test_the_status_has_the_shape_that_the_command_line_prints() -> None:
    """Facts row: surface."""
    answer = await ask(surface(), STATUS)
    shown: dict[str, Any] = json.loads(answer.body)
    assert answer.content_type == "application/json"
    assert (shown["version"], shown["etcd"], shown["nodes"]) == ("1.2.3", "connected", 0)
    assert shown["sla"][0]["met"] == "3"
    assert "violation_rate" not in shown["sla"][0]


async def test_decisions_are_listed_the_last_first_and_filtered_as_on_the_command_line() -> None:
    """Facts row: surface."""
    assert await listed() == ["r-2", "r-1", "r-0"]
    assert await listed(limit="1") == ["r-2"]
    assert await listed(tenant="acme") == ["r-1", "r-0"]
    assert await listed(tenant="name:acme", status="5xx") == ["r-1"]
    assert await listed(errors="true") == ["r-1"]
    assert await listed(request_id="r-0", errors="false", model="") == ["r-0"]
    assert await listed(since="1m") == []
    assert await listed(since="2m", until="2033-01-01") == ["r-2", "r-1", "r-0"]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("number", "1", "number: is not known; known are limit, model, "),
        ("limit", "-1", "limit: '-1' is no whole number"),
        ("limit", "٣", "limit: '٣' is no whole number"),
        ("limit", str(MOST_DECISIONS + 1), "limit: at most 1000"),
        ("status", "4x", "status: '4x' is no HTTP status"),
        ("since", "yesterday", "since: 'yesterday' is no time"),
        ("errors", "yes", "errors: 'yes' is neither true nor false"),
    ],
)
async def test_what_cannot_be_read_is_refused_and_named(name: str, value: str, says: str) -> None:
    answer = await ask(surface(), RECENT, **{name: value})
    assert answer.status == 400
    assert answer.body.decode().startswith(says)


async def test_a_parameter_that_is_given_twice_is_refused() -> None:
    question = Question(RECENT, (("tenant", "a"), ("tenant", "b")))
    assert (await surface().routes[RECENT](question)).status == 400


@pytest.mark.parametrize("path", [STATUS, RECENT])
async def test_where_there_are_operators_their_token_is_needed(path: str) -> None:
    guarded = surface("another", OPERATOR)
    for wrong in (None, "", OPERATOR, f"Bearer {NODE}", "Bearer ", f"Basic {OPERATOR}", "Bearer ÿ\udcff"):
        answer = await ask(guarded, path, wrong)
        assert answer.status == 401
        assert ("www-authenticate", "Bearer") in answer.headers
        assert OPERATOR.encode() not in answer.body
    assert (await ask(guarded, path, f"Bearer {OPERATOR}")).status == 200
    assert (await ask(guarded, path, f"bearer  {OPERATOR}")).status == 200


@pytest.mark.parametrize("path", [STATUS, RECENT])
async def test_without_operators_other_machines_are_shown_nothing(path: str) -> None:
    answer = await ask(surface(trusts_strangers=False), path)
    assert answer.status == 403
    assert b"operator_tokens_file" in answer.body
    assert (await ask(surface(OPERATOR, trusts_strangers=False), path, f"Bearer {OPERATOR}")).status == 200
