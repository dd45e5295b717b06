"""A remembered choice is the one that is made anew, and a large fleet costs a decision no more than a small one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from controlplane.model import FormatTier, Pin, Pool, PoolLoad, Pressure, QosTier, TierPressure, Verdict
from controlplane.policy.choice import Question, choose
from controlplane.policy.decide import decide
from controlplane.policy.qos import Mode, QosRules
from controlplane.policy.settings import LostTier, Policy, SelectionRules, SessionRules, Tenant, TenantRules
from controlplane.policy.table import with_pools
from support.asks import IDLE, make_ask, make_chat, make_pool, make_table
from support.cost import cost

TIERS = st.none() | st.sampled_from(FormatTier)
LOADS = st.none() | st.builds(PoolLoad, st.integers(0, 64), st.integers(0, 9), st.none() | st.floats(0, 1))
SINCE = (0.0, 50.0, 100.0)


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    """Of one model."""
    ready = draw(st.integers(0, 3))
    quiescing = draw(st.integers(0, ready))
    states = draw(st.none() | st.lists(st.sampled_from(Pressure), min_size=3, max_size=3))
    made = make_pool(
        draw(st.sampled_from(["full", "quantized"])),
        draw(st.sampled_from(["short", "long", "no such class"])),
        ready=ready,
        capacity=draw(st.sampled_from(["on_demand", "spot"])),
        max_context=draw(st.sampled_from([None, 2048, 8192, 8193])),
        load=draw(LOADS),
        gain=draw(st.sampled_from([1.0, 1.8])),
    )
    return replace(
        made,
        quiescing_nodes=quiescing,
        quiesces_since=draw(st.sampled_from(SINCE[1:])) if quiescing else 0.0,
        pressures=tuple(map(TierPressure, QosTier, states)) if states else (),
    )


FLEETS = st.lists(pools(), min_size=1, max_size=8, unique_by=lambda pool: pool.name)
POLICIES = st.builds(
    lambda lost, may, prefer: Policy(
        sessions=SessionRules(lost_tier=lost),
        selection=SelectionRules(sensitive_may_use_quantized=may),
        tenants=TenantRules(client_may_prefer=tuple(prefer)),
        qos=QosRules(mode=Mode.ENABLED),
    ),
    st.sampled_from(LostTier),
    st.booleans(),
    st.lists(st.sampled_from(FormatTier), unique=True),
)
QUESTIONS = st.builds(
    Question,
    verdict=st.sampled_from(Verdict),
    tokens=st.integers(0, 40_000) | st.sampled_from([2047, 2048, 2049, 8192, 8193, 8194, 32_768, 32_769]),
    pinned=TIERS,
    since=st.sampled_from((*SINCE, 49.9, 99.9, 100.1)),
    asks_for=TIERS,
    asks_unknown=st.booleans(),
    tenant_prefers=TIERS,
    tier=st.none() | st.sampled_from(QosTier),
) | st.builds(Question, st.none(), tier=st.none() | st.sampled_from(QosTier))


@settings(max_examples=200, deadline=None)
@given(fleet=FLEETS, policy=POLICIES, question=QUESTIONS, data=st.data())
def test_what_is_remembered_of_a_rounded_question_is_the_choice_that_is_made_anew(
    fleet: list[Pool], policy: Policy, question: Question, data: st.DataObject
) -> None:
    offer = make_table(*fleet, policy=policy).offer_of("llama")
    assert offer is not None
    clusters = st.sampled_from(offer.clusters[question.pinned])
    full = data.draw(st.lists(clusters, unique=True))
    question = structs.replace(question, full=offer.full(lambda cluster: cluster not in full, question.pinned))
    rounded = structs.replace(
        question, tokens=offer.rounded_tokens(question.tokens), since=offer.rounded_time(question.since)
    )
    assert offer.choice(rounded) == choose(offer.candidates, policy, question)
    assert offer.choice(structs.replace(rounded)) is offer.choice(rounded)


def test_what_is_remembered_ends_with_the_table() -> None:
    table = make_table(make_pool("full", load=IDLE), make_pool("quantized", load=IDLE))
    ask = make_chat("Write a short story", temperature=1)
    assert decide(ask, table, None).pool == table.pools[1]
    gone = with_pools(table, (table.pools[0], replace(table.pools[1], ready_nodes=0)))
    assert decide(ask, gone, None).pool == table.pools[0]
    assert decide(ask, table, None).pool == table.pools[1]


def test_what_one_tenant_may_not_use_is_not_chosen_for_it_after_another_one_was_served() -> None:
    known = (Tenant("narrow", models=("qwen",)), Tenant("wide"))
    shared = [make_pool(model=model, served_name="shared") for model in ("llama", "qwen")]
    table = make_table(*shared, policy=Policy(tenants=TenantRules(header="x-tenant", known=known)))
    body = {"model": "shared", "messages": [{"role": "user", "content": "Go on"}]}
    for _ in range(2):
        for tenant, model in (("wide", "llama"), ("narrow", "qwen")):
            ask = make_ask(body, headers={"x-tenant": tenant}, policy=table.policy)
            assert decide(ask, table, None).model == model


def test_a_decision_among_200_pools_costs_what_one_between_two_does() -> None:
    few = [make_pool(tier) for tier in FormatTier]
    names = [f"engine-{number}" for number in range(99)]
    many = [*few, *(make_pool(tier, served_name=name) for tier in FormatTier for name in names)]
    assert len(many) == 200
    ask = make_chat("Write Python code", temperature=0)
    for pin in (None, Pin(FormatTier.FULL)):
        between_two, among_many = (cost(partial(decide, ask, make_table(*fleet), pin)) for fleet in (few, many))
        assert between_two.instructions == among_many.instructions
        assert between_two.c_calls == among_many.c_calls
