"""What is seen of the fleet, through changes and outages of a real etcd."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from controlplane.errors import UnknownSessionError
from controlplane.etcd.client import EtcdClient
from controlplane.etcd.connection import EtcdAccess
from controlplane.model import NodeSession, Override
from controlplane.registry.codec import LoadRecord, decode_last, encode
from controlplane.registry.following import FleetFollower
from controlplane.registry.keys import Keys
from controlplane.registry.state import FleetState
from controlplane.registry.store import NodeStore
from support.etcd import RunningEtcd, running_etcd
from support.nodes import FORMATS, load, node
from support.relay import Relay, relay
from support.waiting import until

KEYS = Keys("/test/")


def store(client: EtcdClient, lease_seconds: int = 10, known: Callable[[], Iterable[NodeSession]] = tuple) -> NodeStore:
    return NodeStore(client, KEYS, formats=lambda: FORMATS, lease_seconds=lease_seconds, known=known)


@asynccontextmanager
async def following(
    client: EtcdClient, grace: float = 1.0, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[FleetFollower]:
    follower = FleetFollower(client, KEYS, grace=grace, clock=clock)
    task = asyncio.create_task(follower.run())
    try:
        yield follower
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def two_clients(etcd: RunningEtcd) -> AsyncIterator[tuple[Relay, EtcdClient, EtcdClient]]:
    """A client, and another one with the relay that connects it."""
    async with (
        relay(etcd.endpoint) as wire,
        etcd.client() as client,
        EtcdClient(EtcdAccess((wire.address,))) as other,
    ):
        yield wire, client, other


def nodes_in(follower: FleetFollower) -> set[str] | None:
    return None if follower.state is None else set(follower.state.sessions)


async def test_each_change_shows(client: EtcdClient) -> None:
    nodes = store(client)
    async with following(client) as follower:
        await until(lambda: follower.state == FleetState(revision=1))
        session = await nodes.register(node())
        await until(lambda: follower.state and follower.state.sessions == {"a": session})
        await nodes.heartbeat(session.session_id, load(running=3))
        await until(lambda: follower.state and follower.state.loads == {"a": load(running=3)})
        await nodes.drain("a")
        await until(lambda: follower.state and follower.state.sessions["a"].draining)
        await nodes.put_policy(b"x")
        await until(lambda: follower.state and follower.state.policy == b"x")
        await nodes.delete_policy()
        override = Override(time.time() + 60, waiting=3)
        await nodes.put_override("p", override)
        await until(lambda: follower.state and follower.state.overrides == {"p": override})
        await nodes.delete_override("p")
        await until(lambda: follower.state and follower.state.overrides == {})
        await nodes.deregister(session.session_id)
        await until(lambda: follower.state and follower.state.sessions == {} and follower.state.policy is None)
        assert follower.trouble is None


async def test_what_was_there_before_shows_first_and_every_iterator_gets_it(client: EtcdClient) -> None:
    session = await store(client).register(node())
    async with following(client) as follower:
        for _ in range(2):
            async for state in follower.states():
                assert state.sessions == {"a": session}
                break


async def test_two_followers_agree(etcd: RunningEtcd) -> None:
    async with etcd.client() as one, etcd.client() as other, following(one) as here, following(other) as there:
        stores = (store(one), store(other))
        for number in range(10):
            session = await stores[number % 2].register(node(str(number % 4), f"10.0.0.{number}:80"))
            await stores[(number + 1) % 2].heartbeat(session.session_id, load(running=number))
        last = (await one.list("")).revision
        await until(lambda: here.state and there.state and here.state.revision == there.state.revision == last)
        assert here.state == there.state
        assert nodes_in(here) == {"0", "1", "2", "3"}


async def test_a_load_of_an_earlier_session_never_shows_on_the_present_one(client: EtcdClient) -> None:
    nodes = store(client)
    former = await nodes.register(node())
    await nodes.heartbeat(former.session_id, load(running=9))
    async with following(client) as follower:
        present = await nodes.register(node())
        # As if written by a control plane that does not check.
        await client.put(KEYS.load("a"), encode(LoadRecord(former.session_id, load(running=9))))
        await nodes.put_policy(b"marks the end")
        async for state in follower.states():
            if "a" in state.sessions and state.sessions["a"].session_id == present.session_id:
                assert state.loads == {}
            if state.policy:
                break


async def remembered_in(client: EtcdClient) -> set[str]:
    return {record.key.removeprefix(KEYS.remembered) for record in (await client.list(KEYS.remembered)).records}


async def end_all_leases(client: EtcdClient) -> None:
    for record in (await client.list(KEYS.nodes)).records:
        await client.revoke_lease(record.lease_id)


async def forgets(client: EtcdClient, *node_ids: str) -> None:
    """Waits until etcd does not remember these nodes."""

    async def forgotten() -> bool:
        return not (await remembered_in(client)).intersection(node_ids)

    await until(forgotten)


async def test_a_node_whose_lease_ends_leaves_and_is_forgotten(client: EtcdClient) -> None:
    async with following(client, grace=0) as follower:
        session = await store(client).register(node())
        await until(lambda: nodes_in(follower) == {"a"})
        await client.revoke_lease(session.lease_id)
        await until(lambda: nodes_in(follower) == set())
        await forgets(client, "a")


async def test_leases_that_ended_while_nobody_followed_cost_no_node_that_comes_back(etcd: RunningEtcd) -> None:
    async with etcd.client() as client, etcd.client() as mine:
        nodes = store(client)
        former = {name: await nodes.register(node(name, f"10.0.0.{ord(name)}:80")) for name in ("a", "b", "c")}
        await nodes.deregister(former.pop("c").session_id)
        await end_all_leases(client)
        async with following(mine, grace=2) as follower:
            first = await anext(follower.states())
            assert first.sessions == former
            again = await nodes.register(former["a"].spec)
            await until(lambda: follower.state and follower.state.sessions == former | {"a": again})
            assert await remembered_in(client) == {"a", "b"}
            await until(lambda: follower.state and follower.state.sessions == {"a": again})
            await forgets(client, "b")
            assert await remembered_in(client) == {"a"}


async def test_a_session_whose_lease_ended_in_an_outage_goes_on_with_its_next_heartbeat(etcd: RunningEtcd) -> None:
    async with etcd.client() as client, etcd.client() as mine:
        former = [await store(client).register(node(name, f"10.0.0.{ord(name)}:80")) for name in "abc"]
        await end_all_leases(client)
        async with following(mine, grace=5) as follower:
            seen = await anext(follower.states())
            nodes = store(mine, known=seen.sessions.values)
            again = await nodes.heartbeat(former[0].session_id, load())
            assert again == replace(former[0], lease_id=again.lease_id)
            await until(lambda: follower.state and "a" in follower.state.loads)
            assert follower.state
            assert follower.state.sessions["a"] == again
            assert (await nodes.heartbeat(again.session_id, load())) == again
            # Another node has come to the second one's address, and was there until a moment ago.
            other = await store(client).register(node("d", former[1].spec.address))
            await store(client).deregister(other.session_id)
            with pytest.raises(UnknownSessionError):
                await nodes.heartbeat(former[1].session_id, load())
            # The third has registered anew.
            await store(client).register(former[2].spec)
            with pytest.raises(UnknownSessionError):
                await nodes.heartbeat(former[2].session_id, load())


async def test_several_control_planes_give_up_the_same_nodes(etcd: RunningEtcd) -> None:
    async with etcd.client() as one, etcd.client() as other:
        nodes = store(one)
        await nodes.register(node("a"))
        await nodes.register(node("b", "10.0.0.2:80"))
        await end_all_leases(one)
        async with following(one, grace=0.5) as here, following(other, grace=0.5) as there:
            await until(lambda: nodes_in(here) == nodes_in(there) == {"a", "b"})
            await until(lambda: nodes_in(here) == nodes_in(there) == set())
            await forgets(one, "a", "b")
            again = await nodes.register(node("a"))
            for follower in (here, there):
                await until(lambda follower=follower: follower.state.sessions == {"a": again})
            assert await remembered_in(one) == {"a"}


async def test_leases_that_ended_while_this_process_stood_still_cost_no_node_that_comes_back(
    client: EtcdClient,
) -> None:
    slept = 0.0
    async with following(client, grace=2, clock=lambda: time.monotonic() + slept) as follower:
        nodes = store(client)
        session = await nodes.register(node("a"))
        await nodes.register(node("b", "10.0.0.2:80"))
        await until(lambda: nodes_in(follower) == {"a", "b"})
        slept = 60.0  # as a process that was stopped finds when it goes on
        await end_all_leases(client)
        revision = (await client.list("")).revision
        await until(lambda: follower.state and follower.state.revision >= revision)
        assert nodes_in(follower) == {"a", "b"}
        again = await nodes.register(session.spec)
        await until(lambda: follower.state and follower.state.sessions.get("a") == again)
        assert nodes_in(follower) == {"a", "b"}
        await until(lambda: nodes_in(follower) == {"a"})
        await forgets(client, "b")


async def test_what_cannot_be_read_is_skipped(client: EtcdClient, caplog: pytest.LogCaptureFixture) -> None:
    session = await store(client).register(node())
    for key in (KEYS.node("b"), KEYS.load("a"), KEYS.node("c")):
        await client.put(key, b"\xff{")
    await client.put(KEYS.node("d"), encode(session))
    async with following(client) as follower:
        await until(lambda: follower.state and follower.state.sessions == {"a": session})
        assert follower.state is not None
        assert follower.state.loads == {}
    assert "key=/test/nodes/b" in caplog.text
    assert "key=/test/nodes/d" in caplog.text


async def test_the_last_state_stays_while_etcd_is_down_and_changes_show_after(etcd: RunningEtcd) -> None:
    async with etcd.client() as client, etcd.client() as mine, following(mine) as follower:
        nodes = store(client)
        await nodes.register(node("a"))
        await until(lambda: nodes_in(follower) == {"a"})
        await etcd.kill()
        await until(lambda: follower.trouble)
        assert nodes_in(follower) == {"a"}
        await etcd.start_again()
        await nodes.register(node("b", "10.0.0.2:80"))
        await until(lambda: nodes_in(follower) == {"a", "b"})
        await until(lambda: follower.trouble is None)


async def test_an_outage_longer_than_the_leases_drops_no_node_that_comes_back(etcd: RunningEtcd) -> None:
    async with etcd.client() as client, following(client) as follower:
        nodes = store(client, lease_seconds=1)
        session = await nodes.register(node("a"))
        await nodes.register(node("b", "10.0.0.2:80"))
        await until(lambda: nodes_in(follower) == {"a", "b"})
        await etcd.kill()
        began = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() > began + 2)
        assert nodes_in(follower) == {"a", "b"}
        await etcd.start_again()

        async def only_a_is_left() -> bool:
            present = nodes_in(follower)
            assert present is not None
            assert "a" in present
            await nodes.heartbeat(session.session_id, load())
            return present == {"a"}

        await until(only_a_is_left)


async def test_an_etcd_that_hangs_for_longer_than_the_leases_costs_no_node_that_comes_back(etcd: RunningEtcd) -> None:
    async with (
        etcd.client() as client,
        EtcdClient(EtcdAccess((etcd.endpoint,), call_timeout=0.2)) as mine,
        following(mine, grace=2) as follower,
    ):
        nodes = store(client, lease_seconds=1)
        session = await nodes.register(node("a"))
        await until(lambda: nodes_in(follower) == {"a"})
        etcd.freeze()
        await until(lambda: follower.trouble)
        began = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() > began + 1.5)
        etcd.thaw()

        async def etcd_has_let_it_go() -> bool:
            return not (await client.list(KEYS.nodes)).records

        await until(etcd_has_let_it_go)
        assert nodes_in(follower) == {"a"}
        again = await nodes.register(node("a"))
        await until(lambda: follower.state and follower.state.sessions == {"a": again})
        assert again.session_id != session.session_id


async def test_compaction_while_cut_off_leads_to_a_new_listing(etcd: RunningEtcd) -> None:
    async with two_clients(etcd) as (wire, client, mine), following(mine) as follower:
        nodes = store(client)
        gone = await nodes.register(node("gone"))
        await until(lambda: nodes_in(follower) == {"gone"})
        wire.cut()
        await nodes.deregister(gone.session_id)
        await nodes.register(node("new", "10.0.0.2:80"))
        await client.compact((await client.list("")).revision)
        assert nodes_in(follower) == {"gone"}
        wire.mend()
        await until(lambda: nodes_in(follower) == {"new"})


async def test_nodes_whose_leases_ended_while_this_control_plane_was_cut_off_may_come_back(etcd: RunningEtcd) -> None:
    async with two_clients(etcd) as (wire, client, mine), following(mine, grace=1.5) as follower:
        nodes = store(mine)
        session = await nodes.register(node("a"))
        await nodes.register(node("b", "10.0.0.2:80"))
        await until(lambda: nodes_in(follower) == {"a", "b"})
        wire.cut()
        await end_all_leases(client)
        wire.mend()
        await until(lambda: follower.trouble is None)
        with pytest.raises(UnknownSessionError):
            await nodes.heartbeat(session.session_id, load())
        assert nodes_in(follower) == {"a", "b"}
        again = await nodes.register(node("a"))
        await until(lambda: follower.state and follower.state.sessions.get("a") == again)
        assert nodes_in(follower) == {"a", "b"}
        await until(lambda: nodes_in(follower) == {"a"})


async def test_etcd_coming_back_empty_is_noticed(etcd: RunningEtcd) -> None:
    async with etcd.client() as client, following(client) as follower:
        nodes = store(client)
        for number in range(5):
            await nodes.register(node(str(number), f"10.0.0.{number}:80"))
        await until(lambda: len(nodes_in(follower) or ()) == 5)
        await etcd.kill()
        etcd.lose_data()
        await etcd.start_again()
        await nodes.register(node("0", "10.0.0.0:80"))
        await until(lambda: nodes_in(follower) == {"0"})


async def test_a_follower_that_starts_before_etcd_says_why_it_has_nothing() -> None:
    async with running_etcd() as etcd, etcd.client() as client:
        await etcd.kill()
        async with following(client) as follower:
            await until(lambda: "127.0.0.1" in (follower.trouble or ""))
            assert follower.state is None
            await etcd.start_again()
            await until(lambda: follower.state is not None)


async def test_a_node_that_was_given_up_is_known_for_as_long_as_the_quiescence(client: EtcdClient) -> None:
    async with following(client, grace=0):
        session = await store(client).register(node())
        await client.revoke_lease(session.lease_id)
        await forgets(client, "a")
        for key in (KEYS.last("a"), KEYS.last(session.spec.address)):
            record = await client.get(key)
            assert record is not None
            assert 50 < await client.lease_seconds_left(record.lease_id) <= 60
        assert (await store(client).register(node("b", session.spec.address))).settles_at > 0


async def test_giving_a_node_up_leaves_alone_what_came_to_its_address_since(client: EtcdClient) -> None:
    nodes = store(client)
    session = await nodes.register(node("a"))
    await client.revoke_lease(session.lease_id)
    there = await nodes.register(node("b", session.spec.address))
    async with following(client, grace=0):
        await forgets(client, "a")
    record = await client.get(KEYS.last(session.spec.address))
    assert record is not None
    assert (record.lease_id, decode_last(record)) == (0, there)
