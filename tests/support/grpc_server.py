"""A gRPC server in this process for a test, with the services that the test adds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import grpc

from controlplane.grpc_serving import Health, bind, new_server


@asynccontextmanager
async def serving(
    *services: Callable[[grpc.aio.Server], object],
    names: Sequence[str] = (),
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to it. Each of `services` adds one to the server; `names` are theirs, for health and reflection."""
    health = Health(names)
    await health.set_ready(True)
    server = new_server(names, health, interceptors=interceptors)
    for add in services:
        add(server)
    address = bind(server, "127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            yield channel
    finally:
        await server.stop(None)
