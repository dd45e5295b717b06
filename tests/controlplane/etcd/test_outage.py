"""What callers see while etcd, or a member of it, is down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from controlplane.errors import UnavailableError
from controlplane.etcd.client import EtcdClient
from controlplane.etcd.connection import EtcdAccess
from controlplane.etcd.server import free_ports
from support.etcd import RunningEtcd, running_etcd
from support.waiting import until


async def test_without_an_etcd_a_call_fails_in_time_and_says_what_to_check() -> None:
    (port,) = free_ports(1)
    settings = EtcdAccess((f"127.0.0.1:{port}",), call_timeout=0.3)
    async with EtcdClient(settings) as client:
        with pytest.raises(UnavailableError, match=rf"127\.0\.0\.1:{port} did not answer within 0\.3 s; check"):
            await client.get("/k")
        assert client.health.trouble is not None


async def test_a_read_waits_out_a_restart(etcd: RunningEtcd) -> None:
    async with etcd.client() as client:
        await client.put("/k", b"v")
        await etcd.kill()
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(client.get("/k"))
            await etcd.start_again()
        record = reading.result()
        assert record is not None
        assert record.value == b"v"
        assert client.health.trouble is None


async def test_the_next_endpoint_serves_when_the_first_is_dead(etcd: RunningEtcd) -> None:
    (dead,) = free_ports(1)
    async with EtcdClient(EtcdAccess((f"127.0.0.1:{dead}", etcd.endpoint))) as client:
        await client.put("/k", b"v")


@asynccontextmanager
async def cluster() -> AsyncIterator[list[RunningEtcd]]:
    """Three members."""
    peers = {f"m{number}": f"http://127.0.0.1:{port}" for number, port in enumerate(free_ports(3))}
    timings = ("--heartbeat-interval", "50", "--election-timeout", "500")
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        members = [
            tasks.create_task(
                stack.enter_async_context(
                    running_etcd(
                        arguments=(
                            *("--name", name),
                            *("--listen-peer-urls", url, "--initial-advertise-peer-urls", url),
                            *("--initial-cluster", ",".join(f"{name}={url}" for name, url in peers.items())),
                            *timings,
                        )
                    )
                )
            )
            for name, url in peers.items()
        ]
        yield [await member for member in members]


async def test_a_cluster_that_loses_each_member_in_turn_loses_no_write_and_no_event() -> None:
    async with cluster() as members:
        settings = EtcdAccess(tuple(member.endpoint for member in members))
        async with EtcdClient(settings) as client, EtcdClient(settings) as watcher:
            first = await client.put("/w/first", b"")
            acknowledged = {first}
            watched: list[int] = []

            async def follow() -> None:
                async for changes in watcher.watch("/w/", first):
                    watched.extend(event.mod_revision for event in changes.events)

            async def write() -> None:
                while True:
                    try:
                        acknowledged.add(await client.put("/w/k", b""))
                    except UnavailableError:
                        continue

            async def some_more_writes() -> bool:
                return len(acknowledged) > enough

            following, writing = asyncio.create_task(follow()), asyncio.create_task(write())
            try:
                for member in members:
                    enough = len(acknowledged) + 20
                    await until(some_more_writes)
                    await member.kill()
                    enough = len(acknowledged) + 20
                    await until(some_more_writes)
                    await member.start_again()
            finally:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)
            await until(lambda: acknowledged <= set(watched))
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            assert watched == sorted(set(watched))
