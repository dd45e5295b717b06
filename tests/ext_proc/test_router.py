from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import replace
from typing import Any

import pytest

from controlplane.model import Action, FormatTier, HttpRequest, Pin, Pressure, QosTier, Reason, TierPressure
from controlplane.policy.choice import MOST_SHORTLISTED
from controlplane.policy.qos import Measure, Mode, QosRules
from controlplane.policy.settings import Policy, SelectionRules, WaitingRules
from controlplane.policy.table import RoutingTable
from ext_proc.answer import Answer, Reply, Route
from ext_proc.credits import Credits, Share
from ext_proc.exchange import TooLarge
from ext_proc.pins import MemoryPins, PinStore
from ext_proc.rewrite import MOST_MEMBERS
from ext_proc.router import Router
from support.asks import make_pool, make_request, make_table
from support.filter import READY_TABLE, Decided, decision_of, new_line, new_router, not_extended
from support.logs import logged
from support.waiting import until

CODE = {"model": "llama", "temperature": 0, "messages": [{"role": "user", "content": "Write a Python function."}]}
STORY = {"model": "llama", "temperature": 1, "messages": [{"role": "user", "content": "Tell me a story of a dragon."}]}
FULL, QUANTIZED = "llama/full/short/on_demand", "llama/quantized/short/on_demand=llama-awq"


async def ask(router: Router, body: Any, path: str = "/v1/chat/completions", **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await router.answer(make_request(body, path, headers=named), not_extended)


async def routed(router: Router, body: Any, path: str = "/v1/chat/completions", **headers: str) -> Route:
    answer = await ask(router, body, path, **headers)
    assert isinstance(answer, Route), answer
    return answer


async def refused(router: Router, request: HttpRequest | TooLarge) -> tuple[Reply, dict[str, Any]]:
    answer = await router.answer(request, not_extended)
    assert isinstance(answer, Reply), answer
    return answer, json.loads(answer.body)


# --- where requests go ---------------------------------------------------------------------------------------------


async def test_sensitive_requests_go_full_and_tolerant_ones_quantized() -> None:
    router = new_router()
    assert (await routed(router, CODE)).cluster == FULL
    assert (await routed(router, STORY)).cluster == QUANTIZED


async def test_the_metadata_says_what_was_decided() -> None:
    metadata = dict((await routed(new_router(), CODE)).metadata)
    decision = decision_of(metadata)
    del metadata["decision"]
    assert metadata == {"pool": FULL, "format": "full", "verdict": "sensitive"}
    assert (decision.pool, decision.tier, decision.model) == (FULL, "full", "llama")
    assert [a.pool for a in decision.alternatives] == [p.name for p in READY_TABLE.pools]


async def test_a_summary_is_given_only_when_debugging_is_asked_for() -> None:
    router = new_router()
    shown = (await routed(router, CODE, x_headrace_debug="1")).metadata["debug"]
    assert json.loads(shown)["reasons"] == ["sensitive_needs_full"]
    assert "debug" not in (await routed(router, CODE)).metadata


async def test_each_decision_is_observed_once() -> None:
    observer = Decided()
    router = new_router(observer=observer)
    await ask(router, CODE)
    await ask(router, b"{")
    await router.answer(TooLarge(make_request(b"", "/v1/messages"), 5), not_extended)
    assert [(d.action, d.endpoint, d.reasons[0]) for d in observer.decisions] == [
        ("pass", "chat", "sensitive_needs_full"),
        ("reject", "chat", "bad_request"),
        ("reject", "messages", "body_too_large"),
    ]


# --- served names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rewritten"),
    [("llama", True), ("llama-awq", False), ("llama-alias", False)],
)
async def test_the_model_is_rewritten_only_where_the_engine_would_not_know_it(name: str, rewritten: bool) -> None:
    body = json.dumps({**STORY, "model": name, "seed": 1.50}).encode()
    answer = await routed(new_router(), body)
    assert answer.cluster == QUANTIZED
    expected = body.replace(b'"llama"', b'"llama-awq"')
    assert answer.body == (expected if rewritten else None)


async def test_a_body_without_a_model_is_not_rewritten() -> None:
    table = make_table(make_pool("full", served_name="other"))
    answer = await routed(new_router(table), {"messages": []})
    assert answer.body is None


async def test_a_body_of_more_members_than_can_be_passed_in_time_is_refused() -> None:
    """Ten megabytes of them would stop the worker for seconds, and everybody whom it holds."""
    many = b'"\\u0061":[[]],' * MOST_MEMBERS
    reply, said = await refused(new_router(), make_request(b"{" + many + json.dumps(STORY).encode()[1:]))
    assert (reply.status, said["error"]["code"]) == (400, "invalid_json")
    plain = b'"a":1,' * (2 * MOST_MEMBERS)
    assert (await routed(new_router(), b"{" + plain + json.dumps(STORY).encode()[1:])).body is not None


async def test_a_pool_that_serves_the_canonical_name_gets_the_body_as_it_is() -> None:
    assert (await routed(new_router(), CODE)).body is None
    assert (await routed(new_router(), {**CODE, "model": "llama-alias"})).body is not None


# --- sessions ------------------------------------------------------------------------------------------------------


async def test_a_session_obeys_its_first_decision() -> None:
    router = new_router()
    pools = [(await routed(router, body, x_session_id="s")).cluster for body in (CODE, STORY, CODE)]
    assert pools == [FULL, FULL, FULL]
    assert (await routed(router, STORY, x_session_id="other")).cluster == QUANTIZED


async def test_a_pinned_decision_says_so() -> None:
    router = new_router()
    await routed(router, CODE, x_session_id="s")
    decision = decision_of((await routed(router, STORY, x_session_id="s")).metadata)
    assert decision.pinned == "full"
    assert decision.reasons[0] == "session_pinned"
    assert decision.sensitivity.verdict == "tolerant"


class RacingPins(MemoryPins):
    """Another filter writes between this one's look and its own writing."""

    async def get(self, session: str) -> Pin | None:
        return None

    async def set_first(self, session: str, pin: Pin) -> Pin:
        return Pin(FormatTier.FULL)


async def test_of_two_filters_that_race_the_later_one_obeys_the_first() -> None:
    router = new_router(pins=RacingPins(lambda: 0.0))
    answer = await routed(router, STORY, x_session_id="s")
    assert answer.cluster == FULL
    assert decision_of(answer.metadata).pinned == "full"


async def test_filters_that_share_a_store_agree() -> None:
    pins = MemoryPins(lambda: 0.0)
    first, second = new_router(pins=pins), new_router(pins=pins)
    assert (await routed(first, STORY, x_session_id="s")).cluster == QUANTIZED
    assert (await routed(second, CODE, x_session_id="s")).cluster == QUANTIZED


async def test_a_session_whose_tier_is_lost_is_pinned_anew_and_stays_there() -> None:
    table = make_table(make_pool("full"), make_pool("quantized"))
    router = new_router(lambda: table)
    assert (await routed(router, CODE, x_session_id="s")).cluster == FULL
    table = make_table(make_pool("quantized"))
    lost = await routed(router, CODE, x_session_id="s")
    assert decision_of(lost.metadata).tier == "quantized"
    table = make_table(make_pool("full"), make_pool("quantized"))
    assert decision_of((await routed(router, CODE, x_session_id="s")).metadata).tier == "quantized"


async def test_each_model_of_a_session_is_pinned_by_itself() -> None:
    table = make_table(make_pool("full"), make_pool("quantized"), make_pool("quantized", model="small"))
    router = new_router(table)
    assert (await routed(router, CODE, x_session_id="s")).cluster == FULL
    await routed(router, {**CODE, "model": "small"}, x_session_id="s")
    assert (await routed(router, STORY, x_session_id="s")).cluster == FULL


async def test_all_names_of_a_model_share_the_pin() -> None:
    router = new_router()
    assert (await routed(router, {**STORY, "model": "llama-alias"}, x_session_id="s")).cluster == QUANTIZED
    assert (await routed(router, CODE, x_session_id="s")).cluster == QUANTIZED


async def test_embeddings_neither_make_nor_obey_pins() -> None:
    pins = MemoryPins(lambda: 0.0)
    router = new_router(pins=pins)
    await routed(router, {"model": "llama", "input": "x"}, "/v1/embeddings", x_session_id="s")
    assert len(pins) == 0


# --- answers of the filter's own -----------------------------------------------------------------------------------


async def test_models_are_listed_as_openai_does() -> None:
    router = new_router(make_table(make_pool(), make_pool("quantized", model="small")))
    answer, body = await refused(router, make_request(b"", "/v1/models", method="GET"))
    assert (answer.status, answer.headers) == (200, (("content-type", "application/json"),))
    assert body == {
        "object": "list",
        "data": [{"id": name, "object": "model", "created": 0, "owned_by": "headrace"} for name in ("llama", "small")],
    }


@pytest.mark.parametrize("path", ["/v1/models/org%2Fllama", "/v1/models/org/llama?x=1", "/v1/models/llama-alias/"])
async def test_a_model_is_told_of_by_any_of_its_names(path: str) -> None:
    router = new_router(make_table(make_pool(model="org/llama", aliases=("llama-alias",))))
    answer, body = await refused(router, make_request(b"", path, method="GET"))
    name = "llama-alias" if "alias" in path else "org/llama"
    assert (answer.status, body) == (200, {"id": name, "object": "model", "created": 0, "owned_by": "headrace"})


async def test_a_model_that_is_not_served_is_not_told_of() -> None:
    answer, body = await refused(new_router(), make_request(b"", "/v1/models/none", method="GET"))
    assert (answer.status, body["error"]["code"]) == (404, "model_not_found")


async def test_without_a_table_requests_are_asked_to_come_back() -> None:
    answer, body = await refused(new_router(None), make_request(CODE))
    assert answer.status == 503
    assert dict(answer.headers) == {
        "content-type": "application/json",
        "x-headrace-reason": "not_ready",
        "retry-after": "1",
    }
    assert body["error"]["type"] == "server_error"
    assert body["error"]["code"] == "not_ready"
    assert answer.details == "headrace_not_ready"


async def test_retry_after_is_in_whole_seconds_and_never_too_early() -> None:
    policy = Policy()
    policy = replace(policy, selection=replace(policy.selection, retry_after_seconds=2.2))
    answer, body = await refused(new_router(make_table(make_pool(ready=0), policy=policy)), make_request(CODE))
    assert answer.status == 503
    assert dict(answer.headers)["retry-after"] == "3"
    assert body["error"]["code"] == "no_ready_node"
    assert decision_of(answer.metadata).reasons[0] == "no_ready_node"


async def test_a_retry_that_would_not_help_is_not_asked_for() -> None:
    answer, body = await refused(new_router(), make_request({**CODE, "model": "gpt-9"}))
    assert answer.status == 404
    assert "retry-after" not in dict(answer.headers)
    assert body["error"]["param"] == "model"


class FailingNames(dict[str, Any]):
    """A fault of ours in a routing table."""

    def get(self, name: str, default: Any = None) -> Any:
        raise KeyError(f"prompt text, and the model {name}")


async def test_a_fault_of_our_own_is_a_500_that_shows_and_logs_nothing_of_the_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    observer = Decided()
    router = new_router(replace(READY_TABLE, names=FailingNames()), observer=observer)
    answer, body = await refused(router, make_request({**CODE, "model": "hidden-model"}))
    assert answer.status == 500
    assert body["error"]["code"] == "internal_error"
    assert observer.decisions[0].reasons == (Reason.INTERNAL_ERROR,)
    [record] = logged(caplog, "ext_proc")
    assert record.levelno == logging.ERROR
    assert "KeyError" in record.message
    assert "pools_of" in record.message
    shown = caplog.text + answer.body.decode() + str(answer.metadata)
    assert "hidden-model" not in shown
    assert "prompt text" not in shown


@pytest.mark.parametrize(
    ("request_", "status", "kind"),
    [
        (make_request(b"{", "/v1/messages"), 400, "invalid_request_error"),
        (make_request({"model": "gpt-9"}, "/v1/messages"), 404, "not_found_error"),
        (TooLarge(make_request(b"", "/v1/messages"), 10), 413, "request_too_large"),
        (make_request({"model": "llama"}, "/v1/messages", headers={"content-encoding": "br"}), 415, None),
        (make_request({"model": "away"}, "/v1/messages"), 503, "overloaded_error"),
    ],
)
async def test_anthropics_clients_get_errors_of_their_shape(
    request_: HttpRequest | TooLarge, status: int, kind: str | None
) -> None:
    router = new_router(make_table(make_pool(), make_pool(model="away", ready=0)))
    answer, body = await refused(router, request_)
    assert answer.status == status
    assert body["type"] == "error"
    assert body["error"]["type"] == kind or "invalid_request_error"
    assert body["error"]["message"]


# --- bounds --------------------------------------------------------------------------------------------------------


async def test_names_from_requests_are_cut_and_made_printable() -> None:
    name = "evil\r\nx-headrace-pool: b\x1b[31m" + "m" * 1_000_000
    answer, body = await refused(new_router(), make_request({**CODE, "model": name}))
    decision = decision_of(answer.metadata)
    assert len(decision.model) < 110
    assert decision.model.isprintable()
    assert len(body["error"]["message"]) < 400
    assert sum(map(len, answer.metadata.values())) < 2000


async def test_the_decision_names_the_best_of_many_pools() -> None:
    pools = [make_pool(tier, served_name=f"n{i}") for i in range(200) for tier in ("full", "quantized")]
    answer = await routed(new_router(make_table(*pools)), CODE)
    decision = decision_of(answer.metadata)
    assert len(decision.alternatives) == MOST_SHORTLISTED
    assert answer.cluster in [found.pool for found in decision.alternatives]
    assert sum(map(len, answer.metadata.values())) < 8000


async def test_the_largest_budget_that_can_be_asked_for_is_carried() -> None:
    answer = await routed(new_router(), {**CODE, "max_tokens": 2**31 - 1, "n": 1024})
    assert decision_of(answer.metadata).budget.output_tokens == 2**32 - 1


@pytest.mark.parametrize("body", ['{"model":'.encode("utf-16-le")[:-1], b"\x00\x00\x00{\x00", b"{\x00\x00\x00\x00\xd8"])
async def test_half_of_a_wide_encoding_is_a_bad_request(body: bytes) -> None:
    answer, _ = await refused(new_router(), make_request(body))
    assert answer.status == 400


# --- waiting -------------------------------------------------------------------------------------------------------

NEUTRAL = {"model": "llama", "temperature": 0.5, "messages": [{"role": "user", "content": "Go on."}]}
SHORT_TABLE = make_table(make_pool("full"), make_pool("quantized"))
SHORT_FULL = "llama/full/short/on_demand"


class Waiting:
    """A router whose credits are shipped by hand, and requests that it answers as tasks."""

    def __init__(self, table: RoutingTable = SHORT_TABLE, pins: PinStore | None = None) -> None:
        self.table = table
        self.credits = Credits(time.monotonic)
        self.observer = Decided()
        self.line = new_line(self.credits, self.observer)
        self.router = new_router(lambda: self.table, pins, self.observer, self.line)

    def ship(self, **free: int) -> None:
        """By tier."""
        self.credits.take(Share((pool.name,), free[pool.tier], 0.0) for pool in self.table.pools if pool.tier in free)
        self.line.serve()

    async def send(self, body: Any, **headers: str) -> asyncio.Task[Route]:
        """Once it has come as far as it comes without waiting."""
        before = len(self.line)
        task = asyncio.create_task(routed(self.router, body, **headers))
        await until(lambda: task.done() or len(self.line) > before)
        return task


async def test_a_pinned_session_waits_for_its_tier_and_says_how_long() -> None:
    waiting = Waiting()
    await waiting.send(CODE, x_session_id="s")
    waiting.ship(full=0, quantized=5)
    task = await waiting.send(STORY, x_session_id="s")
    assert not task.done()
    assert (await (await waiting.send(STORY))).metadata["format"] == "quantized"
    waiting.ship(full=1, quantized=5)
    answer = await task
    assert answer.metadata["format"] == "full"
    decision = waiting.observer.decisions[-1]
    assert decision.action is Action.PASS
    assert decision.waited_seconds > 0
    assert decision_of(answer.metadata).waited_seconds == decision.waited_seconds
    assert waiting.line.place().is_free(SHORT_FULL) is False


async def test_one_who_has_waited_is_decided_by_the_table_and_the_pins_of_then() -> None:
    pins = MemoryPins(lambda: 0.0)
    waiting = Waiting(pins=pins)
    waiting.ship(full=0, quantized=0)
    by_pin = await waiting.send(NEUTRAL, x_session_id="s")
    by_table = await waiting.send(CODE)
    await pins.set_first("llama\n\ns", Pin(FormatTier.QUANTIZED))
    waiting.table = make_table(make_pool("quantized"), make_pool("full", "long"))
    waiting.line.look_again()
    assert (await by_table).cluster == "llama/full/long/on_demand"
    assert not by_pin.done()
    waiting.ship(quantized=1)
    assert (await by_pin).metadata["format"] == "quantized"


async def test_a_session_is_pinned_only_once_it_is_sent() -> None:
    pins = MemoryPins(lambda: 0.0)
    waiting = Waiting(pins=pins)
    waiting.ship(full=0, quantized=0)
    task = await waiting.send(NEUTRAL, x_session_id="s")
    assert len(pins) == 0
    waiting.ship(full=0, quantized=1)
    await task
    assert await pins.get("llama\n\ns") == Pin(FormatTier.QUANTIZED)


async def test_one_too_many_is_a_429_that_says_when_to_come_back() -> None:
    policy = Policy(waiting=WaitingRules(most_waiting=0), selection=SelectionRules(retry_after_seconds=9))
    waiting = Waiting(make_table(make_pool(), policy=policy))
    waiting.line.configure(policy.waiting, policy.qos)
    waiting.ship(full=0)
    answer, body = await refused(waiting.router, make_request(CODE))
    assert answer.status == 429
    assert dict(answer.headers)["retry-after"] == "9"
    assert body["error"]["code"] == "no_capacity"
    assert decision_of(answer.metadata).reasons[0] == "queue_full"
    assert waiting.observer.outcomes == ["queue_full"]


async def test_a_fault_gives_its_credit_back() -> None:
    class Failing(MemoryPins):
        async def set_first(self, session: str, pin: Pin) -> Pin:
            raise RuntimeError

    waiting = Waiting(pins=Failing(lambda: 0.0))
    waiting.ship(full=1)
    answer, _ = await refused(waiting.router, make_request(CODE, headers={"x-session-id": "s"}))
    assert answer.status == 500
    assert waiting.credits.left(SHORT_FULL) == 1


# --- QoS tiers -----------------------------------------------------------------------------------------------------


def pressed_table(state: Pressure, **rules: Any) -> RoutingTable:
    found = tuple(TierPressure(tier, state, 0.5, "kv_cache_use") for tier in QosTier)
    qos = QosRules(mode=Mode.ENABLED)
    qos = replace(qos, standard=replace(qos.standard, **rules))
    pools = (replace(make_pool(), pressures=found), make_pool(model="small"))
    return make_table(*pools, policy=Policy(qos=qos))


async def test_a_degraded_answer_says_so_and_its_body_is_capped() -> None:
    router = new_router(pressed_table(Pressure.ELEVATED))
    answer = await router.answer(make_request(CODE), not_extended)
    assert isinstance(answer, Route)
    assert answer.body is not None
    assert json.loads(answer.body) == {**CODE, "max_tokens": 640}
    assert (answer.metadata["action"], answer.metadata["degraded_to"]) == ("degrade", "max_tokens=640")


async def test_an_answer_of_another_model_says_so() -> None:
    table = pressed_table(Pressure.ELEVATED, when_elevated=Measure.FALLBACK, fallback_model="small")
    answer = await new_router(table).answer(make_request(CODE), not_extended)
    assert isinstance(answer, Route)
    assert answer.body is not None
    assert json.loads(answer.body) == {**CODE, "model": "small"}
    assert (answer.metadata["action"], answer.metadata["degraded_to"]) == ("fallback", "model=small")


async def test_a_rejection_under_pressure_says_when_to_come_back() -> None:
    answer, body = await refused(new_router(pressed_table(Pressure.CRITICAL)), make_request(CODE))
    headers = dict(answer.headers)
    assert (answer.status, headers["retry-after"], headers["x-headrace-action"]) == (429, "10", "reject")
    assert (body["error"]["type"], body["error"]["code"]) == ("rate_limit_error", "overloaded")
    assert answer.details == "headrace_overloaded"


async def test_calm_pools_leave_bodies_and_headers_as_they_are() -> None:
    answer = await new_router(pressed_table(Pressure.NORMAL)).answer(make_request(CODE), not_extended)
    assert isinstance(answer, Route)
    assert answer.body is None
    assert not {"action", "degraded_to"} & answer.metadata.keys()
