"""Requests, pools and tables as the policy's tests need them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from controlplane.model import Ask, CapacityType, FormatTier, HttpRequest, Pool, PoolLoad
from controlplane.policy.access import Identity, identify
from controlplane.policy.ask import parse
from controlplane.policy.settings import Policy
from controlplane.policy.table import RoutingTable, compile_table

IDLE = PoolLoad(running=0, waiting=0, kv_cache_use=0.1)
BUSY = PoolLoad(running=32, waiting=2, kv_cache_use=0.9)  # has no room for others, but is not overloaded
OVERLOADED = PoolLoad(running=32, waiting=20, kv_cache_use=0.99)


def make_request(
    body: Any = b"",
    path: str = "/v1/chat/completions",
    *,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
) -> HttpRequest:
    """A request; a body that is not bytes is sent as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HttpRequest(method, path, headers or {}, data)


def make_ask(
    body: Any,
    path: str = "/v1/chat/completions",
    *,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
    policy: Policy | None = None,
) -> Ask:
    """What a body that must be readable asks for."""
    request = make_request(body, path, method=method, headers=headers)
    identity = identify(request.headers, make_table(policy=policy), None)
    assert isinstance(identity, Identity), identity
    ask = parse(request, policy or Policy(), identity.tenant)
    assert isinstance(ask, Ask), ask
    return ask


def make_chat(text: str, system: str = "", **fields: Any) -> Ask:
    """A chat of one user turn."""
    messages = [{"role": "user", "content": text}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    return make_ask({"model": "llama", "messages": messages, **fields})


def make_pool(
    tier: str = "full",
    context_class: str = "short",
    *,
    model: str = "llama",
    ready: int = 2,
    capacity: str = "on_demand",
    max_context: int | None = None,
    load: PoolLoad | None = None,
    served_name: str = "",
    aliases: tuple[str, ...] = (),
    gain: float = 1.8,
) -> Pool:
    """A pool of at least two nodes with 16 sequences each; short holds 8192 tokens, others 32768.

    The gain is that of a quantized pool.
    """
    return Pool(
        name=f"{model}/{tier}/{context_class}/{capacity}{'=' + served_name if served_name else ''}",
        model=model,
        tier=FormatTier(tier),
        context_class=context_class,
        capacity_type=CapacityType(capacity),
        max_context=max_context or (8192 if context_class == "short" else 32768),
        max_sequences=16 * ready,
        ready_nodes=ready,
        nodes=max(2, ready),
        served_name=served_name or model,
        aliases=aliases,
        formats=("bf16",) if tier == "full" else ("int4-awq",),
        load=load,
        gain=gain if tier == "quantized" else 1.0,
    )


def make_table(*pools: Pool, policy: Policy | None = None) -> RoutingTable:
    return compile_table("1", pools, policy or Policy())
