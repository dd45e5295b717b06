"""The llama.cpp adapter against a real llama.cpp server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import httpx
import pytest

from node_agent.detection import detect_engine
from node_agent.engine import Engine, EngineLoad, EngineUnavailableError, FoundModel
from node_agent.http import EngineHttp
from node_agent.llamacpp import LlamacppEngine
from support.llama import RunningLlama
from support.waiting import until


@pytest.fixture
async def engine(llama: RunningLlama) -> AsyncIterator[Engine]:
    async with EngineHttp(llama.url) as http:
        engine = await detect_engine(http, time.monotonic)
        assert isinstance(engine, LlamacppEngine)
        yield engine


async def test_it_describes_the_model_as_it_is_served(engine: Engine) -> None:
    found = await engine.describe()
    assert found.engine == "llama.cpp"
    assert found.version
    assert found.health_path == "/health"
    assert found.models == (
        FoundModel("smollm2-135m", format="gguf-q4", max_context=2048, max_sequences=2, kv_cache_tokens=None),
    )


async def test_it_is_healthy(engine: Engine) -> None:
    assert await engine.healthy()


async def test_it_tells_what_runs_and_waits_and_how_fast(engine: Engine, llama: RunningLlama) -> None:
    async def generate() -> None:
        async with httpx.AsyncClient(base_url=llama.url, timeout=120) as client:
            answer = await client.post(
                "/v1/completions",
                json={"model": llama.model, "prompt": "Once upon a time", "max_tokens": 24, "ignore_eos": True},
            )
            answer.raise_for_status()

    await until(lambda: _is(engine, running=0, waiting=0), 30)
    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(generate())
        await until(lambda: _is(engine, running=2, waiting=2), 30)
    load = await until(lambda: _is(engine, running=0, waiting=0), 30)
    assert load.kv_cache_use is None
    # It counts the tokens of an answer when the answer has ended; some of the looks above saw them.
    assert (await engine.load()).tokens_per_second == 0.0


async def test_it_answers_chat_and_embeddings_in_one_process(llama: RunningLlama) -> None:
    async with httpx.AsyncClient(base_url=llama.url, timeout=120) as client:
        embedded = await client.post("/v1/embeddings", json={"model": llama.model, "input": ["a cat", "a dog"]})
        chat = await client.post(
            "/v1/chat/completions",
            json={"model": llama.model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4},
        )
    assert [len(item["embedding"]) for item in embedded.json()["data"]] == [576, 576]
    assert chat.json()["choices"][0]["message"]["content"]


async def test_an_embedding_input_may_be_longer_than_the_default_physical_batch(llama: RunningLlama) -> None:
    async with httpx.AsyncClient(base_url=llama.url, timeout=120) as client:
        answer = await client.post("/v1/embeddings", json={"model": llama.model, "input": "word " * 600})
    assert answer.status_code == 200, answer.text


async def _is(engine: Engine, *, running: int, waiting: int) -> EngineLoad | None:
    try:
        load = await engine.load()
    except EngineUnavailableError:
        return None  # busy for a moment
    return load if (load.running, load.waiting) == (running, waiting) else None
