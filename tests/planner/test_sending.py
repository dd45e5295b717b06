"""Sending through a gateway that is played."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import httpx
import pytest

from controlplane.model import FormatTier
from controlplane.policy.settings import Policy
from planner.quality.answers import Answer
from planner.quality.asking import Mode
from planner.quality.judging import Judged, Sending
from planner.quality.measured import Failure, FailureKind
from planner.quality.sending import Gateway

SENDING = Sending(max_tokens=8, seed=1, policy=Policy())
STREAM = 'data: {"choices": [{"delta": {"content": "Hi"}}]}\n\ndata: [DONE]\n\n'

Answering = Callable[[httpx.Request], httpx.Response]


def answered(text: str = STREAM, status: int = 200, **headers: str) -> httpx.Response:
    return httpx.Response(status, text=text, headers={name.replace("_", "-"): value for name, value in headers.items()})


async def send(judged: Judged, answering: Answering, tier: FormatTier = FormatTier.FULL) -> Answer | Failure:
    async with httpx.AsyncClient(transport=httpx.MockTransport(answering), base_url="http://gateway") as http:
        return await Gateway(http, SENDING, timeout=5.0).send(judged, Mode.GREEDY, tier)


async def test_an_answer_of_the_tier_that_was_asked_is_taken(stories: list[Judged]) -> None:
    asked: list[httpx.Request] = []

    def answering(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return answered(x_headrace_format="quantized")

    found = await send(stories[0], answering, FormatTier.QUANTIZED)
    assert isinstance(found, Answer)
    assert found.text == "Hi"
    assert asked[0].headers["x-headrace-format"] == "quantized"
    assert json.loads(asked[0].content)["temperature"] == 0


async def test_an_answer_of_the_other_tier_is_not_taken_and_the_decision_is_told(stories: list[Judged]) -> None:
    decision = json.dumps({"reasons": ["client_preference", "spilled_under_load"]})
    found = await send(stories[0], lambda _: answered(x_headrace_format="quantized", x_headrace_decision=decision))
    assert str(found) == "full: answered by the other tier (client_preference, spilled_under_load)"
    found = await send(stories[0], lambda _: answered())
    assert str(found) == "full: answered by the other tier (by no decision of the filter's)"


async def test_an_engine_that_refuses_log_probabilities_is_asked_without(stories: list[Judged]) -> None:
    def answering(request: httpx.Request) -> httpx.Response:
        if "logprobs" in json.loads(request.content):
            return answered("{}", 400, x_headrace_format="full")
        return answered(x_headrace_format="full")

    assert isinstance(await send(stories[0], answering), Answer)


@pytest.mark.parametrize(("status", "tries"), [(429, 2), (502, 2), (503, 2), (500, 1), (404, 1)])
async def test_a_refusal_that_may_pass_is_tried_once_more(stories: list[Judged], status: int, tries: int) -> None:
    asked: list[httpx.Request] = []

    def answering(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return answered("{}", status, retry_after="0")

    found = await send(stories[0], answering)
    assert str(found) == f"full: refused (status {status})"
    assert len(asked) == tries
    first = iter([answered("{}", status, retry_after="0")])
    found = await send(stories[0], lambda _: next(first, answered(x_headrace_format="full")))
    assert isinstance(found, Answer) is (tries == 2)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            answered('{"error": {"code": "no_ready_node", "message": "secret"}}', 503),
            "refused (status 503 no_ready_node)",
        ),
        (answered('{"error": {"code": null, "type": "server_error"}}', 500), "refused (status 500 server_error)"),
        (answered("secret", 502), "refused (status 502)"),
        (answered("[]", 400), "refused (status 400)"),
        (answered("data: secret\n\n", x_headrace_format="full"), "broken off (the stream holds something else"),
        (answered("", x_headrace_format="full"), "broken off (the stream ended before its answer did)"),
    ],
)
async def test_what_went_wrong_is_told_without_a_word_of_the_answer(
    stories: list[Judged], answer: httpx.Response, told: str
) -> None:
    found = await send(stories[0], lambda _: answer)
    assert isinstance(found, Failure)
    assert str(found).startswith(f"full: {told}")
    assert "secret" not in str(found)


async def test_a_gateway_that_is_not_there_or_does_not_answer_is_told(stories: list[Judged]) -> None:
    def refusing(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    found = await send(stories[0], refusing)
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.UNREACHABLE

    async def silent(_: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with httpx.AsyncClient(transport=httpx.MockTransport(silent), base_url="http://gateway") as http:
        found = await Gateway(http, SENDING, timeout=0.01).send(stories[0], Mode.GREEDY, FormatTier.FULL)
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.TIMED_OUT
