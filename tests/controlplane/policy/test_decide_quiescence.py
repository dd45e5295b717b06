"""Deciding while nodes quiesce: which sessions may go where. Facts row: quiescence."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from controlplane.model import FormatTier, Pin, Pool, Reason
from controlplane.policy.decide import decide
from controlplane.policy.pins import pin_of
from controlplane.policy.settings import Policy, SelectionRules
from controlplane.policy.table import settled_after
from support.asks import make_ask, make_chat, make_pool, make_table

SENSITIVE = make_chat("Write Python code", temperature=0)
FULL, QUANTIZED = FormatTier.FULL, FormatTier.QUANTIZED


def quiescing(tier: str, size: str = "short", *, nodes: int, settles_in: float = 30.0, since: float = 100.0) -> Pool:
    """A pool of two ready nodes, of which so many quiesce, the last one since `since`."""
    return replace(make_pool(tier, size), quiescing_nodes=nodes, settles_in=settles_in, quiesces_since=since)


def test_a_session_that_goes_on_keeps_to_settled_nodes_and_a_new_one_may_use_all() -> None:
    table = make_table(quiescing("full", nodes=1), make_pool("quantized"))
    held, fresh = decide(SENSITIVE, table, Pin(FULL)), decide(SENSITIVE, table, None)
    assert held.pool == fresh.pool
    assert (held.cluster, fresh.cluster) == ("llama/full/short/on_demand", "llama/full/short/on_demand@all")
    assert Reason.SETTLED_NODES_ONLY in held.reasons
    assert Reason.SETTLED_NODES_ONLY not in fresh.reasons


def test_where_nothing_quiesces_all_go_to_the_pools_own_cluster() -> None:
    table = make_table(make_pool("full"))
    for pin in (Pin(FULL), None):
        decision = decide(SENSITIVE, table, pin)
        assert decision.cluster == "llama/full/short/on_demand"
        assert Reason.SETTLED_NODES_ONLY not in decision.reasons


def test_a_session_that_goes_on_leaves_a_pool_that_quiesces_whole_for_another_one_of_its_tier() -> None:
    table = make_table(quiescing("full", nodes=2), make_pool("full", "long"))
    decision = decide(SENSITIVE, table, Pin(FULL))
    assert decision.cluster == "llama/full/long/on_demand"
    assert {a.pool: a.excluded_by for a in decision.alternatives}["llama/full/short/on_demand"] == "quiescing"


def test_a_tier_that_quiesces_whole_is_not_lost_and_says_when_to_come_again() -> None:
    table = make_table(
        quiescing("full", nodes=2, settles_in=40.0),
        quiescing("full", "long", nodes=2, settles_in=20.0),
        make_pool("quantized"),
    )
    decision = decide(SENSITIVE, table, Pin(FULL))
    assert decision.refusal is not None
    assert (decision.refusal.status, decision.refusal.code) == (503, "tier_quiescing")
    assert decision.refusal.retry_after == 20.0
    assert decision.reasons[0] is Reason.TIER_QUIESCING
    assert "20 s" in decision.refusal.message
    assert pin_of(decision, table) is None
    assert decide(SENSITIVE, table, None).cluster == "llama/full/short/on_demand@all"


def test_a_session_goes_on_where_all_quiesce_if_it_began_after_the_last_one_registered() -> None:
    """Of one that began later the nodes have been what they are all the time."""
    before, now = make_table(quiescing("full", nodes=2)), make_table(quiescing("full", nodes=2, since=101.0))
    ask = structs.replace(SENSITIVE, session="s")
    first = decide(ask, before, None)
    pin = pin_of(first, before)
    assert (first.cluster, pin) == ("llama/full/short/on_demand@all", Pin(FULL, since=100.0))
    assert decide(ask, before, pin).cluster == "llama/full/short/on_demand@100000"
    another_came = decide(ask, now, pin)
    assert another_came.reasons[0] is Reason.TIER_QUIESCING
    assert decide(ask, now, pin_of(decide(ask, now, None), now)).cluster == "llama/full/short/on_demand@101000"


def test_where_some_nodes_have_settled_a_session_that_began_later_keeps_to_these_all_the_same() -> None:
    table = make_table(quiescing("full", nodes=1))
    assert decide(SENSITIVE, table, Pin(FULL, since=100.0)).cluster == "llama/full/short/on_demand"


def test_a_session_that_began_when_nothing_quiesced_is_not_new_to_any_node() -> None:
    table = make_table(make_pool("full"))
    pin = pin_of(decide(structs.replace(SENSITIVE, session="s"), table, None), table)
    assert pin == Pin(FULL, since=0.0)
    assert decide(SENSITIVE, make_table(quiescing("full", nodes=2)), pin).reasons[0] is Reason.TIER_QUIESCING
    unsaid = make_table(quiescing("full", nodes=2, since=0.0))  # by a control plane of an earlier version
    assert decide(SENSITIVE, unsaid, pin).reasons[0] is Reason.TIER_QUIESCING


def test_a_session_that_goes_to_the_other_tier_has_nothing_there_and_is_new() -> None:
    table = make_table(quiescing("quantized", nodes=2))
    decision = decide(SENSITIVE, table, Pin(FULL))
    assert decision.cluster == "llama/quantized/short/on_demand@all"
    assert Reason.TIER_UNAVAILABLE in decision.reasons


def test_a_session_that_gets_its_lost_tier_all_the_same_still_goes_on_there() -> None:
    """It has outgrown the tier, fits into the other one, and may not go there."""
    stays = Policy(selection=SelectionRules(sensitive_may_use_quantized=False))
    grown = make_chat("Write Python code. " * 4000, temperature=0)
    other = make_pool("quantized", "long")
    settled = decide(grown, make_table(quiescing("full", nodes=1), other, policy=stays), Pin(FULL))
    assert {Reason.TIER_UNAVAILABLE, Reason.EXCEEDS_EVERY_CONTEXT} <= set(settled.reasons)
    assert settled.cluster == "llama/full/short/on_demand"
    none_settled = make_table(quiescing("full", nodes=2), other, policy=stays)
    assert decide(grown, none_settled, Pin(FULL)).reasons[0] is Reason.TIER_QUIESCING
    assert decide(grown, none_settled, Pin(FULL, since=100.0)).cluster == "llama/full/short/on_demand@100000"


def test_what_pins_do_not_bind_may_use_all_nodes() -> None:
    table = make_table(quiescing("full", nodes=2))
    ask = make_ask({"model": "llama", "input": "x"}, "/v1/embeddings")
    assert decide(ask, table, Pin(FULL)).cluster == "llama/full/short/on_demand@all"


def test_without_news_requests_go_to_the_clusters_that_envoy_keeps() -> None:
    some, all_of_them = quiescing("full", nodes=1), quiescing("quantized", nodes=2, settles_in=30.0)
    table = make_table(some, all_of_them)
    soon = settled_after(table, 5.0)
    assert decide(SENSITIVE, soon, None).cluster == "llama/full/short/on_demand"
    story = make_chat("Tell me a story", temperature=0.9)
    assert decide(story, soon, None).cluster == "llama/quantized/short/on_demand@all"  # its own cluster is empty yet
    later = settled_after(soon, 30.0)
    for pin in (None, Pin(QUANTIZED)):
        assert decide(story, later, pin).cluster == "llama/quantized/short/on_demand"
    assert settled_after(later, 31.0) is later
