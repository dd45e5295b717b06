"""Health as it is reported: what is believed at once, and what only when it lasts."""

from __future__ import annotations

import asyncio

import pytest

from node_agent.engine import EngineLoad, EngineUnavailableError, Found
from node_agent.probe import TIMEOUTS_BEFORE_UNHEALTHY, Probe


class ScriptedEngine:
    def __init__(self) -> None:
        self.error: EngineUnavailableError | None = None
        self.is_healthy = True
        self.current = EngineLoad(running=3, waiting=2, kv_cache_use=0.5, tokens_per_second=10.0)

    async def describe(self) -> Found:
        return Found("vllm")

    async def load(self) -> EngineLoad:
        if self.error:
            raise self.error
        return self.current

    async def healthy(self) -> bool:
        if self.error:
            raise self.error
        return self.is_healthy


async def test_a_slow_answer_now_and_then_keeps_the_last_load() -> None:
    engine = ScriptedEngine()
    probe = Probe(engine)
    first = await probe.read()
    engine.error = EngineUnavailableError("slow", timed_out=True)
    for _ in range(TIMEOUTS_BEFORE_UNHEALTHY - 1):
        assert await probe.read() == first
    engine.error = None
    await probe.read()
    engine.error = EngineUnavailableError("slow", timed_out=True)
    assert (await probe.read()).load.healthy


async def test_an_engine_that_stays_silent_is_unhealthy() -> None:
    engine = ScriptedEngine()
    probe = Probe(engine)
    await probe.read()
    engine.error = EngineUnavailableError("slow", timed_out=True)
    readings = [await probe.read() for _ in range(TIMEOUTS_BEFORE_UNHEALTHY)]
    assert [reading.load.healthy for reading in readings] == [True, True, False]
    assert readings[-1].running is None


async def test_an_engine_that_refuses_is_unhealthy_at_once() -> None:
    engine = ScriptedEngine()
    probe = Probe(engine)
    await probe.read()
    engine.error = EngineUnavailableError("refused")
    assert not (await probe.read()).load.healthy


async def test_an_engine_that_says_it_is_unwell_is_believed_at_once() -> None:
    engine = ScriptedEngine()
    engine.is_healthy = False
    assert not (await Probe(engine).read()).load.healthy


async def test_what_waits_counts_as_not_finished() -> None:
    assert (await Probe(ScriptedEngine()).read()).running == 5


@pytest.mark.parametrize(("told", "reported"), [(1.01, 1.0), (-0.1, 0.0), (0.5, 0.5), (None, None)])
async def test_a_share_stays_a_share(told: float | None, reported: float | None) -> None:
    engine = ScriptedEngine()
    engine.current = EngineLoad(running=0, kv_cache_use=told)
    assert (await Probe(engine).read()).load.kv_cache_use == reported


@pytest.mark.parametrize("turns", range(6))
async def test_a_cancellation_is_kept_when_the_engine_fails_in_the_same_moment(turns: int) -> None:
    engine = ScriptedEngine()
    fails = asyncio.Event()

    async def fail() -> bool:
        await fails.wait()
        raise EngineUnavailableError("refused")

    async def hang() -> EngineLoad:
        await asyncio.Event().wait()
        raise AssertionError

    engine.healthy = fail  # type: ignore[method-assign]
    engine.load = hang  # type: ignore[method-assign]
    probe = Probe(engine)

    async def read_for_ever() -> None:
        while True:
            await probe.read()
            fails.clear()

    reading = asyncio.create_task(read_for_ever())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    fails.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    reading.cancel()
    async with asyncio.timeout(2):
        await asyncio.wait({reading})
    assert reading.cancelled()
