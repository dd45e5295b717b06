"""Three context classes of one model, on real Envoy, with engines that refuse and cut as vLLM does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from e2e.conftest import rejections
from support.engine import EngineShape, running_engine
from support.system import FREE_PORTS, RunningSystem, running_system
from support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = "test-model"
SIZES = {"small": 2048, "middle": 8192, "large": 32_768}
# The engines count each byte as a token, which is learned and forgotten at once: so prompts of words get too small a
# class, and those of digits too large a one. Without a cap 1000 tokens of output are expected.
BYTES_PER_TOKEN = 1.0
CLASSES = "context_classes: [{name: small, max_context: 2048}, {name: middle, max_context: 8192}, {name: large}]"
ESTIMATION = "estimation: {half_life_seconds: 0.001}"
CONFIG = f"{FREE_PORTS}policy: {{{CLASSES}, {ESTIMATION}}}\n"
TWO_CLASSES = f"context_classes: [{{name: short, max_context: 2048}}, {{name: long}}]\n{ESTIMATION}\n"


def pool_of(name: str) -> str:
    return f"{MODEL}/full/{name}/on_demand"


def shape(size: str) -> EngineShape:
    return EngineShape(model=MODEL, max_model_len=SIZES[size], bytes_per_token=BYTES_PER_TOKEN)


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def system() -> AsyncIterator[RunningSystem]:
    async with (
        running_engine(shape("small")) as small,
        running_engine(shape("middle")) as middle,
        running_engine(shape("large")) as large,
        running_system(CONFIG) as running,
        running.node(small.url, "small", "--max-sequences", "8", "--format", "fp16"),
        running.node(middle.url, "middle", "--max-sequences", "8", "--format", "fp16"),
        running.node(large.url, "large", "--max-sequences", "8", "--format", "fp16"),
    ):
        await running.until_pools(*map(pool_of, SIZES))
        yield running
        assert await rejections(running.addresses["envoy_admin"]) == []


async def send(system: RunningSystem, words: int, **more: Any) -> httpx.Response:
    """A prompt of so many words of five bytes."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "word " * words}], "temperature": 0.5, **more}
    return await system.http.post("/v1/chat/completions", json=body)


@pytest.mark.parametrize(
    ("words", "cap", "to", "mistake"),
    [
        (20, 200, "small", "none"),
        (20, 3000, "middle", "none"),
        (20, 20_000, "large", "none"),
        (1400, None, "middle", "none"),  # the estimate is too low, and yet in the right class
    ],
)
async def test_each_class_gets_what_it_holds(
    system: RunningSystem, words: int, cap: int | None, to: str, mistake: str
) -> None:
    answer = await send(system, words, **({} if cap is None else {"max_tokens": cap}))
    assert (answer.status_code, answer.headers["x-headrace-pool"]) == (200, pool_of(to))
    assert (await system.recorded(answer)).misroute == mistake


async def test_a_refusal_for_the_context_is_recorded_as_too_small_and_found_as_that(system: RunningSystem) -> None:
    answer = await send(system, 500, stream=True)
    assert answer.status_code == 400
    recorded = await system.recorded(answer)
    assert recorded.decision.pool == pool_of("small")
    assert recorded.outcome.context_exceeded
    assert recorded.misroute == "too_small"
    assert "maximum context" not in str(recorded)
    assert "too_small" in (await system.headrace("decisions", "--mistake", "too_small")).out
    assert recorded.request_id in (await system.headrace("decisions", "--mistake", "too_small", "--json")).out
    assert recorded.request_id not in (await system.headrace("decisions", "--mistake", "none", "--json")).out
    metrics = (await system.http.get(f"http://{system.addresses['metrics']}/metrics")).text
    line = f'headrace_context_judged_total{{mistake="too_small",pool="{pool_of("small")}"}}'
    assert line in metrics


async def test_an_answer_cut_where_the_context_ends_is_recorded_as_too_small(system: RunningSystem) -> None:
    answer = await send(system, 400)  # some 15 tokens are left
    recorded = await system.recorded(answer)
    assert answer.status_code == 200
    assert recorded.outcome.prompt_tokens + recorded.outcome.completion_tokens == SIZES["small"]
    assert recorded.misroute == "too_small"


async def test_what_a_smaller_class_would_have_held_is_recorded_as_too_large(system: RunningSystem) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "1234567890" * 90}], "temperature": 0.5}
    answer = await system.http.post("/v1/chat/completions", json=body)
    recorded = await system.recorded(answer)
    assert (recorded.decision.pool, recorded.misroute) == (pool_of("middle"), "too_large")


async def test_without_usage_nothing_can_be_told(system: RunningSystem) -> None:
    recorded = await system.recorded(await send(system, 20, stream=True))
    assert recorded.misroute == "unknown"


async def test_the_list_of_classes_may_change_while_requests_are_served(system: RunningSystem) -> None:
    file = system.folder / "two.yaml"
    file.write_text(TWO_CLASSES)
    statuses: list[int] = []

    async def moved(*names: str) -> bool:
        statuses.append((await send(system, 20, max_tokens=10)).status_code)
        return sorted(pool.name for pool in await system.pools()) == sorted(names)

    assert (await system.headrace("policy", "set", str(file))).status == 0
    await until(lambda: moved(pool_of("short"), pool_of("long")), 30)
    status = await system.headrace("status")
    assert "context_class_too_wide" in status.out
    assert (await system.headrace("policy", "reset")).status == 0
    await until(lambda: moved(*map(pool_of, SIZES)), 30)
    assert set(statuses) == {200}
