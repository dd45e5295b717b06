"""Both transports beneath a real Envoy, by the configuration that Headrace gives it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import httpx
import pytest

from controlplane.model import HttpRequest
from ext_proc.answer import Answer, Reply, Route
from ext_proc.exchange import TooLarge
from ext_proc.http2_transport import Http2Transport
from ext_proc.waiting import Extend
from support.envoy import RunningEnvoy
from support.filter import TRANSPORTS, AnyTransport, not_used
from support.gateway import Engine, body_of, running_world
from support.waiting import until
from xds_server.gateway import PoolCluster

CHAT = "/v1/chat/completions"


class Deciding:
    """Sends all to one pool, except what asks for something else; holds back what asks to wait until `go`."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.sizes: list[int] = []
        self.waiting = 0
        self.left = 0

    async def answer(self, request: HttpRequest | TooLarge, extend: Extend) -> Answer:
        if isinstance(request, TooLarge):
            return Reply(413, (), b"{}", {}, "headrace_too_large")
        self.sizes.append(len(request.body))
        if "x-refuse" in request.headers:
            return Reply(429, (("retry-after", "3"),), b'{"error": {}}', {"reason": "r"}, "headrace_r")
        if "x-wait" in request.headers:
            self.waiting += 1
            try:
                await extend(30.0)
                await self.go.wait()
            except asyncio.CancelledError:
                self.left += 1
                raise
        body = request.body.replace(b"x", b"y") if "x-rewrite" in request.headers else None
        return Route("p1", {"pool": "p1", "reason": "r"}, body)


@dataclass
class Gateway:
    deciding: Deciding
    transport: Http2Transport
    engine: Engine
    envoy: RunningEnvoy
    client: httpx.AsyncClient


@pytest.fixture(params=TRANSPORTS)
async def gateway(request: pytest.FixtureRequest) -> AsyncIterator[Gateway]:
    async with running(request.param) as gateway:
        yield gateway


@asynccontextmanager
async def running(kind: AnyTransport) -> AsyncIterator[Gateway]:
    deciding = Deciding()
    transport = kind("127.0.0.1:0", deciding.answer, not_used, max_body_bytes=9_000_000)
    await transport.health.set_ready(True)
    await transport.start()
    async with running_world() as world:
        world.gateway = replace(world.gateway, ext_proc=(transport.address,))
        engine = await world.engine("one")
        world.publish(PoolCluster("p1", (engine.endpoint,)))
        envoy = await world.envoy()
        await until(world.all_hold_it)
        async with httpx.AsyncClient(base_url=await envoy.gateway(), timeout=30.0, trust_env=False) as client:
            await until(lambda: _answers(client))
            deciding.sizes.clear()
            engine.received.clear()
            yield Gateway(deciding, transport, engine, envoy, client)  # type: ignore[arg-type]
    await transport.stop(0.0)


async def _answers(client: httpx.AsyncClient) -> bool:
    return (await client.post(CHAT, json={})).status_code == 200


async def faults(envoy: RunningEnvoy) -> dict[str, int]:
    """What Envoy counts of broken HTTP/2 and of streams that it did not end itself."""
    http2 = r"http2[.](rx_reset|.*(error|violation|invalid|too_many).*)"
    found = await envoy.stats(f"^cluster[.]headrace-ext-proc[.]({http2}|upstream_rq_(rx_reset|retry))$")
    return {name.removeprefix("cluster.headrace-ext-proc."): value for name, value in found.items() if value}


async def test_requests_of_all_kinds_are_decided(gateway: Gateway) -> None:
    client, engine = gateway.client, gateway.engine
    large, chunks = body_of(8_900_000), body_of(300_000)
    answers = await asyncio.gather(*(client.post(CHAT, content=body_of(2000 + n)) for n in range(100)))
    # One after the other: engine, filter and client share a loop, on which Envoy's health checks must be answered.
    answers.append(await client.post(CHAT, content=large))
    answers.append(await client.post(CHAT, content=_each(chunks)))
    answers.append(await client.get("/v1/models"))
    assert {answer.status_code for answer in answers} == {200}
    assert sorted(gateway.deciding.sizes) == sorted([0, *range(2000, 2100), len(large), len(chunks)])
    assert large in [received.body for received in engine.received]
    refused = await client.post(CHAT, json={}, headers={"x-refuse": "1"})
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "3")
    await client.post(CHAT, content=b'{"x": "xx"}', headers={"x-rewrite": "1"})
    assert engine.received[-1].body == b'{"y": "yy"}'
    if isinstance(gateway.transport, Http2Transport):
        assert await faults(gateway.envoy) == {}


async def _each(body: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(body), 7000):
        yield body[at : at + 7000]


async def test_a_client_that_leaves_while_it_waits_is_noticed(gateway: Gateway) -> None:
    asking = [asyncio.create_task(gateway.client.post(CHAT, json={}, headers={"x-wait": "1"})) for _ in range(5)]
    await until(lambda: gateway.deciding.waiting == 5)
    for task in asking[:4]:
        task.cancel()
    await until(lambda: gateway.deciding.left == 4)
    gateway.deciding.go.set()
    assert (await asking[4]).status_code == 200
    assert len(gateway.engine.received) == 1


async def test_a_filter_that_stops_answers_what_has_begun(gateway: Gateway) -> None:
    asking = asyncio.create_task(gateway.client.post(CHAT, json={}, headers={"x-wait": "1"}))
    await until(lambda: gateway.deciding.waiting == 1)
    stopping = asyncio.create_task(gateway.transport.stop(20.0))
    await asyncio.sleep(0)  # lets it begin
    gateway.deciding.go.set()
    assert (await asking).status_code == 200
    assert len(gateway.engine.received) == 1
    await stopping


async def test_envoys_header_blocks_are_decoded_once() -> None:
    async with running(Http2Transport) as gateway:
        await asyncio.gather(*(gateway.client.post(CHAT, json={}) for _ in range(50)))
        [peer] = [peer for peer in gateway.transport._server._peers if peer._grpc.http2._last_stream > 50]
        assert len(peer._grpc.http2._fields._remembered) <= 4
