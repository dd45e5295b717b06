"""Deciding while pools have no room: who spills, who waits and for what. Facts row: pinned and busy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from controlplane.model import Action, Ask, Decision, FormatTier, Pin, Reason
from controlplane.policy.decide import decide, not_served
from controlplane.policy.explain import explain
from controlplane.policy.pins import pin_of
from support.asks import IDLE, make_chat, make_pool, make_table

FULL, QUANTIZED, LONG = "llama/full/short/on_demand", "llama/quantized/short/on_demand", "llama/full/long/on_demand"
SENSITIVE = make_chat("Write Python code", temperature=0)
NEUTRAL = make_chat("Go on", temperature=0.5)
TOLERANT = make_chat("Write a short story", temperature=1)
TABLE = make_table(make_pool("full", load=IDLE), make_pool("quantized", load=IDLE))
WITH_LONG = make_table(*TABLE.pools, make_pool("full", "long", load=IDLE))


def without_room(*pools: str) -> Callable[[str], bool]:
    return lambda pool: pool not in pools


def outcome(decision: Decision) -> tuple[str, ...]:
    """The pool that it goes to, or `queue` and the pools that it waits for."""
    if decision.action is Action.QUEUE:
        assert decision.pool is None
        assert decision.refusal is None
        assert decision.reasons[-1] is Reason.WAITING_FOR_ROOM
        assert pin_of(decision, TABLE) is None
        return ("queue", *decision.waits_for)
    assert decision.pool is not None
    return (decision.pool.name,)


@pytest.mark.parametrize(
    ("ask", "pin", "full_pools", "result"),
    [
        (SENSITIVE, None, (), (FULL,)),
        (SENSITIVE, None, (FULL,), ("queue", FULL)),
        (SENSITIVE, None, (QUANTIZED,), (FULL,)),
        (NEUTRAL, None, (FULL,), (QUANTIZED,)),
        (NEUTRAL, None, (FULL, QUANTIZED), ("queue", FULL, QUANTIZED)),
        (TOLERANT, None, (QUANTIZED,), (FULL,)),
        (TOLERANT, None, (FULL, QUANTIZED), ("queue", QUANTIZED, FULL)),
        (TOLERANT, Pin(FormatTier.FULL), (FULL,), ("queue", FULL)),
        (SENSITIVE, Pin(FormatTier.QUANTIZED), (QUANTIZED,), ("queue", QUANTIZED)),
    ],
)
def test_facts_pinned_and_busy_free_requests_spill_and_bound_ones_wait(
    ask: Ask, pin: Pin | None, full_pools: tuple[str, ...], result: tuple[str, ...]
) -> None:
    assert outcome(decide(ask, TABLE, pin, without_room(*full_pools))) == result


def test_one_spills_to_a_larger_context_class_before_it_waits() -> None:
    assert outcome(decide(SENSITIVE, WITH_LONG, None, without_room(FULL))) == (LONG,)
    assert outcome(decide(SENSITIVE, WITH_LONG, None, without_room(FULL, LONG))) == ("queue", FULL, LONG)


def test_a_session_that_goes_on_waits_for_settled_nodes_though_others_have_room() -> None:
    pool = replace(make_pool("full", load=IDLE), quiescing_nodes=1)
    table, free = make_table(pool), without_room(FULL)
    assert outcome(decide(SENSITIVE, table, Pin(FormatTier.FULL), free)) == ("queue", FULL)
    new = decide(SENSITIVE, table, None, free)
    assert (new.action, new.cluster) == (Action.PASS, pool.open_cluster)


def test_a_pool_that_cannot_serve_is_not_waited_for() -> None:
    table = make_table(make_pool("full", ready=0), make_pool("quantized", load=IDLE))
    decision = decide(NEUTRAL, table, Pin(FormatTier.FULL), without_room(FULL, QUANTIZED))
    assert decision.waits_for == ()
    assert decision.refusal is not None
    assert decision.refusal.status == 503


def test_the_refusal_of_one_who_waits_no_longer_says_what_it_waited_for() -> None:
    waiting = decide(TOLERANT, TABLE, Pin(FormatTier.FULL), without_room(FULL))
    for reason, words in ((Reason.WAIT_TOO_LONG, "waited 30.0 s"), (Reason.QUEUE_FULL, "too many requests wait")):
        decision = not_served(waiting, reason, 30.0, 5.0)
        assert decision.action is Action.REJECT
        assert decision.reasons == (reason, Reason.SESSION_PINNED)
        assert decision.refusal is not None
        assert (decision.refusal.status, decision.refusal.code) == (429, "no_capacity")
        assert decision.refusal.retry_after == 5.0
        assert words in decision.refusal.message
        assert "full format" in decision.refusal.message
        assert decision.waits_for == (FULL,)


def test_explaining_says_where_it_would_go_with_room() -> None:
    explained = explain(SENSITIVE, TABLE, None, without_room(FULL))
    assert outcome(explained) == ("queue", FULL)
    assert f"with room it would go to {FULL}" in explained.would_change
    spilled = explain(NEUTRAL, TABLE, None, without_room(FULL))
    assert f"without load it would go to {FULL}" in spilled.would_change
