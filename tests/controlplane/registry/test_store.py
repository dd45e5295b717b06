"""Node sessions in a real etcd."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress

import pytest

from controlplane.errors import AddressTakenError, RegistrationError, UnknownSessionError
from controlplane.etcd.client import EtcdClient
from controlplane.etcd.errors import LeaseNotFoundError
from controlplane.model import Override
from controlplane.policy.settings import QuiescenceRules
from controlplane.registry.codec import decode_override, decode_session
from controlplane.registry.keys import Keys
from controlplane.registry.store import NodeStore
from support.etcd import RunningEtcd
from support.nodes import FORMATS, load, node
from support.waiting import until

KEYS = Keys()
NO_QUIESCENCE = QuiescenceRules(seconds=0)


def store(
    client: EtcdClient,
    *,
    lease_seconds: int = 10,
    quiescence: QuiescenceRules = NO_QUIESCENCE,
    clock: Callable[[], float] = lambda: 0.0,
    ids: str = "s",
) -> NodeStore:
    numbers = itertools.count(1)
    return NodeStore(
        client,
        KEYS,
        formats=lambda: FORMATS,
        lease_seconds=lease_seconds,
        quiescence=lambda: quiescence,
        new_session_id=lambda: f"{ids}{next(numbers)}",
        clock=clock,
        wall_clock=lambda: 1234.5,
    )


async def keys_in(client: EtcdClient) -> list[str]:
    return [record.key.removeprefix(KEYS.prefix) for record in (await client.list(KEYS.prefix)).records]


async def test_a_registration_lies_under_one_lease(client: EtcdClient) -> None:
    session = await store(client).register(node())
    assert (session.session_id, session.spec, session.registered_at) == ("s1", node(), 1234.5)
    records = list((await client.list(KEYS.prefix)).records)
    assert [record.key.removeprefix(KEYS.prefix) for record in records] == [
        "addresses/10.0.0.1:8000",
        "nodes/a",
        "remembered/a",
        "sessions/s1",
    ]
    remembered = records.pop(2)
    assert {record.lease_id for record in records} == {session.lease_id}
    assert (remembered.lease_id, decode_session(remembered)) == (0, session)


async def test_session_ids_cannot_be_guessed_by_default(client: EtcdClient) -> None:
    nodes = NodeStore(client, KEYS, formats=lambda: FORMATS, lease_seconds=10)
    ids = {(await nodes.register(node())).session_id for _ in range(3)}
    assert len(ids) == 3
    assert {len(session_id) for session_id in ids} == {32}


async def test_a_node_without_heartbeats_goes_with_its_lease_and_is_remembered(client: EtcdClient) -> None:
    await store(client, lease_seconds=1).register(node())

    async def is_gone() -> bool:
        return await keys_in(client) == ["remembered/a"]

    await until(is_gone)


async def test_heartbeats_outlast_the_lease(client: EtcdClient) -> None:
    now = 0.0
    nodes = store(client, lease_seconds=11, clock=lambda: now)  # etcd is asked for a second less
    session = await nodes.register(node())
    lease = session.lease_id
    left = await client.lease_seconds_left(lease)
    assert left >= 9

    async def has_aged() -> bool:
        return await client.lease_seconds_left(lease) < 9

    await until(has_aged)
    now = 2.4  # less than a quarter of the lease: nothing is due
    await nodes.heartbeat("s1", load())
    assert await client.lease_seconds_left(lease) < 9
    now = 2.5
    await nodes.heartbeat("s1", load())
    assert await client.lease_seconds_left(lease) >= 9


async def test_a_heartbeat_after_the_lease_has_ended_is_refused(client: EtcdClient) -> None:
    nodes = store(client)
    session = await nodes.register(node())
    await client.revoke_lease(session.lease_id)
    with pytest.raises(UnknownSessionError, match="register again"):
        await nodes.heartbeat("s1", load())
    with pytest.raises(UnknownSessionError):
        await nodes.heartbeat("never-given", load())
    assert await keys_in(client) == ["remembered/a"]


async def test_a_new_registration_replaces_the_former_session_at_once(client: EtcdClient) -> None:
    nodes = store(client)
    first = await nodes.register(node())
    await nodes.heartbeat("s1", load(running=9))
    second = await nodes.register(node(address="10.0.0.2:8000"))
    assert await keys_in(client) == ["addresses/10.0.0.2:8000", "nodes/a", "remembered/a", "sessions/s2"]
    assert first.lease_id != second.lease_id
    with pytest.raises(UnknownSessionError):
        await nodes.heartbeat("s1", load(running=9))
    with pytest.raises(UnknownSessionError):
        await nodes.deregister("s1")
    assert (await nodes.heartbeat("s2", load())).session_id == "s2"


async def test_another_control_plane_refuses_the_replaced_session_too(etcd: RunningEtcd) -> None:
    async with etcd.client() as one, etcd.client() as other:
        here, there = store(one, ids="here"), store(other, ids="there")
        await here.register(node())
        assert (await there.heartbeat("here1", load())).spec == node()
        await there.register(node())
        for nodes in (here, there):
            with pytest.raises(UnknownSessionError):
                await nodes.heartbeat("here1", load())
        assert (await here.heartbeat("there1", load())).session_id == "there1"


async def test_an_address_belongs_to_one_live_node(client: EtcdClient) -> None:
    nodes = store(client)
    await nodes.register(node("a", "10.0.0.1:8000"))
    with pytest.raises(AddressTakenError, match=r"10\.0\.0\.1:8000 is held by node a") as caught:
        await nodes.register(node("b", "10.0.0.1:8000"))
    assert caught.value.node_id == "a"
    await nodes.deregister("s1")
    assert await keys_in(client) == []
    await nodes.register(node("b", "10.0.0.1:8000"))


async def test_two_spellings_of_an_address_are_one(client: EtcdClient) -> None:
    nodes = store(client)
    session = await nodes.register(node("a", "[fd00:0::7]:08000"))
    assert session.spec.address == "[fd00::7]:8000"
    with pytest.raises(AddressTakenError):
        await nodes.register(node("b", "[FD00::0007]:8000"))


async def test_a_faulty_description_leaves_nothing_behind(client: EtcdClient) -> None:
    before = (await client.list("")).revision
    with pytest.raises(RegistrationError):
        await store(client).register(node(format="int3"))
    assert (await client.list("")).revision == before


async def test_an_impossible_load_is_refused(client: EtcdClient) -> None:
    nodes = store(client)
    await nodes.register(node())
    with pytest.raises(RegistrationError, match=r"load\.running"):
        await nodes.heartbeat("s1", load(running=-1))


async def test_draining_shows_in_the_answer_to_heartbeats(client: EtcdClient) -> None:
    nodes = store(client)
    await nodes.register(node())
    assert not (await nodes.heartbeat("s1", load())).draining
    await nodes.drain("a")
    assert (await nodes.heartbeat("s1", load())).draining
    with pytest.raises(UnknownSessionError, match="node b is not registered"):
        await nodes.drain("b")


async def test_a_drained_node_is_remembered_as_draining(client: EtcdClient) -> None:
    nodes = store(client)
    await nodes.register(node())
    draining = await nodes.drain("a")
    record = await client.get(KEYS.remembered_node("a"))
    assert record is not None
    assert (record.lease_id, decode_session(record)) == (0, draining)


async def test_a_deregistered_node_is_not_remembered(client: EtcdClient) -> None:
    nodes = store(client)
    await nodes.register(node("a"))
    await nodes.register(node("b", "10.0.0.2:8000"))
    await nodes.deregister("s1")
    assert [record.key for record in (await client.list(KEYS.remembered)).records] == [KEYS.remembered_node("b")]


async def test_no_registration_is_lost_among_others_and_removals(etcd: RunningEtcd) -> None:
    async with etcd.client() as one, etcd.client() as other:
        stores = [store(one, ids="x"), store(other, ids="y")]

        async def come_and_go(nodes: NodeStore) -> None:
            for _ in range(10):
                session = await nodes.register(node())
                with suppress(UnknownSessionError):  # when the other one has replaced it
                    await nodes.deregister(session.session_id)
            final = await nodes.register(node())
            sessions.append(final.session_id)

        sessions: list[str] = []
        await asyncio.gather(*map(come_and_go, stores))
        assert await keys_in(one) == ["addresses/10.0.0.1:8000", "nodes/a", "remembered/a", f"sessions/{sessions[-1]}"]
        assert (await stores[0].heartbeat(sessions[-1], load())).session_id == sessions[-1]


async def test_a_record_of_an_unreadable_version_is_replaced(client: EtcdClient) -> None:
    await client.put(KEYS.node("a"), b'{"session_id": 7}')
    nodes = store(client)
    await nodes.register(node())
    assert (await nodes.heartbeat("s1", load())).spec == node()


async def test_the_policy_reads_back_and_goes(client: EtcdClient) -> None:
    nodes = store(client)
    assert await nodes.get_policy() is None
    await nodes.put_policy(b"a: 1\n")
    assert await nodes.get_policy() == b"a: 1\n"
    await nodes.delete_policy()
    assert await nodes.get_policy() is None


async def test_an_override_lies_under_a_lease_of_its_own_duration(client: EtcdClient) -> None:
    nodes = store(client)
    await nodes.put_override("m/full", Override(1234.5 + 600, waiting=100))
    (record,) = (await client.list(KEYS.prefix)).records
    assert record.key == KEYS.override("m/full")
    assert decode_override(record) == Override(1834.5, waiting=100)
    assert 598 <= await client.lease_seconds_left(record.lease_id) <= 600


async def test_an_override_ends_by_itself_with_no_control_plane_at_work(client: EtcdClient) -> None:
    await store(client).put_override("m/full", Override(1234.5 + 1, waiting=100))
    assert await keys_in(client) == ["overrides/m/full"]

    async def is_empty() -> bool:
        return not await keys_in(client)

    await until(is_empty)


async def test_a_later_override_replaces_the_former_one_and_its_lease(client: EtcdClient) -> None:
    nodes = store(client)
    await nodes.put_override("m", Override(1234.5 + 600, waiting=100))
    (former,) = (await client.list(KEYS.prefix)).records
    await nodes.put_override("m", Override(1234.5 + 60, running=1))
    (record,) = (await client.list(KEYS.prefix)).records
    assert decode_override(record) == Override(1294.5, running=1)
    assert await client.lease_seconds_left(record.lease_id) <= 60
    with pytest.raises(LeaseNotFoundError):
        await client.lease_seconds_left(former.lease_id)


async def test_an_override_is_cleared_with_its_lease(client: EtcdClient) -> None:
    nodes = store(client)
    await nodes.put_override("m", Override(1234.5 + 600, waiting=100))
    await nodes.put_override("n", Override(1234.5 + 600, waiting=100))
    record = await client.get(KEYS.override("m"))
    assert record is not None
    assert await nodes.delete_override("m")
    assert not await nodes.delete_override("m")
    assert await keys_in(client) == ["overrides/n"]
    with pytest.raises(LeaseNotFoundError):
        await client.lease_seconds_left(record.lease_id)


async def test_a_restart_of_etcd_keeps_the_sessions(etcd: RunningEtcd) -> None:
    async with etcd.client() as client:
        nodes = store(client)
        await nodes.register(node())
        await etcd.kill()
        await etcd.start_again()
        assert (await nodes.heartbeat("s1", load())).spec == node()
