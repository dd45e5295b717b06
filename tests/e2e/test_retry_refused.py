"""With `gateway.retry_refused` a request that is too long for its pool's engines is served by the larger pool."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio

from e2e.conftest import rejections
from support.engine import EngineShape, FakeEngine, running_engine
from support.system import FREE_PORTS, RunningSystem, running_system

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = "test-model"
SHORT, LONG = (f"{MODEL}/full/{size}/on_demand" for size in ("short", "long"))
# The engines count each byte as a token, which is learned and forgotten at once.
CONFIG = (
    FREE_PORTS.replace("gateway: {", "gateway: {retry_refused: true, ")
    + "policy: {context_classes: [{name: short, max_context: 2048}, {name: long}], "
    "estimation: {half_life_seconds: 0.001}}\n"
)


@dataclass(frozen=True, slots=True)
class Sizes:
    system: RunningSystem
    short: FakeEngine
    long: FakeEngine

    async def send(self, words: int, **more: Any) -> httpx.Response:
        """A prompt of so many words of five bytes."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": "word " * words}], "temperature": 0.5, **more}
        return await self.system.http.post("/v1/chat/completions", json=body)

    @property
    def tries(self) -> tuple[int, int]:
        return len(self.short.inference_requests), len(self.long.inference_requests)


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def sizes() -> AsyncIterator[Sizes]:
    async with (
        running_engine(EngineShape(model=MODEL, max_model_len=2048, bytes_per_token=1.0)) as short,
        running_engine(EngineShape(model=MODEL, max_model_len=32_768, bytes_per_token=1.0)) as long,
        running_system(CONFIG) as system,
        system.node(short.url, "short", "--max-sequences", "8", "--format", "fp16"),
        system.node(long.url, "long", "--max-sequences", "8", "--format", "fp16"),
    ):
        await system.until_pools(SHORT, LONG)
        yield Sizes(system, short, long)
        assert await rejections(system.addresses["envoy_admin"]) == []


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_what_the_short_pool_refuses_the_long_one_serves(sizes: Sizes, stream: bool) -> None:
    """Facts row: error asymmetry (one retry where the context was too small)."""
    before = sizes.tries
    answer = await sizes.send(500, stream=stream, stream_options={"include_usage": True} if stream else None)
    assert answer.status_code == 200
    assert answer.headers["x-headrace-pool"] == SHORT  # where it was sent
    assert sizes.tries == (before[0] + 1, before[1] + 1)
    assert sizes.short.inference_requests[-1].body == sizes.long.inference_requests[-1].body
    recorded = await sizes.system.recorded(answer)
    assert (recorded.decision.pool, recorded.outcome.cluster, recorded.outcome.node_id) == (SHORT, LONG, "long")
    assert (recorded.outcome.attempts, recorded.misroute) == (2, "too_small")


async def test_what_is_refused_for_another_reason_is_refused_by_both(sizes: Sizes) -> None:
    before = sizes.tries
    answer = await sizes.send(2, messages=None, prompt="no messages")
    assert answer.status_code == 400
    assert sizes.tries == (before[0] + 1, before[1] + 1)
    assert (await sizes.system.recorded(answer)).misroute == "unknown"


async def test_what_fits_is_tried_once(sizes: Sizes) -> None:
    before = sizes.tries
    assert (await sizes.send(20)).status_code == 200
    assert sizes.tries == (before[0] + 1, before[1])
