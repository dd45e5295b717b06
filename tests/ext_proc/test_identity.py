"""What the filter tells whom it does not know, and which headers engines see of those whom it does."""

from __future__ import annotations

import json

import pytest

from controlplane.model import HttpRequest, Reason
from controlplane.policy.access import key_digest
from controlplane.policy.settings import Policy, Tenant, TenantRules
from ext_proc import wire
from ext_proc.answer import Reply, Route
from ext_proc.exchange import TooLarge
from ext_proc.keys import Keys
from ext_proc.router import Router
from support.asks import make_pool, make_request, make_table
from support.filter import Decided, decision_of, new_router, not_extended

SECRET = b"0" * 32
KEY = "hr-acme-1"
ACME = Tenant("acme", keys=(key_digest(KEY, SECRET),), models=("llama",))
TABLE = make_table(
    make_pool("full"), make_pool("full", model="qwen"), policy=Policy(tenants=TenantRules(required=True, known=(ACME,)))
)
CHAT = {"model": "llama", "messages": []}


def router(observer: Decided | None = None, engine_key: str | None = None) -> Router:
    return new_router(TABLE, observer=observer, keys=Keys(SECRET, engine_key))


@pytest.mark.parametrize(
    "request_",
    [
        make_request(CHAT),
        make_request(b"{", headers={"x-api-key": "hr-other"}),
        make_request({"model": "no-such-model"}),
        make_request(b"", "/v1/models", method="GET"),
        make_request(b"", "/anything", method="DELETE"),
        TooLarge(make_request(b""), 10),
    ],
)
async def test_nothing_is_told_to_whom_is_not_known_but_that(request_: HttpRequest | TooLarge) -> None:
    observer = Decided()
    answer = await router(observer).answer(request_, not_extended)
    assert isinstance(answer, Reply)
    assert answer.status == 401
    headers = dict(answer.headers)
    assert headers["www-authenticate"] == 'Bearer realm="headrace"'
    assert headers["x-headrace-reason"] == "invalid_api_key"
    error = json.loads(answer.body)["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, "invalid_api_key")
    assert "hr-other" not in str(answer)
    [decision] = observer.decisions
    assert decision.reasons == (Reason.UNAUTHENTICATED,)
    assert decision.tenant == ""
    assert decision_of(answer.metadata).refusal.status == 401


async def test_messages_are_refused_in_anthropics_shape() -> None:
    answer = await router().answer(make_request(CHAT, "/v1/messages"), not_extended)
    assert isinstance(answer, Reply)
    assert json.loads(answer.body)["error"]["type"] == "authentication_error"


async def test_a_known_key_is_taken_off_and_the_engines_own_is_set() -> None:
    request = make_request(CHAT, headers={"x-api-key": KEY})
    answer = await router(engine_key="of-engines").answer(request, not_extended)
    assert isinstance(answer, Route)
    mutation = wire.response(answer).request_headers.response.header_mutation
    assert list(mutation.remove_headers) == ["x-api-key"]
    assert [(o.header.key, o.header.raw_value) for o in mutation.set_headers][1:] == [
        ("authorization", b"Bearer of-engines")
    ]
    assert decision_of(answer.metadata).tenant == "name:acme"


async def test_the_list_of_models_is_that_of_the_tenant() -> None:
    request = make_request(b"", "/v1/models", method="GET", headers={"authorization": f"Bearer {KEY}"})
    answer = await router().answer(request, not_extended)
    assert isinstance(answer, Reply)
    assert [model["id"] for model in json.loads(answer.body)["data"]] == ["llama"]


def test_secrets_are_in_no_representation() -> None:
    assert "0000" not in repr(Keys(SECRET, "of-engines")) + repr(router())
    assert "of-engines" not in repr(Keys(SECRET, "of-engines"))
