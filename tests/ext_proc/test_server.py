"""The filter as a whole, when the control plane that it heard is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from controlplane.config.load import policy_to_json
from controlplane.grpc_calling import ControlPlaneTarget
from controlplane.messages import pool_message
from controlplane.policy.settings import Policy
from ext_proc import feed
from ext_proc.http2_transport import Http2Transport
from ext_proc.metrics import FilterMetrics
from ext_proc.server import FilterServer
from headrace_protos.headrace.v1 import fleet_pb2, fleet_pb2_grpc
from support.asks import make_pool
from support.filter import Client, connected, pool_of
from support.waiting import until

POOL = make_pool()
BODY = {"model": "llama", "messages": [{"role": "user", "content": "Go on"}]}


class OneTable(fleet_pb2_grpc.FleetServicer):
    """Sends a table in which one node of two quiesces for a long time, and no news."""

    async def WatchRoutingTable(  # noqa: N802
        self, request: fleet_pb2.WatchRoutingTableRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[fleet_pb2.WatchRoutingTableResponse]:
        pool = replace(POOL, quiescing_nodes=1, settles_in=60.0, quiesces_since=100.0)
        table = fleet_pb2.RoutingTable(version="1", pools=[pool_message(pool)], policy_json=policy_to_json(Policy()))
        yield fleet_pb2.WatchRoutingTableResponse(table=table)
        await asyncio.Event().wait()


async def test_a_filter_that_hears_nothing_leaves_the_clusters_that_envoy_drops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "ALONE_SECONDS", 0.1)
    plane = grpc.aio.server()
    fleet_pb2_grpc.add_FleetServicer_to_server(OneTable(), plane)
    address = f"127.0.0.1:{plane.add_insecure_port('127.0.0.1:0')}"
    await plane.start()
    transports: list[Http2Transport] = []

    def transport(*given: Any, **named: Any) -> Http2Transport:
        transports.append(Http2Transport(*given, **named))
        return transports[-1]

    server = FilterServer(
        "127.0.0.1:0",
        [ControlPlaneTarget(address)],
        "worker",
        FilterMetrics(CollectorRegistry()),
        lambda: 0.5,
        health="127.0.0.1:0",
        max_body_bytes=1 << 20,
        max_wait=1.0,
        transport=transport,
    )
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.run(stop))
        await until(lambda: server.unready() is None)
        async with connected(transports[0].address) as client:
            assert await _cluster(client) == f"{POOL.name}@all"
            await plane.stop(None)

            async def sent_to_its_own() -> bool:
                return await _cluster(client) == POOL.name

            await until(sent_to_its_own)
        stop.set()


async def _cluster(client: Client) -> str:
    return pool_of(await client.ask(BODY))
