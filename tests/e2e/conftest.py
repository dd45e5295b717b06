"""One whole system for the end-to-end tests: real etcd, real Envoy, and two real engines of one model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import pytest_asyncio

from support.llama import RunningLlama, running_llama
from support.system import FREE_PORTS, RunningSystem, running_system

MODEL = "smollm2-135m"
FULL = f"{MODEL}/full/long/on_demand"
QUANTIZED = f"{MODEL}/quantized/short/on_demand"

CONFIG = FREE_PORTS + "policy: {context_classes: [{name: short, max_context: 512}, {name: long}]}\n"


@dataclass(frozen=True, slots=True)
class RealFleet:
    """A system with a 4-bit engine of short context and a 16-bit one of long context, both of MODEL."""

    system: RunningSystem
    quantized: RunningLlama
    full: RunningLlama


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def fleet() -> AsyncIterator[RealFleet]:
    async with (
        running_llama("q4", model=MODEL, context=512, slots=4) as quantized,
        running_llama("f16", model=MODEL, context=2048, slots=2) as full,
        running_system(CONFIG) as system,
        system.node(quantized.url, "quantized"),
        system.node(full.url, "full"),
    ):
        await system.until_pools(FULL, QUANTIZED)
        yield RealFleet(system, quantized, full)


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def no_update_is_rejected(request: object) -> AsyncIterator[None]:
    """After each test with the real fleet, Envoy has refused nothing that it was told."""
    yield
    real: RealFleet | None = getattr(request, "node").funcargs.get("fleet")  # noqa: B009 - pytest's own, untyped here
    if real is not None:
        assert await rejections(real.system.addresses["envoy_admin"]) == []


async def rejections(envoy_admin: str) -> list[str]:
    """What Envoy says of updates that it refused: counters that are not 0, and error states of its configuration."""
    async with httpx.AsyncClient(base_url=f"http://{envoy_admin}", trust_env=False) as admin:
        stats = (await admin.get("/stats", params={"filter": "update_rejected"})).text
        found = [line for line in stats.splitlines() if not line.endswith(": 0")]
        dump = (await admin.get("/config_dump")).text
    return found + (["config_dump has an error_state"] if '"error_state"' in dump else [])
