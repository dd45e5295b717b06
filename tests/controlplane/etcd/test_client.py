"""The etcd client against a real etcd."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.etcd.client import EtcdClient
from controlplane.etcd.errors import LeaseNotFoundError
from controlplane.etcd.records import delete, exists, get, mod_revision_is, put, value_is


async def test_a_key_reads_back_as_it_was_written(client: EtcdClient) -> None:
    revision = await client.put("/a/key", b"\x00value")
    record = await client.get("/a/key")
    assert record is not None
    assert (record.value, record.mod_revision, record.create_revision) == (b"\x00value", revision, revision)
    assert await client.get("/a") is None


async def test_a_listing_holds_the_prefix_only_and_its_revision(client: EtcdClient) -> None:
    for key in ("/a", "/b/1", "/b/2", "/b0"):
        last = await client.put(key, key.encode())
    listing = await client.list("/b/")
    assert [record.key for record in listing.records] == ["/b/1", "/b/2"]
    assert listing.revision == last
    assert len((await client.list("")).records) == 4


async def test_deleting_says_whether_there_was_a_key(client: EtcdClient) -> None:
    await client.put("/k", b"")
    assert await client.delete("/k")
    assert not await client.delete("/k")


async def test_a_transaction_happens_only_if_all_conditions_hold(client: EtcdClient) -> None:
    revision = await client.put("/k", b"1")
    won = await client.transact([mod_revision_is("/k", revision), value_is("/k", b"1")], [put("/k", b"2"), get("/k")])
    assert won.succeeded
    assert won.records[0] is not None
    assert won.records[0].value == b"2"
    lost = await client.transact(
        [mod_revision_is("/k", revision), exists("/k")], [delete("/k")], [get("/k"), get("/n")]
    )
    assert not lost.succeeded
    assert lost.records == (await client.get("/k"), None)


async def test_of_many_writers_that_compare_and_swap_none_is_lost(client: EtcdClient) -> None:
    await client.put("/n", b"0")

    async def add_one() -> None:
        while True:
            record = await client.get("/n")
            assert record is not None
            more = str(int(record.value) + 1).encode()
            if (await client.transact([mod_revision_is("/n", record.mod_revision)], [put("/n", more)])).succeeded:
                return

    await asyncio.gather(*(add_one() for _ in range(20)))
    record = await client.get("/n")
    assert record is not None
    assert record.value == b"20"


async def test_a_key_goes_with_its_lease(client: EtcdClient) -> None:
    lease = await client.grant_lease(30)
    await client.put("/k", b"", lease_id=lease)
    assert await client.renew_lease(lease) == 30
    assert 28 <= await client.lease_seconds_left(lease) <= 30
    await client.revoke_lease(lease)
    assert await client.get("/k") is None
    for call in (client.renew_lease, client.revoke_lease, client.lease_seconds_left):
        with pytest.raises(LeaseNotFoundError):
            await call(lease)
    with pytest.raises(LeaseNotFoundError):
        await client.put("/k", b"", lease_id=lease)
