"""Requests through the whole system: where they go, what the client is told, and what comes back to be seen."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from e2e.conftest import FULL, MODEL, QUANTIZED, RealFleet
from support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")


def chat(content: str, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 4, **more}


CODE = chat("Write a Python function that sorts a list. Return only code.", temperature=0)
STORY = chat("Tell me a short story about a dragon who likes tea.", temperature=0.9)


async def send(fleet: RealFleet, body: dict[str, Any], **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await fleet.system.http.post("/v1/chat/completions", json=body, headers=named)


async def test_code_at_temperature_0_goes_to_the_16_bit_engine(fleet: RealFleet) -> None:
    response = await send(fleet, CODE)
    assert response.status_code == 200
    assert response.headers["x-headrace-pool"] == FULL
    assert response.headers["x-headrace-format"] == "full"
    assert response.headers["x-headrace-verdict"] == "sensitive"


async def test_a_hot_story_goes_to_the_4_bit_engine(fleet: RealFleet) -> None:
    response = await send(fleet, STORY)
    assert response.headers["x-headrace-pool"] == QUANTIZED
    assert response.headers["x-headrace-verdict"] == "tolerant"


async def test_a_long_request_goes_where_its_budget_fits(fleet: RealFleet) -> None:
    response = await send(fleet, chat("Tell me a story. " * 120, temperature=0.9, max_tokens=8))
    assert response.headers["x-headrace-pool"] == FULL
    entry = await fleet.system.recorded(response)
    assert "needs_long_context" in entry.decision.reasons


async def test_a_session_keeps_its_tier(fleet: RealFleet) -> None:
    first = await send(fleet, CODE, x_session_id="keeps-its-tier")
    later = await send(fleet, STORY, x_session_id="keeps-its-tier")
    other = await send(fleet, STORY, x_session_id="another")
    assert [r.headers["x-headrace-pool"] for r in (first, later, other)] == [FULL, FULL, QUANTIZED]


async def test_the_decision_comes_back_with_its_outcome(fleet: RealFleet) -> None:
    entry = await fleet.system.recorded(await send(fleet, CODE))
    decision, outcome = entry.decision, entry.outcome
    assert decision.pool == outcome.cluster == FULL
    assert decision.sensitivity.verdict == "sensitive"
    assert {c.name for c in decision.sensitivity.contributions} >= {"greedy", "structured_words"}
    assert outcome.status == 200
    assert outcome.upstream == fleet.full.address
    assert outcome.completion_tokens == 4
    assert 0 < outcome.first_byte_seconds <= outcome.duration_seconds


async def test_usage_of_a_stream_comes_back(fleet: RealFleet) -> None:
    response = await send(fleet, {**STORY, "stream": True, "stream_options": {"include_usage": True}})
    assert response.text.rstrip().endswith("data: [DONE]")
    entry = await fleet.system.recorded(response)
    assert entry.outcome.completion_tokens == 4
    assert entry.decision.stream


async def test_a_refused_request_is_recorded_too(fleet: RealFleet) -> None:
    response = await send(fleet, {**CODE, "model": "gpt-9"})
    assert response.status_code == 404
    entry = await fleet.system.recorded(response)
    assert list(entry.decision.reasons) == ["unknown_model"]
    assert entry.outcome.status == 404


async def test_prompts_are_in_no_log_and_no_decision(fleet: RealFleet) -> None:
    response = await send(fleet, chat("The secret word is xylophonist. Write a story.", temperature=0.9))
    entry = await fleet.system.recorded(response)
    assert "xylophonist" not in str(entry)
    logs = [path.read_text(errors="replace") for path in fleet.system.folder.rglob("*.log")]
    assert not any("xylophonist" in text for text in logs)


async def test_debug_shows_the_decision_in_a_header_only_when_asked(fleet: RealFleet) -> None:
    asked = await send(fleet, STORY, x_headrace_debug="1")
    assert json.loads(asked.headers["x-headrace-decision"])["reasons"] == ["tolerant_prefers_quantized"]
    assert "x-headrace-decision" not in (await send(fleet, STORY)).headers


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, None),
        (b"[]", 400, None),
        (b"", 400, None),
        (b"\xff\xfe", 400, None),
        (b'{"model": "gpt-9"}', 404, "model_not_found"),
    ],
)
async def test_bad_requests_get_errors_of_openais_shape(
    fleet: RealFleet, body: bytes, status: int, code: str | None
) -> None:
    response = await fleet.system.http.post(
        "/v1/chat/completions", content=body, headers={"content-type": "application/json"}
    )
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    assert code is None or error["code"] == code


async def test_many_requests_at_once_are_all_answered_where_they_were_sent(fleet: RealFleet) -> None:
    """More than both engines run at once: what may spill does, what is sensitive waits for its tier."""
    responses = await asyncio.gather(*(send(fleet, body) for body in [CODE, STORY] * 10))
    assert [r.status_code for r in responses] == [200] * 20
    went = [(r.headers["x-headrace-pool"], r.headers["x-headrace-format"]) for r in responses]
    assert went[::2] == [(FULL, "full")] * 10
    assert set(went[1::2]) <= {(QUANTIZED, "quantized"), (FULL, "full")}


async def test_metrics_count_what_was_decided(fleet: RealFleet) -> None:
    await send(fleet, CODE)

    async def counted() -> bool:
        text = (await fleet.system.http.get(f"http://{fleet.system.addresses['metrics']}/metrics")).text
        return f'headrace_requests_total{{pool="{FULL}",status="2xx",verdict="sensitive"}}' in text

    await until(counted)
