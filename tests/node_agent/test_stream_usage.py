"""Whether an engine's streams tell token counts: asked once, by one token, and told with each load report."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import httpx
import pytest
from prometheus_client import CollectorRegistry

from controlplane.grpc_calling import ControlPlaneTarget
from node_agent.agent import run
from node_agent.engine import Found, FoundModel
from node_agent.http import EngineHttp
from node_agent.metrics import AgentMetrics
from node_agent.settings import AgentSettings
from node_agent.stream_usage import MOST_TRIES, StreamUsage
from node_agent.vram import Gpus
from support.engine import EngineShape, FakeEngine, running_engine
from support.llama import RunningLlama
from support.registry import ScriptedRegistry, running_registry
from support.waiting import until

FOUND = Found("vllm", "0.32.0", (FoundModel("llama"),), instance="1")
USAGE = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
TIMINGS = {"choices": [{"delta": {}}], "timings": {"prompt_n": 1, "cache_n": 3, "predicted_n": 1}}


def stream(*events: object) -> httpx.Response:
    text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    return httpx.Response(200, text=text, headers={"content-type": "text/event-stream"})


class Asked:
    """An engine that answers by `answer`, and what it was asked."""

    def __init__(self, answer: Callable[[httpx.Request], httpx.Response]) -> None:
        self.requests: list[httpx.Request] = []
        self._answer = answer

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return self._answer(request)


@asynccontextmanager
async def asking(engine: Asked) -> AsyncIterator[StreamUsage]:
    async def sleep(_: float) -> None:
        await asyncio.sleep(0)

    async with EngineHttp("http://engine", transport=httpx.MockTransport(engine)) as http:
        usage = StreamUsage(http)
        task = asyncio.create_task(usage.run(lambda: 0.5, sleep))
        try:
            yield usage
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ((USAGE,), True),
        ((TIMINGS,), True),
        (({"choices": []},), False),
        (({"choices": [], "usage": None}, [1], "x"), False),
        ((), False),
    ],
)
async def test_it_is_told_by_what_one_token_brings(events: tuple[object, ...], told: bool) -> None:
    engine = Asked(lambda _: stream(*events))
    async with asking(engine) as usage:
        usage.described(FOUND)
        await until(lambda: usage.told is not None)
    assert usage.told is told
    (request,) = engine.requests
    body = json.loads(request.content)
    assert (request.url.path, body["model"], body["max_tokens"], body["stream"]) == (
        "/v1/chat/completions",
        "llama",
        1,
        True,
    )
    assert "stream_options" not in body


async def test_a_model_without_a_chat_template_completes() -> None:
    engine = Asked(lambda r: httpx.Response(400) if "chat" in r.url.path else stream(USAGE))
    async with asking(engine) as usage:
        usage.described(FOUND)
        await until(lambda: usage.told)
    assert [request.url.path for request in engine.requests] == ["/v1/chat/completions", "/v1/completions"]


async def test_it_is_asked_again_only_when_it_is_another_one() -> None:
    engine = Asked(lambda _: stream(USAGE))
    async with asking(engine) as usage:
        for _ in range(3):
            usage.described(FOUND)
            await until(lambda: usage.told)
        assert len(engine.requests) == 1
        usage.described(replace(FOUND, instance="2"))
        assert usage.told is None
        await until(lambda: usage.told)
    assert len(engine.requests) == 2


async def test_an_engine_that_gives_no_answer_is_asked_a_few_times_and_stays_unknown() -> None:
    engine = Asked(lambda _: httpx.Response(503))
    async with asking(engine) as usage:
        usage.described(FOUND)
        await until(lambda: len(engine.requests) == MOST_TRIES)
        usage.described(replace(FOUND, instance="2"))
        await until(lambda: len(engine.requests) == 2 * MOST_TRIES)
    assert usage.told is None


async def test_an_engine_of_unknown_kind_and_one_without_models_are_not_asked() -> None:
    engine = Asked(lambda _: stream(USAGE))
    async with asking(engine) as usage:
        usage.described(Found("openai-compatible", models=FOUND.models))
        usage.described(Found("vllm"))
        usage.described(FOUND)  # is, so that the others would have been by now
        await until(lambda: usage.told)
    assert len(engine.requests) == 1


# --- in the agent --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def reported(engine: FakeEngine | RunningLlama) -> AsyncIterator[ScriptedRegistry]:
    """The registry of an agent as it is by default."""
    async with running_registry() as registry:
        settings = AgentSettings(
            engine_url=engine.url,
            control_planes=(ControlPlaneTarget(registry.address),),
            node_id="node-1",
            max_sequences=8,
        )
        stop, hurry = asyncio.Event(), asyncio.Event()
        agent = asyncio.create_task(
            run(settings, Gpus(), AgentMetrics(CollectorRegistry(), time.time), stop=stop, hurry=hurry)
        )
        try:
            yield registry
        finally:
            stop.set()
            hurry.set()
            async with asyncio.timeout(60):
                await agent


def told(registry: ScriptedRegistry) -> bool | None:
    load = registry.last_load if registry.reports else None
    return load.streams_usage if load is not None and load.HasField("streams_usage") else None


@pytest.mark.parametrize("forced", [True, False])
async def test_load_reports_say_it_and_the_node_is_registered_once(forced: bool) -> None:
    async with running_engine(EngineShape(force_include_usage=forced)) as engine, reported(engine) as registry:
        await until(lambda: told(registry) is forced)
        (request,) = engine.inference_requests
        assert request.json["max_tokens"] == 1
    assert len(registry.registered) == 1


async def test_a_real_llama_cpp_tells(llama: RunningLlama) -> None:
    async with reported(llama) as registry:
        await until(lambda: told(registry), 60)
