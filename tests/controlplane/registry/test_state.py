"""How the fleet's state follows from what etcd tells, with time in the test's hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.etcd.connection import Health
from controlplane.etcd.records import Changes, Delete, Listing, Put, Record
from controlplane.model import NodeLoad, NodeSession, Override
from controlplane.registry.codec import LoadRecord, encode
from controlplane.registry.keys import Keys
from controlplane.registry.state import Mirror
from support.nodes import load, node

KEYS = Keys()
GRACE = 10.0
WELL = Health()
DOWN = Health("no connection", failed_at=100.0)
BACK = Health(None, failed_at=100.0)


def session(node_id: str, session_id: str = "s", address: str = "") -> NodeSession:
    return NodeSession(session_id, node(node_id, address or f"10.0.0.{ord(node_id)}:80"), registered_at=0.0)


def node_record(value: NodeSession) -> Record:
    return Record(KEYS.node(value.spec.node_id), encode(value), mod_revision=2, create_revision=2)


def remembered(value: NodeSession, revision: int = 2) -> Record:
    key = KEYS.remembered_node(value.spec.node_id)
    return Record(key, encode(value), mod_revision=revision, create_revision=2)


def load_record(node_id: str, session_id: str, value: NodeLoad) -> Record:
    return Record(KEYS.load(node_id), encode(LoadRecord(session_id, value)), mod_revision=2, create_revision=2)


def gone(node_id: str) -> tuple[Delete, Delete]:
    return Delete(KEYS.load(node_id), 3), Delete(KEYS.node(node_id), 3)


@pytest.fixture
def mirror() -> Mirror:
    """Of nodes a and b, of which a has a load. The grace period of its start ends at 10.0."""
    mirror = Mirror(KEYS, GRACE)
    records = (load_record("a", "s", load()), node_record(session("a")), node_record(session("b")))
    mirror.replace(Listing(records, revision=2), WELL, now=0.0)
    return mirror


def test_a_state_once_shown_never_changes(mirror: Mirror) -> None:
    before = mirror.state
    mirror.apply(Changes(gone("a"), 3), WELL, now=50.0)
    assert set(before.sessions) == {"a", "b"}
    assert set(mirror.state.sessions) == {"b"}
    assert (before.revision, mirror.state.revision) == (2, 3)


def test_in_good_times_a_node_that_vanishes_is_gone(mirror: Mirror) -> None:
    mirror.apply(Changes(gone("a"), 3), WELL, now=50.0)
    assert (set(mirror.state.sessions), set(mirror.state.loads)) == ({"b"}, set())


def test_a_new_listing_replaces_all_after_the_grace_period(mirror: Mirror) -> None:
    mirror.replace(Listing((node_record(session("c")),), revision=9), WELL, now=50.0)
    assert set(mirror.state.sessions) == {"a", "b", "c"}
    assert mirror.end_grace(WELL, now=60.0)
    assert set(mirror.state.sessions) == {"c"}


@pytest.mark.parametrize(
    ("health", "now", "stays"),
    [(DOWN, 1000.0, True), (BACK, 100.0, True), (BACK, 109.9, True), (BACK, 110.0, False)],
)
def test_after_an_outage_a_vanished_node_stays_for_the_grace_period(
    mirror: Mirror, *, health: Health, now: float, stays: bool
) -> None:
    before = mirror.state
    mirror.apply(Changes(gone("a"), 3), health, now)
    assert (mirror.state.sessions == before.sessions) is stays
    assert (mirror.state.loads == before.loads) is stays


def test_a_listing_after_an_outage_keeps_what_vanished_and_takes_what_is_new(mirror: Mirror) -> None:
    mirror.replace(Listing((node_record(session("b", "t")),), revision=9), BACK, now=101.0)
    assert {name: kept.session_id for name, kept in mirror.state.sessions.items()} == {"a": "s", "b": "t"}


def test_a_node_in_grace_that_comes_back_has_its_new_session_and_no_old_load(mirror: Mirror) -> None:
    mirror.apply(Changes(gone("a"), 3), BACK, now=101.0)
    mirror.apply(Changes((Put(node_record(session("a", "t"))),), 4), BACK, now=102.0)
    assert mirror.state.sessions["a"].session_id == "t"
    assert "a" not in mirror.state.loads
    assert not mirror.end_grace(BACK, now=110.0)


def test_grace_ends_once_and_not_while_etcd_is_down_again(mirror: Mirror) -> None:
    mirror.apply(Changes(gone("a"), 3), BACK, now=101.0)
    assert not mirror.end_grace(BACK, now=109.0)
    assert not mirror.end_grace(DOWN, now=120.0)
    assert mirror.end_grace(BACK, now=120.0)
    assert set(mirror.state.sessions) == {"b"}
    assert not mirror.end_grace(BACK, now=121.0)


def test_a_node_that_said_it_leaves_gets_no_grace(mirror: Mirror) -> None:
    leaving = replace(session("a"), draining=True)
    mirror.apply(Changes((Put(node_record(leaving)), *gone("a")), 4), BACK, now=101.0)
    assert set(mirror.state.sessions) == {"b"}


def test_a_node_that_was_draining_gets_no_grace_in_a_new_listing(mirror: Mirror) -> None:
    mirror.apply(Changes((Put(node_record(replace(session("a"), draining=True))),), 3), WELL, now=50.0)
    mirror.replace(Listing((node_record(session("b")),), revision=9), BACK, now=101.0)
    assert set(mirror.state.sessions) == {"b"}


def test_grace_ends_when_another_node_takes_the_address(mirror: Mirror) -> None:
    mirror.apply(Changes(gone("a"), 3), BACK, now=101.0)
    mirror.apply(Changes((Put(node_record(session("c", address=session("a").spec.address))),), 4), BACK, now=102.0)
    assert set(mirror.state.sessions) == {"b", "c"}


def test_a_load_shows_only_with_the_session_that_reported_it(mirror: Mirror) -> None:
    mirror.apply(Changes((Put(load_record("b", "another", load(running=9))),), 3), WELL, now=50.0)
    assert "b" not in mirror.state.loads
    mirror.apply(Changes((Put(load_record("b", "s", load(running=2))),), 4), WELL, now=50.0)
    assert mirror.state.loads["b"] == load(running=2)
    mirror.apply(Changes((Put(node_record(session("b", "t"))),), 5), WELL, now=50.0)
    assert "b" not in mirror.state.loads


def test_a_session_that_becomes_unreadable_is_gone(mirror: Mirror) -> None:
    record = replace(node_record(session("a")), value=b"{}")
    mirror.apply(Changes((Put(record),), 3), WELL, now=50.0)
    assert set(mirror.state.sessions) == {"b"}


def test_fields_of_a_later_version_are_skipped(mirror: Mirror) -> None:
    value = encode(session("c"))
    record = replace(node_record(session("c")), value=value[:-1] + b',"zone":"eu"}')
    mirror.apply(Changes((Put(record),), 3), WELL, now=50.0)
    assert mirror.state.sessions["c"] == session("c")


def override_record(pool: str, value: Override) -> Record:
    return Record(KEYS.override(pool), encode(value), mod_revision=2, create_revision=2)


def test_overrides_come_and_go_by_pool_without_any_grace(mirror: Mirror) -> None:
    pool, override = "org/llama/full/short/on_demand=x", Override(2000.0, waiting=7)
    mirror.apply(Changes((Put(override_record(pool, override)),), 3), WELL, now=50.0)
    before = mirror.state
    assert before.overrides == {pool: override}
    mirror.apply(Changes((Put(override_record(pool, Override(3000.0, kv_cache_use=0.5))),), 4), WELL, now=50.0)
    assert mirror.state.overrides == {pool: Override(3000.0, kv_cache_use=0.5)}
    mirror.apply(Changes((Delete(KEYS.override(pool), 5),), 5), BACK, now=101.0)
    assert (mirror.state.overrides, before.overrides) == ({}, {pool: override})


def test_a_new_listing_replaces_the_overrides(mirror: Mirror) -> None:
    mirror.replace(Listing((override_record("p", Override(2000.0, running=1)),), revision=9), WELL, now=50.0)
    assert mirror.state.overrides == {"p": Override(2000.0, running=1)}
    mirror.replace(Listing((), revision=10), BACK, now=101.0)
    assert mirror.state.overrides == {}


def test_an_unreadable_override_is_none(mirror: Mirror) -> None:
    for value in (b"{}", b"", b'{"expires_at": "soon"}'):
        record = replace(override_record("p", Override(1.0)), value=value)
        mirror.apply(Changes((Put(record),), 3), WELL, now=50.0)
        assert mirror.state.overrides == {}


def test_progress_notices_only_move_the_revision(mirror: Mirror) -> None:
    before = mirror.state
    mirror.apply(Changes((), 50), WELL, now=50.0)
    assert mirror.state == replace(before, revision=50)


def test_a_first_listing_shows_remembered_nodes_until_grace_has_passed_since() -> None:
    mirror = Mirror(KEYS, GRACE)
    mirror.replace(Listing((node_record(session("b")), *map(remembered, (session("a"), session("b")))), 2), WELL, 500.0)
    assert mirror.state.sessions == {"a": session("a"), "b": session("b")}
    assert mirror.given_up == {}
    assert not mirror.end_grace(WELL, now=509.9)
    assert mirror.end_grace(WELL, now=510.0)
    assert mirror.state.sessions == {"b": session("b")}
    assert mirror.given_up == {"a": 2}


def test_a_remembered_node_that_registers_again_is_replaced_at_once() -> None:
    mirror = Mirror(KEYS, GRACE)
    mirror.replace(Listing((remembered(session("a")),), 2), WELL, now=500.0)
    again = session("a", "t")
    mirror.apply(Changes((Put(node_record(again)), Put(remembered(again, revision=3))), 3), WELL, now=501.0)
    assert mirror.state.sessions == {"a": again}
    assert not mirror.end_grace(WELL, now=510.0)
    assert mirror.given_up == {}


def test_leases_that_end_just_after_the_start_cost_no_node_that_comes_back() -> None:
    mirror = Mirror(KEYS, GRACE)
    mirror.replace(Listing((node_record(session("a")), remembered(session("a"))), 2), WELL, now=500.0)
    mirror.apply(Changes(gone("a"), 3), WELL, now=501.0)
    assert mirror.state.sessions == {"a": session("a")}


def test_a_remembered_node_that_was_draining_stays_away_and_is_given_up() -> None:
    mirror = Mirror(KEYS, GRACE)
    mirror.replace(Listing((remembered(replace(session("a"), draining=True), revision=7),), 9), WELL, now=500.0)
    assert mirror.state.sessions == {}
    assert mirror.given_up == {"a": 7}


def test_a_remembered_node_whose_address_another_one_holds_is_given_up() -> None:
    mirror = Mirror(KEYS, GRACE)
    other = session("b", address=session("a").spec.address)
    mirror.replace(Listing((node_record(other), remembered(session("a")), remembered(other)), 9), WELL, now=500.0)
    assert mirror.state.sessions == {"b": other}
    assert mirror.given_up == {"a": 2}


@pytest.mark.parametrize("later", ["a", "b"])
def test_of_two_nodes_remembered_at_one_address_the_later_one_is_shown(later: str) -> None:
    mirror = Mirror(KEYS, GRACE)
    records = tuple(remembered(session(name, address="10.0.0.1:80"), 3 + (name == later)) for name in ("a", "b"))
    mirror.replace(Listing(records, 9), WELL, now=500.0)
    assert set(mirror.state.sessions) == {later}


def test_a_listing_anew_prefers_what_is_remembered_to_what_was_shown(mirror: Mirror) -> None:
    a, moved = session("a", "t"), session("b", "t", address="10.0.0.9:80")
    mirror.replace(Listing((remembered(a), remembered(moved)), revision=9), WELL, now=50.0)
    assert mirror.state.sessions == {"a": a, "b": moved}
    assert mirror.state.loads == {}  # that of a was reported by its earlier session


def test_a_node_that_leaves_in_good_times_is_given_up(mirror: Mirror) -> None:
    mirror.apply(Changes((Put(remembered(session("a"), revision=3)),), 3), WELL, now=50.0)
    assert mirror.given_up == {}
    mirror.apply(Changes(gone("a"), 4), WELL, now=50.0)
    assert mirror.given_up == {"a": 3}
    mirror.apply(Changes((Delete(KEYS.remembered_node("a"), 5),), 5), WELL, now=50.0)
    assert mirror.given_up == {}


def test_a_remembered_node_that_cannot_be_read_is_none() -> None:
    mirror = Mirror(KEYS, GRACE)
    mirror.replace(Listing((replace(remembered(session("a")), value=b"{}"),), 2), WELL, now=500.0)
    assert mirror.state.sessions == {}
    assert mirror.given_up == {}


@pytest.mark.parametrize(("now", "stays"), [(200.0, True), (209.9, True), (210.0, False)])
def test_what_vanished_while_this_process_was_away_stays_for_the_grace_period(
    mirror: Mirror, *, now: float, stays: bool
) -> None:
    mirror.was_away(200.0)
    mirror.apply(Changes((*gone("a"), *gone("b")), 3), WELL, now)
    assert set(mirror.state.sessions) == ({"a", "b"} if stays else set())
