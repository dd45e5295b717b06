"""Clients' tokens, verified by a real Envoy: which count, what the filter learns of them, and what others are told."""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from headrace_protos.envoy.service.ext_proc.v3 import external_processor_pb2
from support.certificates import Authority
from support.gateway import World, to_pool
from support.tokens import Issuer
from support.waiting import until
from xds_server.gateway import PoolCluster, Tokens

CHAT = "/v1/chat/completions"
ISSUER = Issuer.new()
COUNTS = Tokens(claim="org", keys=ISSUER.jwks, issuer="https://issuer.test", audiences=("gateway",))


@asynccontextmanager
async def gateway_of(world: World, tokens: Tokens) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an Envoy that verifies tokens, in front of one engine that is `received` by."""
    engine = await world.engine("one")
    world.gateway = dataclasses.replace(world.gateway, tokens=tokens)
    world.publish(PoolCluster("p1", (engine.endpoint,)))
    envoy = await world.envoy()
    await until(world.all_hold_it)
    async with httpx.AsyncClient(base_url=await envoy.gateway(), timeout=20) as client:
        yield client
    assert world.notes.rejections() == []


async def send(client: httpx.AsyncClient, token: str, **headers: str) -> httpx.Response:
    return await client.post(CHAT, json={}, headers={"authorization": f"Bearer {token}", **headers})


def refused(answer: httpx.Response) -> str:
    """What the client is told."""
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["www-authenticate"].startswith("Bearer ")
    error = answer.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, "invalid_api_key")
    return str(error["message"])


async def test_a_token_that_counts_names_the_tenant_to_the_filter_alone(world: World) -> None:
    async with gateway_of(world, COUNTS) as client:
        token = ISSUER.token(org="zürich")
        assert (await send(client, token, **{"x-headrace-tenant": "forged"})).status_code == 200
        seen = world.filter.seen[-1].headers
        assert seen["x-headrace-tenant"] == ["zürich"]
        assert "authorization" not in seen
        assert (await send(client, ISSUER.token(), **{"x-headrace-tenant": "forged"})).status_code == 200
        assert "x-headrace-tenant" not in world.filter.seen[-1].headers


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (Issuer.new().token(org="acme"), "verification fails"),
        (ISSUER.token(org="acme", exp=int(time.time()) - 3600), "expired"),
        (ISSUER.token(org="acme", exp=None), ""),
        (ISSUER.token(org="acme", iss="https://elsewhere.test"), "ssuer"),
        (ISSUER.token(org="acme", aud="elsewhere"), "udiences"),
        (ISSUER.token(org="acme").rpartition(".")[0] + ".", ""),
        ("eyJhbGciOiJub25lIn0.eyJvcmciOiJhY21lIn0.", ""),
    ],
)
async def test_a_token_that_does_not_count_is_refused_before_the_filter_sees_it(
    world: World, token: str, why: str
) -> None:
    async with gateway_of(world, COUNTS) as client:
        assert why in refused(await send(client, token))
        assert world.filter.seen == []


@pytest.mark.parametrize("credential", ["Bearer hr-key", "Basic dXNlcjpwYXNz", "Bearer a.b.c", ""])
async def test_what_is_no_token_is_for_the_filter_to_judge(world: World, credential: str) -> None:
    async with gateway_of(world, COUNTS) as client:
        headers = {"authorization": credential} if credential else {}
        assert (await client.post(CHAT, json={}, headers=headers)).status_code == 200
        assert world.filter.seen[-1].headers.get("authorization", [""]) == [credential]


async def test_the_filters_own_401_passes_as_it_is(world: World) -> None:
    answer = to_pool("p1", decision="x")
    own = external_processor_pb2.ProcessingResponse(dynamic_metadata=answer.dynamic_metadata)
    own.immediate_response.status.code = 401
    own.immediate_response.body = b"its own"
    world.filter.decide = lambda _: own
    async with gateway_of(world, COUNTS) as client:
        assert (await client.post(CHAT, json={})).text == "its own"


# --- keys that are fetched -----------------------------------------------------------------------------------------


@asynccontextmanager
async def serving(text: str, tls: ssl.SSLContext | None) -> AsyncIterator[str]:
    """A server of the issuer's keys, by its URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(text)}\r\nconnection: close\r\n\r\n{text}".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}/keys"


def tls_of(authority: Authority, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(name))
    return context


async def test_keys_are_fetched_in_plain_text_from_this_machine(world: World) -> None:
    async with serving(ISSUER.jwks, None) as url, gateway_of(world, fetched(url)) as client:
        await until(lambda: counts(client))
        refused(await send(client, Issuer.new().token(org="acme")))


@pytest.mark.parametrize("vouched", [True, False])
async def test_keys_are_fetched_by_tls_from_whom_the_authority_vouches_for(
    world: World, tmp_path: Path, vouched: bool
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    authority, other = Authority(tmp_path / "one"), Authority(tmp_path / "other")
    ca = (authority if vouched else other).file.read_text()
    async with (
        serving(ISSUER.jwks, tls_of(authority, "localhost")) as url,
        gateway_of(world, fetched(url, ca)) as client,
    ):
        if vouched:
            await until(lambda: counts(client))
        else:
            assert "fetch" in refused(await send(client, ISSUER.token(org="acme")))


def fetched(url: str, authority: str | None = None) -> Tokens:
    return dataclasses.replace(COUNTS, keys="", keys_url=url, keys_authority=authority)


async def counts(client: httpx.AsyncClient) -> bool:
    return (await send(client, ISSUER.token(org="acme"))).status_code == 200
