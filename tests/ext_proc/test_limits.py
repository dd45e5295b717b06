"""Rates in the filter: 429 and headers as OpenAI's, charges of requests that do not go on, and a store that is away."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

import pytest

from controlplane.errors import UnavailableError
from controlplane.model import Reason
from controlplane.policy.rates import Admission, Charge
from controlplane.policy.settings import Policy, Tenant, TenantRules
from ext_proc.answer import Answer, Reply, Route
from ext_proc.credits import Credits, Share
from ext_proc.debts import MemoryDebts
from ext_proc.limits import RateLimits
from ext_proc.router import Router
from headrace_protos.envoy.data.accesslog.v3 import accesslog_pb2
from headrace_protos.envoy.service.accesslog.v3 import als_pb2, als_pb2_grpc
from support.asks import make_pool, make_request, make_table
from support.filter import Decided, cancelled, decision_of, new_line, new_router, not_extended, running_filter
from support.logs import logged
from support.waiting import until

ACME = Tenant("acme", requests_per_minute=10, tokens_per_minute=2500)
TABLE = make_table(make_pool("full"), policy=Policy(tenants=TenantRules("x-tenant", known=(ACME,))))
CHAT = {"model": "llama", "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 990}


class World:
    def __init__(self, store: Any = None, **more: Any) -> None:
        self.now = 0.0
        self.observer = Decided()
        self.rates = RateLimits(store or MemoryDebts(lambda: self.now), self.observer)
        self.router: Router = new_router(TABLE, observer=self.observer, rates=self.rates, **more)

    async def send(self, body: Any = CHAT, tenant: str = "acme", path: str = "/v1/chat/completions") -> Answer:
        return await self.router.answer(make_request(body, path, headers={"x-tenant": tenant}), not_extended)


async def test_an_admitted_request_tells_what_is_left() -> None:
    answer = await World().send()
    assert isinstance(answer, Route)
    tokens = decision_of(answer.metadata).budget
    told = {name: value for name, value in answer.metadata.items() if name.startswith("ratelimit-")}
    charged = tokens.prompt_tokens + tokens.output_tokens
    assert told["ratelimit-limit-requests"] == "10"
    assert told["ratelimit-remaining-requests"] == "9"
    assert told["ratelimit-reset-requests"] == "6s"
    assert told["ratelimit-limit-tokens"] == "2500"
    assert int(told["ratelimit-remaining-tokens"]) == 2500 - charged
    assert answer.metadata["bill"] == f"{charged} 2500 {TABLE.largest_context} name:acme"


async def test_who_is_beyond_his_rate_gets_429_until_time_has_passed_and_others_do_not() -> None:
    world = World()
    for _ in range(2):
        assert isinstance(await world.send(), Route)
    answer = await world.send()
    assert isinstance(answer, Reply)
    assert answer.status == 429
    headers = dict(answer.headers)
    assert 1 <= int(headers["retry-after"]) <= 60
    assert headers["x-ratelimit-limit-tokens"] == "2500"
    assert int(headers["x-ratelimit-remaining-tokens"]) < 600
    error = json.loads(answer.body)["error"]
    assert (error["type"], error["code"]) == ("tokens", "rate_limit_exceeded")
    assert world.observer.decisions[-1].reasons[0] is Reason.RATE_LIMITED
    assert isinstance(await world.send(tenant="other"), Route)
    world.now += int(headers["retry-after"])
    assert isinstance(await world.send(), Route)
    assert world.observer.rates == ["admitted", "admitted", "refused", "admitted"]


async def test_messages_are_refused_in_anthropics_shape() -> None:
    world = World()
    body = {**CHAT, "max_tokens": 5000}
    answer = await world.send(body, path="/v1/messages")
    assert isinstance(answer, Reply)
    assert json.loads(answer.body)["error"]["type"] == "rate_limit_error"


async def test_what_is_refused_or_listed_is_not_charged() -> None:
    world = World()
    for _ in range(20):
        assert isinstance(await world.send({**CHAT, "model": "unknown"}), Reply)
        assert isinstance(await world.send(b"{"), Reply)
    assert isinstance(await world.send(), Route)
    assert world.observer.rates == ["admitted"]


async def test_without_rates_nothing_is_told() -> None:
    answer = await World().send(tenant="other")
    assert isinstance(answer, Route)
    assert not [name for name in answer.metadata if name.startswith(("ratelimit", "bill"))]


async def test_a_request_that_waits_and_leaves_is_given_its_charge_back() -> None:
    cluster = TABLE.pools[0].name
    credits_ = Credits(time.monotonic)
    credits_.take((Share((cluster,), 0, 0.0),))
    world = World(line=new_line(credits_))
    waiting = asyncio.create_task(world.send())
    await until(lambda: world.observer.rates)
    await asyncio.sleep(0)
    await cancelled(waiting)
    assert world.observer.rates == ["admitted", "corrected: done", "corrected: done"]
    credits_.take((Share((cluster,), 9, 0.0),))
    for _ in range(2):
        assert isinstance(await world.send(), Route)


class Away:
    """A store that cannot be reached."""

    async def charge(self, tenant: str, charges: tuple[Charge, ...]) -> Admission:
        raise UnavailableError("away")

    def correct(self, tenant: str, of: str, seconds: float) -> bool:
        return False


async def test_a_store_that_is_away_admits_all_and_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World(Away())
    for _ in range(20):
        assert isinstance(await world.send(), Route)
    assert world.observer.rates == ["unchecked"] * 20
    assert len([record for record in logged(caplog, "ext_proc") if record.levelno == logging.ERROR]) == 1


# --- usage ---------------------------------------------------------------------------------------------------------


def entry(bill: str, status: int = 200, **usage: float) -> accesslog_pb2.HTTPAccessLogEntry:
    found = accesslog_pb2.HTTPAccessLogEntry()
    found.response.response_code.value = status
    metadata = found.common_properties.metadata.filter_metadata
    metadata["headrace"]["bill"] = bill
    if usage:
        metadata["headrace.usage"].update(usage)
    return found


@pytest.mark.parametrize(
    ("logged", "told"),
    [
        (entry("100 3000 name:acme", prompt_tokens=3, completion_tokens=4), ("100 3000 name:acme", 7, False)),
        (entry("0 3000 name:acme", prompt_tokens=3), ("0 3000 name:acme", 3, False)),
        (entry("100 3000 name:acme", 500), ("100 3000 name:acme", None, True)),
        (entry("100 3000 name:acme", prompt_tokens=1e300), ("100 3000 name:acme", None, False)),
        (entry("100 3000 name:acme", prompt_tokens=-5), ("100 3000 name:acme", None, False)),
    ],
)
async def test_the_access_log_says_what_a_request_used(
    logged: accesslog_pb2.HTTPAccessLogEntry, told: tuple[str, int | None, bool]
) -> None:
    heard: list[tuple[str, int | None, bool]] = []
    without_bill = accesslog_pb2.HTTPAccessLogEntry()
    async with running_filter(used=lambda note, tokens, *, failed: heard.append((note, tokens, failed))) as client:
        stub = als_pb2_grpc.AccessLogServiceStub(client.channel)
        await stub.StreamAccessLogs(
            _one(als_pb2.StreamAccessLogsMessage(http_logs={"log_entry": [without_bill, logged]}))
        )
    assert heard == [told]


async def _one(message: als_pb2.StreamAccessLogsMessage) -> Any:
    yield message


async def test_a_count_that_no_engine_can_have_reached_is_no_debt() -> None:
    world = World()
    answer = await world.send({**CHAT, "n": 2, "max_tokens": 10})
    assert isinstance(answer, Route)
    bill, before = answer.metadata["bill"], answer.metadata["ratelimit-remaining-tokens"]
    assert bill.split()[2] == str(2 * TABLE.largest_context)
    world.rates.used(bill, 2 * TABLE.largest_context + 1, failed=False)
    assert world.observer.rates[-2:] == ["admitted", "corrected: implausible"]
    told = await world.send({**CHAT, "n": 2, "max_tokens": 10})
    assert isinstance(told, Route)
    assert int(told.metadata["ratelimit-remaining-tokens"]) == 2 * int(before) - 2500


async def test_usage_puts_a_charge_right_and_nonsense_changes_nothing() -> None:
    world = World()
    for _ in range(2):
        answer = await world.send()
        assert isinstance(answer, Route)
        bill = answer.metadata["bill"]
    for nonsense in (
        "",
        "1",
        "x 3000 9 name:acme",
        "1000 0 9 name:acme",
        "1000 3000x 9 name:acme",
        "1000 3000 name:acme",
    ):
        world.rates.used(nonsense, 5, failed=False)
    assert isinstance(await world.send(), Reply)
    for _ in range(2):
        world.rates.used(bill, 10, failed=False)
    told = await world.send()
    assert isinstance(told, Route)
    assert int(told.metadata["ratelimit-remaining-tokens"]) >= 1400
