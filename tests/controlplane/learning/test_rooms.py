"""What nodes have room for, and how it is divided."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.fleet import form_fleet
from controlplane.learning.rooms import MOST_FINISHED, REPLACED_WITHIN_SECONDS, Room, RoomWatch, free_of, share_of
from controlplane.model import NodeLoad, NodeSession, NodeSpec, ServedModel, open_cluster, since_cluster
from controlplane.policy.settings import LoadLimits, Policy

NOW = 1000.0
LIMITS = LoadLimits()
FULL, QUANTIZED = "llama/full/short/on_demand", "llama/quantized/short/on_demand"
OTHER = "other/full/short/on_demand"


def node(number: int, *formats: str, sequences: int = 4, draining: bool = False) -> NodeSession:
    """A node that serves `llama` in the first format, and `other` in the second."""
    models = (ServedModel(name, f, 8192, sequences) for name, f in zip(("llama", "other"), formats, strict=False))
    spec = NodeSpec(f"n{number}", f"10.0.0.{number}:8000", tuple(models))
    return NodeSession(f"s{number}", spec, registered_at=0.0, draining=draining)


Reported = tuple[NodeSession, NodeLoad | None]


def rooms(*nodes: Reported, watch: RoomWatch | None = None, now: float = NOW) -> dict[tuple[str, ...], int | None]:
    return {room.clusters: room.free for room in all_rooms(*nodes, watch=watch, now=now)}


def all_rooms(*nodes: Reported, watch: RoomWatch | None = None, now: float = NOW) -> tuple[Room, ...]:
    loads = {session.spec.node_id: load for session, load in nodes if load is not None}
    fleet = form_fleet([session for session, _ in nodes], loads, Policy(), now)
    return (watch or RoomWatch()).rooms(fleet, LIMITS, now)


def load(running: int = 0, waiting: int = 0, age: float = 0.0, **more: float | bool) -> NodeLoad:
    return NodeLoad(running, waiting, reported_at=NOW - age, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reported", "free"),
    [
        (load(0), 4),
        (load(3), 1),
        (load(4), 0),
        (load(4, 2), 0),  # what is behind is behind
        (load(2, 2), 0),
        (None, None),  # not yet reported
        (load(4, age=6), None),  # too long ago to say anything
        (load(0, uncounted=True), None),
        (load(2, kv_cache_use=0.94), 2),
        (load(2, kv_cache_use=0.96), 0),  # its memory is full
    ],
)
def test_a_node_has_room_for_what_it_does_not_run_yet(reported: NodeLoad | None, free: int | None) -> None:
    assert rooms((node(1, "fp16"), reported)) == {(FULL,): free}


def test_nodes_of_one_pool_are_summed_but_what_one_is_behind_fills_no_other() -> None:
    assert rooms((node(1, "fp16"), load(1)), (node(2, "fp16"), load(4, 9)), (node(3, "fp16"), load(2))) == {(FULL,): 5}


def test_one_node_of_unknown_room_makes_that_of_its_pool_unknown() -> None:
    assert rooms((node(1, "fp16"), load(4)), (node(2, "fp16"), None), (node(3, "int4"), load(4))) == {
        (FULL,): None,
        (QUANTIZED,): 0,
    }


def test_nodes_that_get_no_traffic_have_no_room() -> None:
    assert rooms((node(1, "fp16", draining=True), load(0)), (node(2, "fp16"), load(4))) == {(FULL,): 0}
    assert rooms((node(1, "fp16"), load(0, healthy=False))) == {}


def test_a_node_of_two_pools_has_one_room() -> None:
    found = all_rooms((node(1, "fp16", "fp16"), load(1)), (node(2, "fp16"), load(2)))
    assert {room.clusters: room.free for room in found} == {(FULL,): 2, (FULL, OTHER): 3}
    assert free_of(FULL, found) == 5
    assert free_of(OTHER, found) == 3
    assert free_of(QUANTIZED, found) is None


def test_nodes_that_quiesce_have_no_room_for_sessions_that_go_on() -> None:
    quiescing = replace(node(2, "fp16"), settles_at=NOW + 10, quiesces_since=NOW - 50)
    assert rooms((node(1, "fp16"), load(4)), (quiescing, load(1))) == {
        (open_cluster(FULL),): 3,
        (FULL, open_cluster(FULL)): 0,
    }
    of_new = since_cluster(FULL, NOW - 50)
    assert rooms((quiescing, load(1)), now=NOW + 4) == {(of_new, open_cluster(FULL)): 3}


def test_what_finishes_tops_the_room_up_until_the_next_report_has_it() -> None:
    watch, session = RoomWatch(), node(1, "fp16", sequences=100)
    assert rooms((session, load(100)), watch=watch) == {(FULL,): 0}
    watch.request_finished("10.0.0.1:8000", NOW + 0.1)
    watch.request_finished("10.0.0.9:8000", NOW + 0.1)  # no node of ours
    assert rooms((session, load(100)), watch=watch, now=NOW + 0.2) == {(FULL,): 1}
    watch.request_finished("10.0.0.1:8000", NOW + 0.3)
    assert rooms((session, load(100)), watch=watch, now=NOW + 0.4) == {(FULL,): 2}
    # the next report knows of the first one, and of all that was sent meanwhile
    assert rooms((session, load(100, age=-0.2)), watch=watch, now=NOW + 0.5) == {(FULL,): 1}
    assert rooms((session, load(100, age=-0.4)), watch=watch, now=NOW + 0.6) == {(FULL,): 0}


def test_ends_that_are_told_of_late_say_little_of_how_fast_the_node_is_now() -> None:
    """As by an Envoy that has kept them while there was no control plane."""
    watch = RoomWatch()
    busy = (node(1, "fp16"), load(4))
    assert rooms(busy, watch=watch) == {(FULL,): 0}
    watch.request_finished("10.0.0.1:8000", NOW - 0.1)
    for _ in range(100):
        watch.request_finished("10.0.0.1:8000", NOW - 30)
    assert rooms(busy, watch=watch) == {(FULL,): 0}


def test_as_much_waits_in_the_engine_as_it_finishes_until_more_can_come() -> None:
    watch, session = RoomWatch(), node(1, "fp16", sequences=100)
    rooms((session, load(100)), watch=watch)
    for tick in range(300):  # 10 each second, for 30 s
        watch.request_finished("10.0.0.1:8000", NOW - 30 + tick / 10)
    expected = int(10 * REPLACED_WITHIN_SECONDS)
    (free,) = rooms((session, load(100)), watch=watch).values()
    assert free in {expected - 1, expected}
    assert rooms((session, load(100, expected)), watch=watch) == {(FULL,): 0}
    # and nothing once it has long been idle
    later = NOW + 100
    assert rooms((session, replace(load(0), reported_at=later)), watch=watch, now=later) == {(FULL,): 100}


def test_what_is_remembered_of_ends_is_bounded() -> None:
    watch, session = RoomWatch(), node(1, "fp16", sequences=1)
    rooms((session, load(1)), watch=watch)
    for tick in range(MOST_FINISHED * 2):
        watch.request_finished("10.0.0.1:8000", NOW + tick / 1e6)
    assert (rooms((session, load(1)), watch=watch, now=NOW + 100)[FULL,] or 0) <= MOST_FINISHED


@given(free=st.integers(0, 10_000), sharers=st.integers(1, 50), turn=st.integers(0, 2**40), more=st.integers(0, 100))
def test_all_shares_together_are_what_is_free(free: int, sharers: int, turn: int, more: int) -> None:
    shares = [share_of(free, place, sharers, turn) for place in range(sharers)]
    assert sum(shares) == free
    assert max(shares) - min(shares) <= 1
    # what is topped up within a turn takes nothing from anyone
    topped_up = [share_of(free + more, place, sharers, turn) for place in range(sharers)]
    assert all(before <= after for before, after in zip(shares, topped_up, strict=True))


def test_a_room_for_one_is_everyones_in_turn() -> None:
    assert [[share_of(1, place, 3, turn) for place in range(3)] for turn in range(3)] == [
        [1, 0, 0],
        [0, 1, 0],
        [0, 0, 1],
    ]
