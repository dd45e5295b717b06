"""Who a request is from, behind a real Envoy: API keys that are rotated, signed tokens, headers of trusted peers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from controlplane.policy.access import key_digest
from e2e.conftest import rejections
from support.engine import EngineShape, FakeEngine, running_engine
from support.system import FREE_PORTS, START_SECONDS, RunningSystem, headrace, running_system
from support.tokens import Issuer
from support.waiting import until

SECRET = "0123456789abcdef0123456789abcdef"
SECONDS = 30.0
MODEL = "llama"
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 2}


@dataclass(frozen=True, slots=True)
class World:
    system: RunningSystem
    engine: FakeEngine

    async def send(self, path: str = "/v1/chat/completions", **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if path == "/v1/models":
            return await self.system.http.get(path, headers=named)
        return await self.system.http.post(path, json=CHAT, headers=named)

    async def take_policy(self, policy: str) -> None:
        file = self.system.folder / "policy.yaml"
        file.write_text(policy)
        done = await self.system.headrace("policy", "set", str(file))
        assert done.status == 0, done.err

    async def tenant_of(self, response: httpx.Response) -> str:
        assert response.status_code == 200, response.text
        return (await self.system.recorded(response)).decision.tenant

    def seen_headers(self) -> dict[str, str]:
        """What the engine saw of the last request."""
        return dict(self.engine.inference_requests[-1].headers)


@asynccontextmanager
async def running_world(tmp_path: Path, config: str, **more: str) -> AsyncIterator[World]:
    """`more` is put into the sections of that name."""
    (tmp_path / "secret").write_text(SECRET)
    ports = FREE_PORTS
    for section, settings in {"ext_proc": f"key_secret_file: {tmp_path}/secret", **more}.items():
        ports = ports.replace(f"{section}: {{", f"{section}: {{{settings}, ")
    async with (
        running_engine(EngineShape(model=MODEL, time_scale=0.1)) as engine,
        running_system(ports + config) as system,
        system.node(engine.url, "n", "--model", MODEL, "--format", "bf16", "--max-sequences", "256"),
    ):
        await until(system.pools, START_SECONDS)
        yield World(system, engine)
        assert await rejections(system.addresses["envoy_admin"]) == []


def refused(response: httpx.Response) -> dict[str, Any]:
    """The error of an answer that says nothing but that the client is not known."""
    assert response.status_code == 401, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["www-authenticate"].startswith("Bearer ")
    error: dict[str, Any] = response.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, "invalid_api_key")
    assert MODEL not in response.text
    return error


# --- API keys ------------------------------------------------------------------------------------------------------


def keys_policy(**digests: list[str]) -> str:
    tenants = [{"name": name, "keys": keys, "qos_tier": "guaranteed"} for name, keys in digests.items()]
    return json.dumps({"tenants": {"required": True, "known": tenants}})


async def test_keys_are_made_by_the_command_line_and_rotated_without_a_restart(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    config = tmp_path / "keys.yaml"
    config.write_text(f"ext_proc: {{key_secret_file: {tmp_path}/secret}}")
    made = [(await headrace("keys", "new", "acme", "-c", str(config))).out for _ in range(2)]
    old, new = [next(line.strip() for line in text.splitlines() if line.startswith("    hr-")) for text in made]
    digests = [text.rpartition("[")[2].rstrip("]\n") for text in made]
    assert digests == [key_digest(key, SECRET.encode()) for key in (old, new)]

    (tmp_path / "engine-key").write_text("engine-key-1\n")
    files = f"key_secret_file: {tmp_path}/secret, engine_key_file: {tmp_path}/engine-key"
    async with running_world(tmp_path, f"policy: {keys_policy(acme=[digests[0]])}", ext_proc=files) as world:

        async def works(key: str) -> bool:
            return (await world.send(authorization=f"Bearer {key}")).status_code == 200

        async def take(*keys: str) -> None:
            await world.take_policy(keys_policy(acme=list(keys)))

        await until(lambda: works(old), SECONDS)
        for name in ("authorization", "x-api-key", "api-key"):
            shown = f"Bearer {old}" if name == "authorization" else old
            response = await world.send(**{name: shown})
            assert await world.tenant_of(response) == "name:acme"
            assert (await world.system.recorded(response)).decision.qos_tier == "guaranteed"
            assert old not in str(world.seen_headers())
            assert world.seen_headers()["authorization"] == "Bearer engine-key-1"

        sent = len(world.engine.inference_requests)
        for path in ("/v1/chat/completions", "/v1/models", "/anything"):
            refused(await world.send(path))
            refused(await world.send(path, authorization=f"Bearer {new}"))
            refused(await world.send(path, authorization=f"Bearer {old}x"))
            refused(await world.send(path, x_api_key=digests[0]))
            refused(await world.send(path, x_headrace_tenant="acme"))
        assert len(world.engine.inference_requests) == sent
        assert (await world.send("/v1/models", x_api_key=old)).status_code == 200

        await take(*digests)
        await until(lambda: works(new), SECONDS)
        assert await works(old)
        await take(digests[1])
        await until(lambda: _not(works(old)), SECONDS)
        assert await works(new)
        logs = "".join(file.read_text(errors="replace") for file in (world.system.folder / "logs").iterdir())
        assert old not in logs
        assert new not in logs


async def _not(condition: Any) -> bool:
    return not await condition


async def _is_served(world: World, **headers: str) -> bool:
    return (await world.send(**headers)).status_code == 200


# --- tokens --------------------------------------------------------------------------------------------------------


JWT = "issuer: https://issuer.test, audiences: [gateway], claim: org"
TOKENS_OR_KEYS = keys_policy(acme=[key_digest("hr-1", SECRET.encode())])


async def test_a_signed_token_names_the_tenant_and_others_are_refused(tmp_path: Path) -> None:
    issuer, stranger = Issuer.new(), Issuer.new()
    (tmp_path / "jwks.json").write_text(issuer.jwks)
    jwt = f"jwt: {{jwks_file: {tmp_path}/jwks.json, {JWT}}}"
    async with running_world(tmp_path, f"policy: {TOKENS_OR_KEYS}", gateway=jwt) as world:
        good = issuer.token(org="zürich")
        await until(lambda: _is_served(world, authorization=f"Bearer {good}"), SECONDS)
        response = await world.send(authorization=f"Bearer {good}", x_headrace_tenant="acme")
        assert await world.tenant_of(response) == "name:zürich"
        assert good not in str(world.seen_headers())
        assert "x-headrace-tenant" not in world.seen_headers()
        assert await world.tenant_of(await world.send(x_api_key="hr-1")) == "name:acme"

        assert "verification fails" in refused(await world.send(authorization=f"Bearer {stranger.token()}"))["message"]
        refused(await world.send(authorization=f"Bearer {issuer.token()}"))  # names nobody
        refused(await world.send())

        (tmp_path / "jwks.json").write_text(stranger.jwks)  # the issuer's keys are renewed
        renewed = stranger.token(org="zürich")
        await until(lambda: _is_served(world, authorization=f"Bearer {renewed}"), SECONDS)
        refused(await world.send(authorization=f"Bearer {good}"))


# --- trusted peers -------------------------------------------------------------------------------------------------


async def test_a_header_counts_only_from_a_trusted_peer_and_is_taken_off_otherwise(tmp_path: Path) -> None:
    claims = {"x-tenant": "acme", "x-forwarded-for": "10.0.0.1, ::1", "x-headrace-peer": "10.0.0.1"}
    tenants = "tenants: {{header: X-Tenant, trusted_peers: {peers}, required: {required}}}"
    trusting = tenants.format(peers="[127.0.0.0/8]", required="true")
    async with running_world(tmp_path, f"policy: {{{trusting}}}") as world:
        await until(lambda: _is_served(world, **claims), SECONDS)
        assert await world.tenant_of(await world.send(**claims)) == "name:acme"
        assert world.seen_headers()["x-tenant"] == "acme"

        await world.take_policy(tenants.format(peers="[10.0.0.0/8, '::1']", required="true"))
        await until(lambda: _not(_is_served(world, **claims)), SECONDS)
        refused(await world.send(**claims))

        await world.take_policy(tenants.format(peers="[10.0.0.0/8, '::1']", required="false"))
        await until(lambda: _is_served(world, **claims), SECONDS)
        assert await world.tenant_of(await world.send(**claims)) == ""
        assert "x-tenant" not in world.seen_headers()
        assert "x-headrace-peer" not in world.seen_headers()
