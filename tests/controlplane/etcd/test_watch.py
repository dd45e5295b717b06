"""Watches against a real etcd: order, wholeness, gaps."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from controlplane.etcd.client import EtcdClient
from controlplane.etcd.errors import CompactedError, WatchLostError
from controlplane.etcd.records import Changes, Delete, Put, delete, put
from support.etcd import RunningEtcd


async def collect(client: EtcdClient, prefix: str, from_revision: int, events: int) -> list[Changes]:
    """What a watch tells until it has told of so many events."""
    told: list[Changes] = []
    async with aclosing(client.watch(prefix, from_revision)) as watch:
        while sum(len(changes.events) for changes in told) < events:
            told.append(await anext(watch))
    return told


def revisions(told: list[Changes]) -> list[int]:
    return [event.mod_revision for changes in told for event in changes.events]


async def test_a_watch_tells_history_and_then_news_of_its_prefix(client: EtcdClient) -> None:
    first = await client.put("/w/a", b"1")
    await client.put("/elsewhere", b"")
    await client.delete("/w/a")
    async with asyncio.TaskGroup() as tasks:
        watch = tasks.create_task(collect(client, "/w/", first, events=3))
        last = await client.put("/w/b", b"2")
    events = [event for changes in watch.result() for event in changes.events]
    assert isinstance(events[0], Put)
    assert events[0].record.value == b"1"
    assert events[1] == Delete("/w/a", first + 2)
    assert (events[2].key, events[2].mod_revision) == ("/w/b", last)


async def test_revisions_come_whole_however_large(client: EtcdClient) -> None:
    # etcd splits responses above 1.5 MiB into fragments, in the midst of a revision too.
    keys = [f"/w/{number:03}-{'k' * 3000}" for number in range(100)]
    for half in (keys[:50], keys[50:]):
        await client.transact([], [put(key, bytes(20_000)) for key in half])
    last = await client.transact([], [delete(key) for key in keys])
    told = await collect(client, "/w/", last.revision - 2, events=200)
    assert revisions(told) == [last.revision - 2] * 50 + [last.revision - 1] * 50 + [last.revision] * 100
    done = 0
    for changes in told:
        assert changes.events[0].mod_revision > done
        done = changes.revision
        assert changes.events[-1].mod_revision == done


async def test_a_watch_from_compacted_history_says_so(client: EtcdClient) -> None:
    first = await client.put("/w/a", b"1")
    last = await client.put("/w/a", b"2")
    await client.compact(last)
    async with aclosing(client.watch("/w/", first)) as watch:
        with pytest.raises(CompactedError) as caught:
            await anext(watch)
    assert caught.value.revision == last


async def test_a_watch_misses_nothing_when_etcd_is_killed_amid_a_backlog(etcd: RunningEtcd) -> None:
    async with etcd.client() as client:
        first = await client.put("/w/0", b"")
        for batch in range(30):
            await asyncio.gather(*(client.put(f"/w/{batch}", bytes(4000)) for _ in range(100)))
        seen: list[int] = []
        async with aclosing(client.watch("/w/", first)) as watch:
            kills = 0
            while len(seen) < 3001:
                seen += [event.mod_revision for event in (await anext(watch)).events]
                if kills < 2 and len(seen) < 3001:
                    kills += 1
                    await etcd.kill()
                    await etcd.start_again()
        assert seen == list(range(first, first + 3001))
        assert kills == 2


async def test_a_watch_goes_on_after_an_outage_with_what_came_later(etcd: RunningEtcd) -> None:
    async with etcd.client() as client, asyncio.TaskGroup() as tasks:
        first = await client.put("/w/a", b"1")
        watch = tasks.create_task(collect(client, "/w/", first, events=2))
        await etcd.kill()
        await etcd.start_again()
        last = await client.put("/w/b", b"2")
        assert revisions(await watch) == [first, last]


async def test_a_watch_is_lost_when_etcd_comes_back_without_its_data(etcd: RunningEtcd) -> None:
    async with etcd.client() as client:
        for _ in range(5):
            last = await client.put("/w/a", b"1")
        async with aclosing(client.watch("/w/", last)) as watch:
            assert (await anext(watch)).revision == last
            await etcd.kill()
            etcd.lose_data()
            await etcd.start_again()
            with pytest.raises(WatchLostError, match="etcd is at revision 1"):
                await anext(watch)
