"""The fake engine itself: what load and fault tests rely on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from support.engine import EngineShape, FakeEngine, Fault, running_engine
from support.waiting import until

CHAT = "/v1/chat/completions"


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with running_engine(EngineShape(max_num_seqs=2, num_gpu_blocks=16)) as engine:
        yield engine


@pytest.fixture
async def client(engine: FakeEngine) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=engine.url, timeout=10) as client:
        yield client


def ask(**more: object) -> dict[str, object]:
    return {"model": "test-model", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, **more}


async def test_an_answer_has_the_tokens_asked_for_and_their_count(client: httpx.AsyncClient) -> None:
    answer = (await client.post(CHAT, json=ask())).json()
    assert answer["choices"][0]["message"]["content"].split() == ["word0", "word1", "word2", "word3"]
    assert answer["usage"] == {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}


async def test_a_stream_ends_with_usage_when_asked_for(client: httpx.AsyncClient) -> None:
    text = (await client.post(CHAT, json=ask(stream=True, stream_options={"include_usage": True}))).text
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["usage"]["total_tokens"] == 13
    assert len(events) == 4 + 2


async def test_a_prompt_over_the_context_is_refused_as_by_vllm(client: httpx.AsyncClient) -> None:
    answer = await client.post(CHAT, json=ask(max_tokens=5000))
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("This model's maximum context length is 4096 tokens.")
    assert answer.json()["error"]["code"] == 400


async def test_an_unknown_model_is_refused_as_by_vllm(client: httpx.AsyncClient) -> None:
    answer = await client.post(CHAT, json=ask(model="other"))
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "NotFoundError"


async def test_more_requests_than_sequences_wait_in_order(engine: FakeEngine, client: httpx.AsyncClient) -> None:
    engine.set_fault(Fault.HOLD)
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(client.post(CHAT, json=ask()))
        await until(lambda: (engine.counters.running, engine.counters.waiting) == (2, 3))
        engine.set_fault(Fault.NONE)
    assert (engine.counters.running, engine.counters.waiting, engine.counters.kv_tokens) == (0, 0, 0)
    assert (engine.counters.finished, engine.counters.most_running) == (5, 2)


async def test_a_request_waits_for_room_in_the_kv_cache(engine: FakeEngine, client: httpx.AsyncClient) -> None:
    engine.set_fault(Fault.HOLD)
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(client.post(CHAT, json=ask(max_tokens=200)))
        await until(lambda: (engine.counters.running, engine.counters.waiting) == (1, 1))
        engine.set_fault(Fault.NONE)
    assert engine.counters.finished == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_frees_its_sequence(engine: FakeEngine, stream: bool) -> None:
    engine.set_fault(Fault.HOLD)
    async with httpx.AsyncClient(base_url=engine.url) as client:
        running = asyncio.create_task(client.post(CHAT, json=ask(stream=stream)))
        await until(lambda: engine.counters.running == 1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await until(lambda: engine.counters.running == 0)
    assert engine.counters.aborted == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cut_answer_is_no_whole_answer(engine: FakeEngine, client: httpx.AsyncClient, stream: bool) -> None:
    engine.set_fault(Fault.CUT)
    with pytest.raises(httpx.RemoteProtocolError):
        await client.post(CHAT, json=ask(stream=stream))
    await until(lambda: engine.counters.running == 0)


async def test_an_unavailable_engine_answers_503_to_everything(engine: FakeEngine, client: httpx.AsyncClient) -> None:
    engine.set_fault(Fault.UNAVAILABLE)
    assert (await client.get("/health")).status_code == 503
    assert (await client.post(CHAT, json=ask())).status_code == 503


async def test_a_hung_engine_answers_once_it_is_well_again(engine: FakeEngine, client: httpx.AsyncClient) -> None:
    engine.set_fault(Fault.HANG)
    health = asyncio.create_task(client.get("/health"))
    await until(lambda: engine.requests)
    assert not health.done()
    engine.set_fault(Fault.NONE)
    assert (await health).status_code == 200


async def test_requests_are_recorded_as_they_came(engine: FakeEngine, client: httpx.AsyncClient) -> None:
    body = b'{"model": "test-model",   "prompt": "x", "max_tokens": 1}'
    await client.post("/v1/completions", content=body, headers={"X-Headrace-Pool": "spoofed"})
    [received] = engine.inference_requests
    assert (received.path, received.body) == ("/v1/completions", body)
    assert received.header("x-headrace-pool") == "spoofed"


async def test_time_passes_by_the_rates_and_their_scale() -> None:
    shape = EngineShape(prefill_rate=1e9, decode_rate=10, time_scale=0.1)
    async with running_engine(shape) as engine, httpx.AsyncClient(base_url=engine.url) as client:
        started = asyncio.get_running_loop().time()
        await client.post(CHAT, json=ask(max_tokens=10))
        assert 0.1 <= asyncio.get_running_loop().time() - started < 1.0
