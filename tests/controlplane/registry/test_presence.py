"""Which filter workers there are, as control planes tell each other by a real etcd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controlplane.etcd.client import EtcdClient
from controlplane.latest import Latest
from controlplane.registry.following import FleetFollower
from controlplane.registry.keys import Keys
from controlplane.registry.presence import WorkerPresence
from support.etcd import running_etcd
from support.filter import cancelled
from support.waiting import until

KEYS = Keys("/headrace/v1/presence/")
LEASE_SECONDS = 2


def told_by(client: EtcdClient, watching: Latest[frozenset[str]]) -> asyncio.Task[None]:
    return asyncio.create_task(WorkerPresence(client, KEYS, watching, lease_seconds=LEASE_SECONDS).run())


@asynccontextmanager
async def following(client: EtcdClient) -> AsyncIterator[FleetFollower]:
    follower = FleetFollower(client, KEYS, grace=0.0)
    task = asyncio.create_task(follower.run())
    try:
        await until(lambda: follower.state is not None)
        yield follower
    finally:
        await cancelled(task)


def workers(follower: FleetFollower) -> set[str]:
    assert follower.state is not None
    return set(follower.state.workers)


async def test_workers_are_those_of_all_control_planes_and_go_with_them() -> None:
    async with running_etcd() as etcd, etcd.client() as client, following(client) as follower:
        one, other = Latest(frozenset({"a", "b"})), Latest(frozenset({"c"}))
        first, second = told_by(client, one), told_by(client, other)
        await until(lambda: workers(follower) == {"a", "b", "c"})
        one.put(frozenset({"b"}))  # its stream broke
        await until(lambda: workers(follower) == {"b", "c"})
        await cancelled(first)
        await until(lambda: workers(follower) == {"c"})
        await cancelled(second)
        await until(lambda: workers(follower) == set())


async def test_a_worker_that_turns_to_another_control_plane_stays() -> None:
    async with running_etcd() as etcd, etcd.client() as client, following(client) as follower:
        one, other = Latest(frozenset({"a"})), Latest(frozenset[str]())
        first = told_by(client, one)
        await until(lambda: workers(follower) == {"a"})
        former = await client.get(KEYS.worker("a"))
        second = told_by(client, other)
        other.put(frozenset({"a"}))
        one.put(frozenset({"x"}))

        async def taken_over() -> bool:
            record = await client.get(KEYS.worker("a"))
            return record is not None and former is not None and record.value != former.value

        await until(taken_over)
        await until(lambda: workers(follower) == {"a", "x"})
        await cancelled(first)
        await until(lambda: workers(follower) == {"a"})
        await cancelled(second)


async def test_workers_of_a_control_plane_that_dies_go_with_its_lease() -> None:
    async with running_etcd() as etcd, etcd.client() as client, following(client) as follower:
        async with etcd.client() as dying:
            task = told_by(dying, Latest(frozenset({"a"})))
            await until(lambda: workers(follower) == {"a"})
        # Nothing more of it reaches etcd, not even a farewell.
        await cancelled(task)
        await until(lambda: workers(follower) == set(), 2 * LEASE_SECONDS + 2)


async def test_what_etcd_has_lost_is_told_again() -> None:
    async with running_etcd() as etcd, etcd.client() as client, following(client) as follower:
        task = told_by(client, Latest(frozenset({"a"})))
        await until(lambda: workers(follower) == {"a"})
        record = await client.get(KEYS.worker("a"))
        assert record is not None
        await client.revoke_lease(record.lease_id)
        await until(lambda: workers(follower) == set())
        await until(lambda: workers(follower) == {"a"})
        await cancelled(task)
