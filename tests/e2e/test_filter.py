"""The filter behind a real Envoy: what reaches engines, bodies of every size, and filters that die."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
import pytest_asyncio

from e2e.conftest import rejections
from support.engine import EngineShape, FakeEngine, Fault, Received, running_engine
from support.processes import is_running
from support.system import FREE_PORTS, TWO_WORKERS, RunningSystem, running_system
from support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = "llama"
SERVED = "llama-awq"
FULL, QUANTIZED = f"{MODEL}/full/long/on_demand", f"{MODEL}/quantized/long/on_demand={SERVED}"
CONTEXT = 4_000_000


def chat(content: str, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 2, **more}


CODE = chat("Write a Python function that sorts a list. Return only code.", temperature=0)
STORY = chat("Tell me a short story about a dragon who likes tea.", temperature=0.9)


@dataclass(frozen=True, slots=True)
class World:
    system: RunningSystem
    full: FakeEngine
    quantized: FakeEngine

    async def send(self, body: dict[str, Any] | bytes, **headers: str) -> httpx.Response:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.system.http.post(
            "/v1/chat/completions", content=data, headers={"content-type": "application/json", **named}
        )

    def last(self, engine: FakeEngine) -> Received:
        return engine.inference_requests[-1]


@asynccontextmanager
async def running_world(config: str) -> AsyncIterator[World]:
    """A system with one engine of each tier; the quantized one knows the model by a name of its own only."""
    shape = EngineShape(
        model=MODEL, max_model_len=CONTEXT, num_gpu_blocks=CONTEXT, max_num_seqs=1000, prefill_rate=1e9, time_scale=0.1
    )
    quantized_shape = replace(shape, model=SERVED)
    flags = ("--max-sequences", "1000")
    async with (
        running_engine(shape) as full,
        running_engine(quantized_shape) as quantized,
        running_system(config) as system,
        system.node(full.url, "full", *flags, "--model", MODEL, "--format", "bf16"),
        system.node(quantized.url, "quantized", *flags, "--model", f"{MODEL}={SERVED}", "--format", "int4-awq"),
    ):
        await system.until_pools(FULL, QUANTIZED)
        world = World(system, full, quantized)
        await until(lambda: _flows(world))
        yield world
        assert await rejections(system.addresses["envoy_admin"]) == []


async def _flows(world: World) -> bool:
    return [(await world.send(body)).status_code for body in (CODE, STORY)] == [200, 200]


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def world() -> AsyncIterator[World]:
    async with running_world(FREE_PORTS) as running:
        yield running


# --- what clients may say, and what engines see --------------------------------------------------------------------


def internal_headers(request: Received) -> Iterator[str]:
    return (name for name, _ in request.headers if name.startswith(("x-headrace-", "headrace-", "x-envoy-upstream-")))


async def test_headers_that_only_the_gateway_may_set_reach_neither_routing_nor_engines(world: World) -> None:
    response = await world.send(
        CODE,
        x_headrace_pool=QUANTIZED,
        x_headrace_verdict="tolerant",
        x_headrace_anything="x",
        headrace_wish_debug="1",
        x_envoy_upstream_rq_timeout_ms="1",
    )
    assert response.headers["x-headrace-pool"] == FULL
    assert response.headers["x-headrace-format"] == "full"
    assert response.headers["x-headrace-verdict"] == "sensitive"
    assert "x-headrace-decision" not in response.headers
    assert list(internal_headers(world.last(world.full))) == []


async def test_a_wish_is_granted_and_not_passed_on(world: World) -> None:
    response = await world.send(CODE, x_headrace_debug="1")
    assert json.loads(response.headers["x-headrace-decision"])["reasons"] == ["sensitive_needs_full"]
    assert list(internal_headers(world.last(world.full))) == []


async def test_the_clients_own_headers_reach_the_engine(world: World) -> None:
    await world.send(CODE, x_session_id="mine", authorization="Bearer k", x_request_id="r-1")
    received = world.last(world.full)
    assert [received.header(name) for name in ("x-session-id", "authorization", "x-request-id")] == [
        "mine",
        "Bearer k",
        "r-1",
    ]


async def test_hostile_names_break_no_header(world: World) -> None:
    response = await world.send({**CODE, "model": "a\r\nx-headrace-pool: b\x00\u2028" + "m" * 100_000})
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"
    recorded = await world.system.recorded(response)
    assert len(recorded.decision.model) < 110


async def test_anthropics_clients_get_errors_of_their_shape(world: World) -> None:
    response = await world.system.http.post("/v1/messages", json={"model": "gpt-9", "messages": []})
    assert response.status_code == 404
    assert response.json()["type"] == "error"
    assert response.json()["error"]["type"] == "not_found_error"


# --- bodies --------------------------------------------------------------------------------------------------------


def body_of(size: int, **more: Any) -> bytes:
    """A chat of exactly so many bytes, with what a JSON library would write in another way."""
    start = b'{ "seed":1.50, "model" : "llama" ,"temperature":%s,"max_tokens":2,"x":[{"model":"llama"}],' % more.get(
        "temperature", b"0"
    )
    start += '"messages":[{"role":"user","content":"\\u00e9 \u6a21\u578b Write a Python function. '.encode()
    end = b'"}]}\n'
    return start + b"x " * ((size - len(start) - len(end)) // 2) + b"x" * ((size - len(start) - len(end)) % 2) + end


@pytest.mark.parametrize("size", [300, 33 << 10, 1 << 20, int(9.9 * (1 << 20))])
async def test_bodies_arrive_byte_for_byte(world: World, size: int) -> None:
    body = body_of(size)
    assert len(body) == size
    response = await world.send(body)
    assert (response.status_code, response.headers["x-headrace-pool"]) == (200, FULL)
    assert world.last(world.full).body == body


@pytest.mark.parametrize("size", [300, 33 << 10, 1 << 20, int(9.9 * (1 << 20))])
async def test_a_model_is_renamed_for_its_engine_and_every_other_byte_stays(world: World, size: int) -> None:
    body = body_of(size).replace(b"Write a Python function.", b"Tell me a story, dragon!").replace(b":0,", b":1,")
    response = await world.send(body)
    assert (response.status_code, response.headers["x-headrace-pool"]) == (200, QUANTIZED)
    assert world.last(world.quantized).body == body.replace(b'"model" : "llama"', b'"model" : "llama-awq"')


async def test_a_body_sent_in_pieces_arrives_whole(world: World) -> None:
    body = body_of(200_000)

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 7001):
            yield body[start : start + 7001]
            await asyncio.sleep(0)  # the client sends each piece by itself; no event says that it has

    response = await world.system.http.post("/v1/chat/completions", content=pieces())
    assert response.status_code == 200
    assert world.last(world.full).body == body


async def test_a_body_over_the_limit_is_a_413_and_reaches_no_engine(world: World) -> None:
    before = len(world.full.inference_requests)
    response = await world.send(body_of((10 << 20) + 1))
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "body_too_large"
    assert len(world.full.inference_requests) == before


# --- filters that die ----------------------------------------------------------------------------------------------


async def test_a_stream_goes_on_when_the_filter_is_killed(world: World) -> None:
    body = {**CODE, "max_tokens": 40, "stream": True}
    async with world.system.http.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = response.aiter_lines()
        received = [await anext(lines) for _ in range(4)]
        world.full.set_fault(Fault.HOLD)
        await world.system.kill("ext-proc")
        world.full.set_fault(Fault.NONE)
        received += [line async for line in lines]
    events = [line for line in received if line]
    assert events[-1] == "data: [DONE]"
    assert len(events) == 41
    await until(lambda: _flows(world))


async def test_without_a_filter_requests_are_asked_to_come_back_until_it_is_there(world: World) -> None:
    os.kill(world.system.pid_of("ext-proc"), signal.SIGKILL)
    responses = [await world.send(CODE)]
    while responses[-1].status_code != 200 and len(responses) < 100_000:
        responses.append(await world.send(CODE))
    *refused, last = responses
    assert last.status_code == 200
    assert refused
    assert {response.status_code for response in refused} == {503}
    for response in refused:
        assert response.json()["error"]["type"] == "server_error"
        assert response.headers["content-type"] == "application/json"
        assert int(response.headers["retry-after"]) >= 1


async def test_no_request_fails_when_one_of_two_workers_is_killed_under_load() -> None:
    async with running_world(TWO_WORKERS) as world:
        responses: list[httpx.Response] = []

        async def keep_sending(http: httpx.AsyncClient) -> None:
            while len(responses) < 1500:
                responses.append(await http.post("/v1/chat/completions", json=CODE))

        async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            for _ in range(10):  # with 10 connections each: httpx is slow with many
                http = httpx.AsyncClient(base_url=world.system.gateway, timeout=60, trust_env=False)
                await stack.enter_async_context(http)
                for _ in range(10):
                    tasks.create_task(keep_sending(http))
            await until(lambda: len(responses) > 300, 60)
            before = len(responses)
            os.kill(world.system.pid_of("ext-proc"), signal.SIGKILL)
        failed = [f"{r.status_code} {r.text}" for r in responses if r.status_code != 200]
        assert failed == []
        assert len(responses) - before > 500


async def test_no_request_fails_while_one_of_two_workers_hangs_and_it_is_replaced() -> None:
    async with running_world(TWO_WORKERS) as world:
        hung = world.system.pid_of("ext-proc")
        os.kill(hung, signal.SIGSTOP)
        responses: list[httpx.Response] = []

        async def is_gone() -> bool:
            responses.append(await world.send(CODE))
            return not is_running(hung)

        await until(is_gone)
        assert {response.status_code for response in responses} == {200}
