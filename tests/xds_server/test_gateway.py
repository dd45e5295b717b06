"""The data path of a gateway, on a real Envoy."""

from __future__ import annotations

import httpx
import pytest
from support.waiting import until
from xds_server.gateway import PoolCluster


@pytest.fixture
async def client():
    async with httpx.AsyncClient(timeout=20) as client:
        yield client


async def test_envoy_accepts_all_that_is_built(world, client):
    one = await world.engine("one")
    world.publish(PoolCluster("p1", (one.endpoint,)), PoolCluster("p2", (one.endpoint,), health_path=None))
    envoy = await world.envoy()
    await until(world.all_hold_it)
    assert await envoy.error_states() == []
    answer = await client.post(await envoy.gateway() + "/v1/chat/completions", json={})
    print(answer, answer.headers, answer.text, world.filter.seen, envoy.log.read_text()[-3000:])
    assert answer.status_code == 200
