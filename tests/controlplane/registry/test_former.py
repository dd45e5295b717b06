"""Quiescence by what was there before: rules, and what etcd keeps for them. Facts rows: immutability, quiescence."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

import pytest

from controlplane.errors import AddressTakenError
from controlplane.etcd.client import EtcdClient
from controlplane.model import NodeSession, NodeSpec
from controlplane.policy.settings import QuiescenceRules
from controlplane.registry.codec import decode_session
from controlplane.registry.former import Quiescence, quiescence_of
from controlplane.registry.keys import Keys
from controlplane.registry.store import NodeStore
from support.nodes import FORMATS, node

KEYS = Keys()
NOW = 1000.0
RULES = QuiescenceRules(seconds=60)
OFF = QuiescenceRules(seconds=0)
EXEMPTING = QuiescenceRules(seconds=60, exempt_same_engine=True)
SAME = replace(node(), engine_instance="started 1")


NONE, REST = Quiescence(), Quiescence(NOW - 40, NOW + 20)
ANEW = Quiescence(NOW, NOW + 60, begins=True)


def session(spec: NodeSpec, quiescence: Quiescence = NONE) -> NodeSession:
    settles_at, since = quiescence.until, quiescence.since
    return NodeSession("s", spec, registered_at=900.0, settles_at=settles_at, quiesces_since=since)


# --- the rules -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "formers", "rules", "expected"),
    [
        (node(), [], RULES, NONE),
        (node(), [session(node())], RULES, ANEW),
        (node(format="int4-awq"), [session(node())], RULES, ANEW),
        (node("b"), [session(node("a"))], RULES, ANEW),  # the same address under another id
        (node(), [session(node())], OFF, NONE),
        (SAME, [session(SAME)], RULES, ANEW),  # the exemption is an option
    ],
)
def test_whatever_was_there_before_quiesces(
    spec: NodeSpec, formers: list[NodeSession], rules: QuiescenceRules, expected: Quiescence
) -> None:
    assert quiescence_of(spec, formers, rules, NOW) == expected


@pytest.mark.parametrize(
    ("formers", "expected"),
    [
        ([session(SAME)], NONE),
        ([session(SAME, REST)], REST),  # goes on with what is left
        ([session(SAME, Quiescence(NOW - 80, NOW - 20))], NONE),
        ([session(replace(SAME, engine_instance="started 2"))], ANEW),
        ([session(replace(SAME, engine_instance=""))], ANEW),
        ([session(replace(SAME, labels={}))], ANEW),
        ([session(SAME), session(replace(SAME, node_id="b"))], ANEW),  # another one was at the address meanwhile
    ],
)
def test_with_the_option_only_what_proves_to_be_the_same_engine_is_exempt(
    formers: list[NodeSession], expected: Quiescence
) -> None:
    assert quiescence_of(SAME, formers, EXEMPTING, NOW) == expected


def test_an_engine_that_proves_nothing_is_not_exempt() -> None:
    assert quiescence_of(node(), [session(node())], EXEMPTING, NOW) == ANEW


# --- in etcd -------------------------------------------------------------------------------------------------------


async def nobody(_: NodeSession) -> None:
    """Nobody is led to nodes."""


def store(
    client: EtcdClient,
    rules: QuiescenceRules = RULES,
    until_left: Callable[[NodeSession], Awaitable[None]] = nobody,
    *,
    lease_seconds: int = 10,
    known: Callable[[], Iterable[NodeSession]] = tuple,
    wall_clock: Callable[[], float] = lambda: NOW,
) -> NodeStore:
    numbers = itertools.count(1)
    return NodeStore(
        client,
        KEYS,
        formats=lambda: FORMATS,
        lease_seconds=lease_seconds,
        quiescence=lambda: rules,
        until_left=until_left,
        new_session_id=lambda: f"s{next(numbers)}",
        known=known,
        wall_clock=wall_clock,
    )


async def test_a_node_that_was_never_seen_does_not_quiesce_and_any_later_session_does(client: EtcdClient) -> None:
    nodes = store(client)
    assert (await nodes.register(node())).settles_at == 0
    again = await nodes.register(node())
    assert again.settles_at == NOW + 60
    record = await client.get(KEYS.node("a"))
    assert record is not None
    assert decode_session(record) == again


async def test_after_deregistering_a_node_is_known_for_as_long_as_the_quiescence(client: EtcdClient) -> None:
    nodes = store(client)
    first = await nodes.register(node())
    await nodes.deregister(first.session_id)
    leases = {}
    for key in (KEYS.last("a"), KEYS.last("10.0.0.1:8000")):
        record = await client.get(key)
        assert record is not None
        leases[key] = await client.lease_seconds_left(record.lease_id)
    assert all(50 < left <= 60 for left in leases.values()), leases
    assert (await nodes.register(node())).settles_at == NOW + 60


async def test_another_id_at_an_address_that_was_left_quiesces_too(client: EtcdClient) -> None:
    nodes = store(client)
    first = await nodes.register(node("a"))
    await nodes.deregister(first.session_id)
    assert (await nodes.register(node("b"))).settles_at == NOW + 60


async def test_a_node_that_moves_quiesces_and_so_does_what_comes_to_its_former_address(client: EtcdClient) -> None:
    nodes = store(client)
    await nodes.register(node("a", "10.0.0.1:8000"))
    assert (await nodes.register(node("a", "10.0.0.2:8000"))).settles_at == NOW + 60
    left = await client.get(KEYS.last("10.0.0.1:8000"))
    assert left is not None
    assert left.lease_id
    assert (await nodes.register(node("b", "10.0.0.1:8000"))).settles_at == NOW + 60


async def test_a_node_whose_lease_ran_out_quiesces_when_it_comes_back(client: EtcdClient) -> None:
    nodes = store(client)
    first = await nodes.register(node())
    await client.revoke_lease(first.lease_id)
    assert (await nodes.register(node())).settles_at == NOW + 60


async def test_without_quiescence_nothing_is_kept(client: EtcdClient) -> None:
    nodes = store(client, OFF)
    await nodes.register(node())
    second = await nodes.register(node())
    assert second.settles_at == 0
    await nodes.deregister(second.session_id)
    assert not [record.key for record in (await client.list(KEYS.prefix)).records if "/last/" in record.key]


# --- the order: a node leaves before it is another one -------------------------------------------------------------


class Leaving:
    """Notes each session that is waited for, and what etcd had for the node then."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client
        self.seen: list[tuple[str, bool, float]] = []

    async def __call__(self, session: NodeSession) -> None:
        record = await self._client.get(KEYS.node(session.spec.node_id))
        assert record is not None
        assert decode_session(record) == session
        self.seen.append((session.session_id, session.draining, session.settles_at))


async def test_a_node_that_will_serve_otherwise_drains_before_its_session_is_replaced(client: EtcdClient) -> None:
    leaving = Leaving(client)
    nodes = store(client, until_left=leaving)
    await nodes.register(node())
    assert leaving.seen == []
    await nodes.register(node(format="int4-awq"))
    assert leaving.seen == [("s1", True, 0.0)]


async def test_before_a_node_is_marked_those_who_lead_requests_have_to_be_there(client: EtcdClient) -> None:
    seen: list[bool] = []

    async def heard() -> None:
        record = await client.get(KEYS.node("a"))
        session = decode_session(record) if record else None
        seen.append(session is not None and not session.draining)

    nodes = NodeStore(client, KEYS, formats=lambda: FORMATS, lease_seconds=10, until_heard=heard)
    await nodes.register(node())
    assert seen == []
    await nodes.register(node(format="int4-awq"))
    assert seen == [True]


async def test_a_node_that_will_serve_the_same_keeps_new_sessions_meanwhile(client: EtcdClient) -> None:
    leaving = Leaving(client)
    nodes = store(client, until_left=leaving)
    await nodes.register(node())
    await nodes.register(node())
    assert leaving.seen == [("s1", False, NOW + 60)]


async def test_sessions_that_begin_while_the_former_session_leaves_know_the_node_that_comes(
    client: EtcdClient,
) -> None:
    """Else each of them would be refused from its second request on."""
    clock, marked = itertools.count(NOW), []

    async def leaving(session: NodeSession) -> None:
        marked.append(session.quiesces_since)

    nodes = store(client, until_left=leaving, wall_clock=lambda: next(clock))
    await nodes.register(node())
    again = await nodes.register(node())
    assert marked == [again.quiesces_since]
    assert again.settles_at == again.registered_at + 60
    other = await nodes.register(node(format="int4-awq"))  # such sessions did not begin at it
    assert other.quiesces_since == other.registered_at


async def test_what_registers_later_quiesces_since_later_though_its_clock_was_set_back(client: EtcdClient) -> None:
    now, leaving = [NOW], Leaving(client)
    nodes = store(client, until_left=leaving, wall_clock=lambda: now[0])
    await nodes.register(node())
    before = await nodes.register(node())
    now[0] = NOW - 500
    after = await nodes.register(node(format="int4-awq"))
    assert leaving.seen[1:] == [(before.session_id, True, before.settles_at)]
    assert after.quiesces_since > before.quiesces_since
    assert after.settles_at == after.registered_at + 60


async def test_what_registers_later_quiesces_since_later_though_another_control_plane_is_ahead(
    client: EtcdClient,
) -> None:
    seen: list[NodeSession] = []
    ahead, behind = store(client, wall_clock=lambda: NOW + 0.5), store(client, known=lambda: seen)
    await ahead.register(node("a"))
    seen.append(await ahead.register(node("a")))
    await behind.register(node("b", "10.0.0.2:8000"))
    later = await behind.register(node("b", "10.0.0.2:8000"))
    assert later.quiesces_since == pytest.approx(NOW + 0.501)


async def test_a_session_whose_lease_ran_out_leaves_too_since_it_may_be_shown_still(client: EtcdClient) -> None:
    leaving = Leaving(client)
    nodes = store(client, until_left=leaving)
    first = await nodes.register(node())
    await client.revoke_lease(first.lease_id)
    await nodes.register(node())
    assert leaving.seen == [("s1", False, NOW + 60)]
    assert (await client.get(KEYS.session("s1"))) is None


async def test_an_exempt_node_is_replaced_in_place(client: EtcdClient) -> None:
    leaving = Leaving(client)
    nodes = store(client, EXEMPTING, leaving)
    await nodes.register(SAME)
    assert (await nodes.register(SAME)).settles_at == 0
    assert leaving.seen == []


async def test_a_registration_that_is_refused_changes_nothing_for_the_former_session(client: EtcdClient) -> None:
    leaving = Leaving(client)
    nodes = store(client, until_left=leaving)
    first = await nodes.register(node("a", "10.0.0.1:8000"))
    await nodes.register(node("b", "10.0.0.2:8000"))
    with pytest.raises(AddressTakenError):
        await nodes.register(node("a", "10.0.0.2:8000"))
    record = await client.get(KEYS.node("a"))
    assert record is not None
    assert decode_session(record) == first
    assert leaving.seen == []
