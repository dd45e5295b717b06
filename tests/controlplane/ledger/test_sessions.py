"""Which node session was in force where and when. Facts row: immutability."""

from __future__ import annotations

from controlplane.ledger.sessions import MOST_TERMS, SessionHistory
from controlplane.model import NodeSession
from support.nodes import node

ADDRESS = "10.0.0.1:8000"


def session(name: str, registered_at: float, node_id: str = "a") -> NodeSession:
    return NodeSession(name, node(node_id, ADDRESS), registered_at)


def at(history: SessionHistory, when: float) -> str | None:
    found = history.at(ADDRESS, when)
    return found.session_id if found else None


def test_what_was_sent_before_a_new_registration_was_sent_to_the_old_session() -> None:
    history = SessionHistory(600.0)
    history.observe([session("one", 100.0)], 100.1)
    history.observe([session("two", 200.0, "b")], 200.1)
    assert [at(history, when) for when in (99.9, 100.0, 199.9, 200.0, 900.0)] == [None, "one", "one", "two", "two"]


def test_a_node_that_left_is_known_for_as_long_as_its_requests_may_run() -> None:
    history = SessionHistory(600.0)
    history.observe([session("one", 100.0)], 150.0)
    history.observe([], 750.0)
    assert at(history, 149.0) == "one"
    history.observe([], 750.1)
    assert at(history, 149.0) is None
    assert len(history) == 0


def test_old_sessions_are_forgotten_when_nothing_of_theirs_can_run() -> None:
    history = SessionHistory(600.0)
    for number in range(4):
        history.observe([session(f"s{number}", 1000.0 * number)], 1000.0 * number)
    assert at(history, 1500.0) is None
    assert at(history, 2500.0) == "s2"


def test_a_node_that_registers_all_the_time_takes_bounded_room() -> None:
    history = SessionHistory(600.0)
    for number in range(3 * MOST_TERMS):
        history.observe([session(f"s{number}", float(number))], float(number))
    assert at(history, float(2 * MOST_TERMS)) == f"s{2 * MOST_TERMS}"
    assert at(history, float(MOST_TERMS)) is None
