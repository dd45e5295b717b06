"""Asking a server that answers as Prometheus does."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controlplane.agentless.prometheus import PrometheusAccess, PrometheusLoads
from controlplane.config.settings import PrometheusSettings
from controlplane.model import NodeLoad, NodeSpec
from support.prometheus import FakePrometheus, running_prometheus
from support.waiting import until

SETTINGS = PrometheusSettings(every=0.1, kv_cache_use="kv", running="running", waiting="waiting")
NODE = NodeSpec("gpu-1", "10.0.0.1:8000", ())
BY_ADDRESS = {"instance": NODE.address}


class World:
    def __init__(self, fake: FakePrometheus, settings: PrometheusSettings) -> None:
        self.fake = fake
        self.asked: Counter[tuple[str, bool]] = Counter()
        self.loads = PrometheusLoads(
            PrometheusAccess(settings, fake.url, "s3cret"),
            lambda: [NODE],
            lambda: 100.0,
            lambda signal, answered: self.asked.update([(signal, answered)]),
        )

    @property
    def trouble(self) -> str:
        return self.loads.status().trouble


@asynccontextmanager
async def reading(settings: PrometheusSettings = SETTINGS) -> AsyncIterator[World]:
    async with running_prometheus() as fake:
        fake.answers = {"kv": [(BY_ADDRESS, "0.8")], "running": [(BY_ADDRESS, "5")], "waiting": [(BY_ADDRESS, "3")]}
        world = World(fake, settings)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(world.loads.run())
            await until(lambda: bool(world.asked), 10)
            yield world
            task.cancel()


async def test_loads_are_read_with_the_configured_queries_bound_and_token() -> None:
    async with reading() as world:
        assert world.loads.loads == {"gpu-1": NodeLoad(5, 3, 0.8, sampled=True, reported_at=100.0)}
        status = world.loads.status()
        assert (status.nodes, status.failures, status.trouble, status.last_answer.seconds) == (1, 0, "", 100)
        assert {asked["query"] for asked in world.fake.asked} == {"kv", "running", "waiting"}
        assert {asked["lookback_delta"] for asked in world.fake.asked} == {"30s"}
        assert all("Bearer s3cret" in head for head in world.fake.headers)


async def test_what_it_does_not_tell_is_missing_and_told() -> None:
    async with reading() as world:
        world.fake.answers["kv"] = [({}, "1")]
        await until(lambda: bool(world.trouble), 10)
        assert world.trouble.startswith("kv_cache_use: the query gives values without the label instance")
        assert world.loads.loads["gpu-1"] == NodeLoad(5, 3, None, sampled=True, reported_at=100.0)
        world.fake.answers = {}
        await until(lambda: not world.loads.loads, 10)
        assert world.trouble == ""


async def test_a_server_in_trouble_is_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "controlplane.agentless.prometheus")
    async with reading() as world:
        world.fake.status = 503
        await until(lambda: world.asked["waiting", False] >= 2, 10)
        assert "kv_cache_use: HTTP status 503" in world.trouble
        assert world.loads.loads == {}
        assert world.loads.status().failures >= 6
        world.fake.status = 200
        await until(lambda: not world.trouble, 10)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "s3cret" not in caplog.text


async def test_a_signal_without_a_query_is_not_asked_for() -> None:
    settings = PrometheusSettings(every=0.1, kv_cache_use="kv", running=None, waiting=None)
    async with reading(settings) as world:
        assert world.loads.loads["gpu-1"].uncounted
        assert {asked["query"] for asked in world.fake.asked} == {"kv"}
