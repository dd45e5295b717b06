"""The gRPC server that every Headrace port is."""

from __future__ import annotations

import asyncio

from controlplane.grpc_serving import Health, bind, new_server
from support.h2c import go_silent


async def test_a_peer_that_hangs_is_cut_off_within_ten_seconds() -> None:
    health = Health([])
    server = new_server([], health)
    address = bind(server, "127.0.0.1:0")
    await health.set_ready(True)
    await server.start()
    try:
        async with asyncio.timeout(20):  # and as much again for a busy machine
            await go_silent(int(address.rpartition(":")[2]), "/grpc.health.v1.Health/Watch", b"")
    finally:
        await server.stop(None)
