"""Deciding: which pool gets which request, and why."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from controlplane.model import Action, Ask, Decision, Endpoint, FormatTier, Pin, Pool, PoolLoad, Reason, Refusal
from controlplane.policy.ask import parse
from controlplane.policy.decide import decide, refused
from controlplane.policy.explain import explain
from controlplane.policy.pins import pin_of
from controlplane.policy.settings import ContextClass, LostTier, Policy, SelectionRules, SessionRules
from controlplane.policy.table import compile_table, without_loads
from support.asks import BUSY, IDLE, OVERLOADED, make_ask, make_chat, make_pool, make_request, make_table

SENSITIVE = make_chat("Write Python code", temperature=0)
NEUTRAL = make_chat("Go on", temperature=0.5)
TOLERANT = make_chat("Write a short story", temperature=1)
LONG = make_chat("Go on", temperature=0.5, max_tokens=20_000)
SHORT_TOLERANT_LONG = make_chat("Write a short story", temperature=1.5, max_tokens=20_000)

FULL, QUANTIZED = FormatTier.FULL, FormatTier.QUANTIZED
STRICT = Policy(selection=SelectionRules(sensitive_may_use_quantized=False))


def pools(**loads: PoolLoad | None) -> list[Pool]:
    """Four pools of one model, all tiers and classes, with loads by `full_short` and so on; others idle."""
    return [
        make_pool(tier, size, load=loads.get(f"{tier}_{size}", IDLE))
        for tier, size in itertools.product(("full", "quantized"), ("short", "long"))
    ]


def target(decision: Decision) -> str:
    assert decision.pool is not None, decision
    return f"{decision.pool.tier.value}/{decision.pool.context_class}"


# --- where requests go ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "loads", "to", "reasons"),
    [
        (SENSITIVE, {}, "full/short", [Reason.SENSITIVE_NEEDS_FULL]),
        (NEUTRAL, {}, "full/short", [Reason.NEUTRAL_PREFERS_FULL]),
        (TOLERANT, {}, "quantized/short", [Reason.TOLERANT_PREFERS_QUANTIZED]),
        (LONG, {}, "full/long", [Reason.NEUTRAL_PREFERS_FULL, Reason.NEEDS_LONG_CONTEXT]),
        # a busy pool is not left, an overloaded one is: first for the next context class of its tier
        (NEUTRAL, {"full_short": BUSY}, "full/short", [Reason.NEUTRAL_PREFERS_FULL]),
        (NEUTRAL, {"full_short": OVERLOADED}, "full/long", [Reason.NEUTRAL_PREFERS_FULL, Reason.SPILLED_UNDER_LOAD]),
        (
            NEUTRAL,
            {"full_short": OVERLOADED, "full_long": BUSY},
            "quantized/short",
            [Reason.NEUTRAL_PREFERS_FULL, Reason.SPILLED_UNDER_LOAD],
        ),
        (
            TOLERANT,
            {"quantized_short": OVERLOADED, "quantized_long": OVERLOADED},
            "full/short",
            [Reason.TOLERANT_PREFERS_QUANTIZED, Reason.SPILLED_UNDER_LOAD],
        ),
        # with room nowhere the preferred pool keeps it
        (
            NEUTRAL,
            dict.fromkeys(("full_short", "full_long", "quantized_short", "quantized_long"), OVERLOADED),
            "full/short",
            [Reason.NEUTRAL_PREFERS_FULL],
        ),
        # a sensitive request waits for its tier
        (SENSITIVE, {"full_short": OVERLOADED, "full_long": OVERLOADED}, "full/short", [Reason.SENSITIVE_NEEDS_FULL]),
        # a long one never goes to a pool that cannot hold it
        (
            LONG,
            {"full_long": OVERLOADED},
            "quantized/long",
            [Reason.NEUTRAL_PREFERS_FULL, Reason.SPILLED_UNDER_LOAD, Reason.NEEDS_LONG_CONTEXT],
        ),
        # an unknown load is room
        (NEUTRAL, {"full_short": None}, "full/short", [Reason.NEUTRAL_PREFERS_FULL]),
        (
            NEUTRAL,
            {"full_short": OVERLOADED, "full_long": None},
            "full/long",
            [Reason.NEUTRAL_PREFERS_FULL, Reason.SPILLED_UNDER_LOAD],
        ),
    ],
)
def test_requests_go_by_verdict_context_and_load(
    ask: Ask, loads: dict[str, PoolLoad | None], to: str, reasons: list[Reason]
) -> None:
    decision = decide(ask, make_table(*pools(**loads)), None)
    assert decision.action is Action.PASS
    assert target(decision) == to
    assert list(decision.reasons) == reasons


def test_facts_no_promise_a_sensitive_request_takes_the_best_tier_that_there_is() -> None:
    table = make_table(make_pool("full", ready=0), make_pool("quantized"))
    decision = decide(SENSITIVE, table, None)
    assert target(decision) == "quantized/short"
    assert decision.reasons == (Reason.SENSITIVE_NEEDS_FULL, Reason.TIER_UNAVAILABLE)


def test_a_sensitive_request_is_refused_when_policy_keeps_it_from_quantized_pools() -> None:
    for full in ([make_pool("full", ready=0)], []):
        decision = decide(SENSITIVE, make_table(*full, make_pool("quantized"), policy=STRICT), None)
        assert decision.refusal is not None
        assert (decision.refusal.status, decision.refusal.code) == (503, "no_ready_node")
        assert decision.refusal.retry_after == STRICT.selection.retry_after_seconds
        assert decision.reasons[0] is Reason.NO_READY_NODE
        assert "full" in decision.refusal.message


def test_a_sensitive_request_that_only_the_other_tier_can_hold_goes_there_if_it_may() -> None:
    ask = make_chat("Write Python code", temperature=0, max_tokens=20_000)
    fleet = [make_pool("full", "short"), make_pool("quantized", "long")]
    assert target(decide(ask, make_table(*fleet), None)) == "quantized/long"
    strict = decide(ask, make_table(*fleet, policy=STRICT), None)
    assert target(strict) == "full/short"
    assert Reason.EXCEEDS_EVERY_CONTEXT in strict.reasons


@pytest.mark.parametrize(("ask", "only"), [(TOLERANT, "full"), (NEUTRAL, "quantized")])
def test_the_tier_that_is_there_serves_when_the_preferred_one_is_not(ask: Ask, only: str) -> None:
    decision = decide(ask, make_table(make_pool(only)), None)
    assert target(decision) == f"{only}/short"
    assert Reason.TIER_UNAVAILABLE in decision.reasons


def test_what_exceeds_every_context_goes_to_the_largest_and_its_engine_decides() -> None:
    ask = make_chat("Go on", temperature=0.5, max_tokens=1_000_000)
    decision = decide(ask, make_table(*pools()), None)
    assert target(decision) == "full/long"
    assert decision.reasons == (Reason.NEUTRAL_PREFERS_FULL, Reason.EXCEEDS_EVERY_CONTEXT)


def test_a_pool_that_is_too_small_is_named_as_such() -> None:
    decision = decide(LONG, make_table(*pools()), None)
    excluded = {a.pool: a.excluded_by for a in decision.alternatives}
    assert excluded["llama/full/short/on_demand"] == "context_too_small"
    assert excluded["llama/full/long/on_demand"] is None


def test_choices_need_room_for_one_sequence_each_and_not_for_all_together() -> None:
    ask = make_chat("Go on", temperature=0.5, max_tokens=4000, n=8)
    assert target(decide(ask, make_table(*pools()), None)) == "full/short"


def test_a_short_request_may_use_a_long_pool_when_there_is_no_short_one() -> None:
    decision = decide(NEUTRAL, make_table(make_pool("full", "long")), None)
    assert target(decision) == "full/long"
    assert decision.reasons == (Reason.NEUTRAL_PREFERS_FULL,)


def test_the_smallest_of_three_context_classes_that_holds_a_request_gets_it() -> None:
    policy = Policy(context_classes=(ContextClass("short", 4096), ContextClass("middle", 16384), ContextClass("long")))
    table = make_table(
        make_pool("full", "short", max_context=4096),
        make_pool("full", "middle", max_context=16384),
        make_pool("full", "long", max_context=131072),
        policy=policy,
    )
    for cap, to in ((100, "full/short"), (8000, "full/middle"), (50_000, "full/long")):
        assert target(decide(make_chat("Go on", max_tokens=cap, temperature=0.5), table, None)) == to


def test_of_pools_that_differ_in_nothing_else_the_one_with_more_headroom_serves() -> None:
    stable = make_pool(load=PoolLoad(running=24, waiting=0, kv_cache_use=0.5))
    spot = make_pool(capacity="spot", load=PoolLoad(running=2, waiting=0, kv_cache_use=0.1))
    decision = decide(NEUTRAL, make_table(stable, spot), None)
    assert decision.pool == spot
    equal = decide(NEUTRAL, make_table(replace(stable, load=None), replace(spot, load=None)), None)
    assert equal.pool is not None
    assert equal.pool.capacity_type.value == "on_demand"


# --- sessions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [SENSITIVE, NEUTRAL, TOLERANT])
@pytest.mark.parametrize("pin", [FULL, QUANTIZED])
def test_facts_session_affinity_a_pinned_session_stays_in_its_tier_whatever_the_load(ask: Ask, pin: FormatTier) -> None:
    loads = {f"{pin.value}_short": OVERLOADED, f"{pin.value}_long": OVERLOADED}
    decision = decide(ask, make_table(*pools(**loads)), Pin(pin))
    assert decision.pool is not None
    assert decision.pool.tier is pin
    assert decision.pinned is pin
    assert decision.reasons[0] is Reason.SESSION_PINNED


def test_a_session_that_has_outgrown_its_tier_goes_on_in_the_other_or_is_left_to_fail_as_configured() -> None:
    grown = (make_pool("full", "short"), make_pool("quantized", "long"))
    moved = decide(LONG, make_table(*grown), Pin(FULL))
    assert target(moved) == "quantized/long"
    assert Reason.TIER_UNAVAILABLE in moved.reasons
    policy = Policy(sessions=SessionRules(lost_tier=LostTier.REFUSE))
    kept = decide(LONG, make_table(*grown, policy=policy), Pin(FULL))
    assert target(kept) == "full/short"
    assert kept.reasons == (Reason.SESSION_PINNED, Reason.EXCEEDS_EVERY_CONTEXT)


def test_a_session_that_fits_nowhere_stays_in_its_tier() -> None:
    decision = decide(LONG, make_table(make_pool("full", "short"), make_pool("quantized", "short")), Pin(FULL))
    assert decision.reasons == (Reason.SESSION_PINNED, Reason.EXCEEDS_EVERY_CONTEXT)


def test_in_an_empty_fleet_no_model_is_called_unknown() -> None:
    decision = decide(NEUTRAL, make_table(), None)
    assert decision.refusal is not None
    assert (decision.refusal.status, decision.refusal.code) == (503, "no_ready_node")
    assert decision.refusal.retry_after is not None


def test_a_pinned_session_is_refused_while_its_tier_is_not_ready() -> None:
    decision = decide(TOLERANT, make_table(make_pool("full", ready=0), make_pool("quantized")), Pin(FULL))
    assert decision.refusal is not None
    assert decision.refusal.status == 503


def test_a_session_whose_tier_is_gone_is_pinned_anew_or_refused_as_configured() -> None:
    table = make_table(make_pool("quantized"))
    moved = decide(NEUTRAL, table, Pin(FULL))
    assert target(moved) == "quantized/short"
    assert Reason.TIER_UNAVAILABLE in moved.reasons
    policy = Policy(sessions=SessionRules(lost_tier=LostTier.REFUSE))
    kept = decide(NEUTRAL, make_table(make_pool("quantized"), policy=policy), Pin(FULL))
    assert kept.refusal is not None
    assert kept.refusal.status == 503


def test_a_decision_pins_the_tier_of_the_pool_it_chose() -> None:
    ask, table = structs.replace(TOLERANT, session="s"), make_table(*pools())
    assert pin_of(decide(ask, table, None), table) == Pin(QUANTIZED)
    assert pin_of(decide(ask, table, Pin(FULL)), table) == Pin(FULL)
    assert pin_of(decide(TOLERANT, table, None), table) is None
    assert pin_of(decide(ask, make_table(), None), make_table()) is None
    embedding = structs.replace(make_ask({"model": "llama"}, "/v1/embeddings"), session="s")
    assert pin_of(decide(embedding, table, None), table) is None


# --- models --------------------------------------------------------------------------------------------------------


def test_an_alias_means_all_pools_of_its_model() -> None:
    table = make_table(make_pool("full", aliases=("meta-llama",)), make_pool("quantized"))
    decision = decide(structs.replace(TOLERANT, model="meta-llama"), table, None)
    assert decision.model == "llama"
    assert target(decision) == "quantized/short"


def test_a_name_that_only_engines_use_means_the_pools_that_use_it() -> None:
    table = make_table(make_pool("full"), make_pool("quantized", served_name="llama-awq"))
    decision = decide(structs.replace(NEUTRAL, model="llama-awq"), table, None)
    assert decision.model == "llama"
    assert target(decision) == "quantized/short"


def test_a_model_id_wins_over_another_models_alias() -> None:
    table = make_table(make_pool(model="a", aliases=("b",)), make_pool(model="b"))
    assert decide(structs.replace(NEUTRAL, model="b"), table, None).model == "b"


def test_an_unknown_model_is_refused_with_up_to_ten_known_ones() -> None:
    table = make_table(*(make_pool(model=f"model-{number:02}") for number in range(12)))
    decision = decide(structs.replace(NEUTRAL, model="gpt-5"), table, None)
    assert decision.refusal is not None
    assert (decision.refusal.status, decision.refusal.code, decision.refusal.param) == (404, "model_not_found", "model")
    assert "gpt-5" in decision.refusal.message
    assert "`model-09` and 2 more" in decision.refusal.message
    assert "model-10" not in decision.refusal.message
    assert (decision.model, decision.reasons) == ("gpt-5", (Reason.UNKNOWN_MODEL,))


def test_a_very_long_unknown_model_is_not_echoed_whole() -> None:
    decision = decide(structs.replace(NEUTRAL, model="x" * 10_000), make_table(make_pool()), None)
    assert decision.refusal is not None
    assert len(decision.refusal.message) < 300


def test_without_a_model_the_default_serves_then_the_only_one_else_it_is_refused() -> None:
    ask = structs.replace(NEUTRAL, model=None)
    two = (make_pool(model="a"), make_pool(model="b"))
    assert decide(ask, make_table(*two, policy=Policy(default_model="b")), None).model == "b"
    assert decide(ask, make_table(make_pool(model="a")), None).model == "a"
    decision = decide(ask, make_table(*two), None)
    assert decision.refusal is not None
    assert (decision.refusal.status, decision.refusal.param) == (400, "model")
    assert decision.reasons == (Reason.NO_MODEL,)
    empty = decide(ask, make_table(), None)
    assert empty.refusal is not None
    assert empty.refusal.status == 503


def test_a_model_without_a_ready_node_is_refused_for_now() -> None:
    decision = decide(NEUTRAL, make_table(make_pool(ready=0)), None)
    assert decision.refusal is not None
    assert decision.refusal.status == 503
    assert decision.refusal.retry_after
    assert (decision.action, decision.pool) == (Action.REJECT, None)


def test_the_list_of_models_is_answered() -> None:
    ask = parse(make_request(path="/v1/models", method="GET"), Policy())
    assert isinstance(ask, Ask)
    decision = decide(ask, make_table(), None)
    assert (decision.action, decision.reasons) == (Action.ANSWER, (Reason.LISTED_MODELS,))


@pytest.mark.parametrize(
    ("path", "endpoint"), [("/v1/embeddings", Endpoint.EMBEDDINGS), ("/v1/rerank", Endpoint.OTHER)]
)
def test_embeddings_and_unknown_endpoints_go_by_model_alone(path: str, endpoint: Endpoint) -> None:
    ask = make_ask({"model": "llama", "input": "x" * 100_000}, path)
    decision = decide(ask, make_table(make_pool("quantized"), make_pool(model="other")), Pin(FULL))
    assert (decision.endpoint, target(decision)) == (endpoint, "quantized/short")
    assert decision.reasons == (Reason.NOT_CLASSIFIED,)
    assert (decision.sensitivity, decision.budget, decision.pinned) == (None, None, None)


def test_a_refusal_of_the_parser_becomes_a_decision() -> None:
    refusal = parse(make_request(b"{"), Policy())
    assert isinstance(refusal, Refusal)
    decision = refused(refusal, Reason.BAD_REQUEST)
    assert (decision.action, decision.refusal, decision.model) == (Action.REJECT, refusal, "")


# --- values --------------------------------------------------------------------------------------------------------


def test_the_order_of_pools_does_not_matter() -> None:
    for order in itertools.permutations(pools(full_short=OVERLOADED)):
        assert target(decide(NEUTRAL, make_table(*order), None)) == "full/long"


def test_every_pool_is_an_alternative_with_its_marks_or_its_exclusion() -> None:
    decision = decide(SENSITIVE, make_table(*pools()), None)
    assert [a.pool for a in decision.alternatives] == sorted(pool.name for pool in pools())
    for alternative in decision.alternatives:
        if alternative.excluded_by is None:
            assert all(0 <= value <= 1 for _, value in alternative.scores)
            assert alternative.total > 0
        else:
            assert alternative.excluded_by == "other_tier"


LOADS = st.none() | st.builds(
    PoolLoad,
    running=st.integers(0, 200),
    waiting=st.integers(0, 50),
    kv_cache_use=st.none() | st.floats(0, 1),
)
POOLS = st.lists(
    st.builds(
        make_pool,
        st.sampled_from(["full", "quantized"]),
        st.sampled_from(["short", "long", "no such class"]),
        model=st.sampled_from(["llama", "qwen"]),
        ready=st.integers(0, 3),
        capacity=st.sampled_from(["on_demand", "spot"]),
        load=LOADS,
    ),
    max_size=8,
    unique_by=lambda pool: pool.name,
)


@settings(max_examples=300, deadline=None)
@given(
    fleet=POOLS,
    ask=st.sampled_from(
        [SENSITIVE, NEUTRAL, TOLERANT, LONG, SHORT_TOLERANT_LONG, structs.replace(NEUTRAL, model="qwen")]
    ),
    pin=st.none() | st.builds(Pin, st.sampled_from(FormatTier), st.sampled_from((0.0, 50.0))),
    lost=st.sampled_from(LostTier),
    may=st.booleans(),
)
def test_promises_hold_for_any_fleet(fleet: list[Pool], ask: Ask, pin: Pin | None, lost: LostTier, may: bool) -> None:
    policy = Policy(selection=SelectionRules(sensitive_may_use_quantized=may), sessions=SessionRules(lost_tier=lost))
    table = make_table(*fleet, policy=policy)
    decision = explain(ask, table, pin)
    served = [pool for pool in fleet if pool.model == ask.model]
    assert decision.reasons
    if decision.pool is None:
        assert decision.refusal is not None
        assert decision.refusal.status in {404, 503}
        return
    assert decision.pool in served
    assert decision.pool.ready_nodes > 0
    of_pin = [pool for pool in served if pin and pool.tier is pin.tier]
    if pin and of_pin and decision.pool.tier is not pin.tier:
        assert lost is LostTier.REPIN
        assert max(pool.max_context for pool in of_pin) < decision.pool.max_context
        assert Reason.TIER_UNAVAILABLE in decision.reasons
    elif not of_pin and ask is SENSITIVE:
        full_is_ready = any(pool.tier is FULL and pool.ready_nodes for pool in served)
        assert decision.pool.tier is FULL or (may and not full_is_ready)
    assert decision.budget is not None
    if decision.budget.total > decision.pool.max_context:
        assert Reason.EXCEEDS_EVERY_CONTEXT in decision.reasons


def test_each_alternative_says_which_of_its_signals_an_operator_has_overridden() -> None:
    overloaded = replace(make_pool("full", load=PoolLoad(0, 100)), overridden=("waiting",))
    gone = replace(make_pool("full", "long", ready=0), overridden=("running",))
    decision = decide(NEUTRAL, make_table(overloaded, gone, make_pool("quantized")), None)
    assert Reason.SPILLED_UNDER_LOAD in decision.reasons
    assert {a.pool: a.overridden for a in decision.alternatives} == {
        "llama/full/long/on_demand": ("running",),
        "llama/full/short/on_demand": ("waiting",),
        "llama/quantized/short/on_demand": (),
    }


# --- what would change it ------------------------------------------------------------------------------------------


def sentences(ask: Ask, *fleet: Pool, pin: FormatTier | None = None, **policy: Any) -> str:
    return " | ".join(explain(ask, make_table(*fleet, policy=Policy(**policy)), pin).would_change)


def test_explaining_names_the_temperature_that_would_change_the_verdict() -> None:
    story = sentences(make_chat("Write a short story", temperature=0.7), *pools())
    assert "temperature above 0.7 would make it tolerant and send it to llama/quantized/short/on_demand" in story
    code = sentences(make_chat("Write Python code", temperature=0.7), *pools())
    assert "temperature 0 would make it sensitive" in code


def test_explaining_says_how_much_less_would_fit_a_smaller_pool() -> None:
    ask = make_chat("Go on", temperature=0.5, max_tokens=8200)
    assert "fewer output tokens would fit llama/full/short/on_demand (8192 tokens)" in sentences(ask, *pools())
    wordy = make_chat("word " * 10_000, temperature=0.5, max_tokens=10)
    assert "fewer prompt tokens would fit llama/full/short/on_demand" in sentences(wordy, *pools())


def test_explaining_says_where_it_would_go_without_load_or_pin() -> None:
    assert "without load it would go to llama/full/short" in sentences(NEUTRAL, *pools(full_short=OVERLOADED))
    assert "as a new session it would go to llama/quantized/short" in sentences(TOLERANT, *pools(), pin=Pin(FULL))


def test_explaining_says_that_sessions_are_not_looked_up_and_what_a_pin_would_change() -> None:
    body = {"model": "llama", "messages": [{"role": "user", "content": "Write a short story"}], "temperature": 1}
    of_a_session = make_ask(body, headers={"x-session-id": "s"})
    found = sentences(of_a_session, *pools())
    assert "this is decided as the first request of its session" in found
    assert "it would go to llama/full/short/on_demand if pinned to full, see --pinned" in found
    assert "and a pin would change nothing" in sentences(of_a_session, make_pool("quantized"))
    assert "not looked up" not in sentences(make_ask(body), *pools())
    assert "not looked up" not in sentences(of_a_session, *pools(), pin=Pin(FULL))


def test_explaining_decides_as_the_filter_does() -> None:
    table = make_table(*pools(full_short=OVERLOADED))
    for ask in (SENSITIVE, NEUTRAL, TOLERANT, LONG):
        assert structs.replace(explain(ask, table, None), would_change=()) == decide(ask, table, None)


def test_without_loads_an_overloaded_pool_has_room_again() -> None:
    table = compile_table("1", (make_pool("full", load=OVERLOADED), make_pool("quantized", load=IDLE)), Policy())
    ask = make_chat("Hello.", temperature=0.5)
    assert decide(ask, table, None).reasons == (Reason.NEUTRAL_PREFERS_FULL, Reason.SPILLED_UNDER_LOAD)
    assert decide(ask, without_loads(table), None).reasons == (Reason.NEUTRAL_PREFERS_FULL,)


def test_without_loads_nothing_is_overridden_either() -> None:
    table = make_table(replace(make_pool("full", load=OVERLOADED), overridden=("waiting",)), make_pool("quantized"))
    decision = decide(NEUTRAL, without_loads(table), None)
    assert decision.reasons == (Reason.NEUTRAL_PREFERS_FULL,)
    assert [a.overridden for a in decision.alternatives] == [(), ()]
