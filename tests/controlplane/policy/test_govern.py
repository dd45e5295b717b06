"""Facts rows: first thresholds on pressure, actions, shapeable, states, all signals missing, cluster routing."""

from __future__ import annotations

import time
import timeit
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from controlplane.model import (
    Action,
    Ask,
    Decision,
    FormatTier,
    Pin,
    Pool,
    Pressure,
    QosTier,
    Reason,
    TierPressure,
    Verdict,
)
from controlplane.policy.decide import decide
from controlplane.policy.explain import explain
from controlplane.policy.faults import faults
from controlplane.policy.govern import Governing, cap_at, course, retry_after, standing_of
from controlplane.policy.pins import pin_of
from controlplane.policy.pressure import Limits, PressureState, Signals, Stability, Thresholds, level_of, step
from controlplane.policy.qos import Measure, Mode, OutputCap, QosRules, SpotUse, TierRules
from controlplane.policy.settings import Policy, Tenant, TenantRules
from controlplane.policy.table import RoutingTable
from support.asks import make_ask, make_pool, make_table

GUARANTEED, STANDARD, BEST_EFFORT = QosTier
NORMAL, ELEVATED, CRITICAL = Pressure
TENANTS = TenantRules(
    header="x-tenant",
    known=(
        Tenant("support-bot", GUARANTEED),
        Tenant("coding-assistant", STANDARD),
        Tenant("batch-analytics", BEST_EFFORT),
    ),
)
NAMES = {tenant.qos_tier: tenant.name for tenant in TENANTS.known}
GOVERNED = QosRules(mode=Mode.ENABLED)
SMALL = make_pool(model="small")


def pressed(pool: Pool | None = None, level: float = 0.5, **states: Pressure) -> Pool:
    """The pool, pressed like this for these tiers, and not for others."""
    found = tuple(TierPressure(tier, states.get(tier, NORMAL), level, "kv_cache_use") for tier in QosTier)
    return replace(pool or make_pool(), pressures=found)


def table(*pools: Pool, qos: QosRules = GOVERNED) -> RoutingTable:
    return make_table(*pools, policy=Policy(qos=qos, tenants=TENANTS))


def asked(made: RoutingTable, tier: QosTier, path: str = "/v1/chat/completions", **fields: Any) -> Ask:
    body = {"model": "llama", "messages": [{"role": "user", "content": "Go on"}], "temperature": 0.5, **fields}
    return make_ask(body, path, headers={"x-tenant": NAMES[tier]}, policy=made.policy)


def decided(made: RoutingTable, tier: QosTier, *, waited: float = 0.0, draw: float = 0.5, **fields: Any) -> Decision:
    return decide(asked(made, tier, **fields), made, None, waited_seconds=waited, draw=draw)


def for_tier(tier: QosTier, **changes: Any) -> QosRules:
    return replace(GOVERNED, **{tier: replace(GOVERNED.of(tier), **changes)})


# --- the published table -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kv_cache_use", "guaranteed", "standard", "best_effort"),
    [
        (0.59, Action.PASS, Action.PASS, Action.PASS),
        (0.60, Action.PASS, Action.PASS, Action.REJECT),
        (0.69, Action.PASS, Action.PASS, Action.REJECT),
        (0.70, Action.PASS, Action.DEGRADE, Action.REJECT),
        (0.90, Action.PASS, Action.REJECT, Action.REJECT),
        (0.95, Action.DEGRADE, Action.REJECT, Action.REJECT),
        (1.00, Action.REJECT, Action.REJECT, Action.REJECT),
    ],
)
def test_first_thresholds_on_pressure_are_the_defaults(
    kv_cache_use: float, guaranteed: Action, standard: Action, best_effort: Action
) -> None:
    """Facts row: first thresholds on pressure."""
    states = {}
    for tier in QosTier:
        rules = GOVERNED.of(tier)
        state, thresholds = PressureState(), Thresholds(rules.elevated_at, rules.critical_at)
        for second in range(2):
            state = step(state, Signals(kv_cache_use), thresholds, Stability(), second * 2.0)
        states[tier] = state.pressure
    made = table(pressed(**states))
    assert [decided(made, tier).action for tier in QosTier] == [guaranteed, standard, best_effort]


def test_tenants_of_the_published_map_have_their_tiers_and_unknown_ones_the_configured_one() -> None:
    """Facts row: tenants."""
    made = table(make_pool())
    assert [decided(made, tier).qos_tier for tier in QosTier] == list(QosTier)
    stranger = make_ask({"model": "llama", "prompt": "x"}, "/v1/completions", headers={"x-tenant": "who"})
    assert decide(stranger, made, None).qos_tier is STANDARD


def test_all_signals_missing_passes_everybody() -> None:
    """Facts row: all signals missing."""
    made = table(make_pool())
    assert {decided(made, tier).action for tier in QosTier} == {Action.PASS}


def test_facts_stages_are_apart_a_tier_means_another_action_and_an_action_no_other_place() -> None:
    """Evaluation, tenant policy, action, routing: each is what it is whatever the others say.

    Facts row: its own gaps (a tenant's policy without effect).
    """
    pool, spot = pressed(standard=ELEVATED, best_effort=ELEVATED), make_pool(capacity="spot")
    lenient = for_tier(STANDARD, when_elevated=Measure.PASS)
    for qos, action in ((GOVERNED, Action.DEGRADE), (lenient, Action.PASS)):
        decision = decided(table(pool, spot, qos=qos), STANDARD)
        assert (decision.action, decision.pool, decision.pressure) == (action, pool, pool.pressures[1])
    assert decided(table(pool, qos=GOVERNED), GUARANTEED).action is Action.PASS


def test_facts_claimed_evaluating_the_policy_takes_microseconds() -> None:
    """Published: about 6 microseconds at the median. The least of many, and of this thread alone, as others may work
    meanwhile; ten times as much is let pass, `bench/policy.py` measures it."""
    ask, by = asked(table(make_pool()), STANDARD), Governing(GOVERNED, STANDARD)
    standing = standing_of(pressed(standard=ELEVATED), STANDARD, GOVERNED)
    taken = timeit.repeat(lambda: course(ask, standing, by), timer=time.thread_time, number=100, repeat=30)
    assert min(taken) / 100 < 60e-6


# --- actions -------------------------------------------------------------------------------------------------------


def test_degrading_caps_a_request_without_a_cap_and_never_raises_one() -> None:
    """Facts row: actions."""
    made = table(pressed(standard=ELEVATED, level=0.5))
    decision = decided(made, STANDARD)
    assert (decision.action, decision.output_limit) == (Action.DEGRADE, 640)
    assert decision.reasons[-1] is Reason.DEGRADED_UNDER_PRESSURE
    assert decision.budget is not None
    assert (decision.budget.output_tokens, decision.budget.output_from) == (640, "pressure")
    assert decided(made, STANDARD, max_tokens=5000).output_limit == 640
    own = decided(made, STANDARD, max_tokens=640)
    assert (own.action, own.output_limit) == (Action.PASS, None)
    assert decided(made, STANDARD, min_tokens=2000).output_limit == 2000  # engines refuse a cap below it


def test_a_cap_counts_for_each_choice() -> None:
    decision = decided(table(pressed(standard=ELEVATED)), STANDARD, n=2)
    assert decision.output_limit == 640
    assert decision.budget is not None
    assert decision.budget.output_tokens <= 2 * 640


def test_output_caps_are_a_curve_of_pressure() -> None:
    caps = (OutputCap(0.0, 1000), OutputCap(0.5, 200), OutputCap(1.0, 100))
    assert [cap_at(level, caps) for level in (0.0, 0.25, 0.5, 0.75, 1.0)] == [1000, 600, 200, 150, 100]
    assert cap_at(0.3, (OutputCap(0.4, 7),)) == cap_at(0.9, (OutputCap(0.4, 7),)) == 7


@given(st.lists(st.floats(0, 1), min_size=2), st.lists(st.integers(1, 10_000), min_size=2, max_size=2))
def test_more_pressure_never_allows_more_output(levels: list[float], tokens: list[int]) -> None:
    low, high = sorted(tokens)
    caps = [cap_at(level, (OutputCap(0.0, high), OutputCap(1.0, low))) for level in sorted(levels)]
    assert all(earlier >= later for earlier, later in pairwise(caps))
    assert all(low <= cap <= high for cap in caps)


def test_rejecting_is_a_429_of_openais_shape_with_a_retry_after_that_varies() -> None:
    """Facts row: a rejection is OpenAI-shaped, with a jittered Retry-After."""
    made = table(pressed(best_effort=CRITICAL))
    refusals = [decided(made, BEST_EFFORT, draw=draw).refusal for draw in (0.0, 0.5, 1.0)]
    assert [refusal and (refusal.status, refusal.type, refusal.code) for refusal in refusals] == [
        (429, "rate_limit_error", "overloaded")
    ] * 3
    assert [refusal and refusal.retry_after for refusal in refusals] == [15, 30, 45]
    assert retry_after(replace(GOVERNED, retry_jitter=0), STANDARD, 0.9) == 10
    decision = decided(made, BEST_EFFORT)
    assert decision.reasons[0] is Reason.OVERLOADED
    assert (decision.pool, decision.pressed_pool) == (None, "llama/full/short/on_demand")


def test_falling_back_has_a_smaller_model_serve_and_says_so() -> None:
    qos = for_tier(STANDARD, when_elevated=Measure.FALLBACK, fallback_model="small")
    decision = decided(table(pressed(standard=ELEVATED), SMALL, qos=qos), STANDARD)
    assert (decision.action, decision.model, decision.asked_model) == (Action.FALLBACK, "small", "llama")
    assert decision.pool is not None
    assert decision.pool.model == "small"
    assert Reason.FELL_BACK_UNDER_PRESSURE in decision.reasons


def test_what_falls_back_says_nothing_of_its_session() -> None:
    qos = for_tier(STANDARD, when_elevated=Measure.FALLBACK, fallback_model="small")
    made = table(pressed(make_pool("quantized"), standard=ELEVATED), SMALL, qos=qos)
    ask = structs.replace(asked(made, STANDARD), session="s")
    decision = decide(ask, made, Pin(FormatTier.QUANTIZED))
    assert decision.action is Action.FALLBACK
    assert pin_of(decision, made) is None
    assert pin_of(decide(ask, table(make_pool("quantized"), qos=qos), None), made) is not None


def test_a_pin_to_a_tier_of_the_model_asked_for_does_not_bind_the_one_that_stands_in() -> None:
    qos = for_tier(STANDARD, when_elevated=Measure.FALLBACK, fallback_model="small")
    made = table(pressed(make_pool("quantized"), standard=ELEVATED), SMALL, qos=qos)  # which has a full pool only
    decision = decide(structs.replace(asked(made, STANDARD), session="s"), made, Pin(FormatTier.QUANTIZED))
    assert (decision.action, decision.pool, decision.pinned) == (Action.FALLBACK, SMALL, None)


@pytest.mark.parametrize(
    ("small", "state", "action"),
    [
        (None, ELEVATED, Action.PASS),
        (None, CRITICAL, Action.REJECT),
        (make_pool(model="small", ready=0), CRITICAL, Action.REJECT),
        (pressed(SMALL, standard=CRITICAL), CRITICAL, Action.REJECT),
        (pressed(SMALL, standard=ELEVATED), CRITICAL, Action.FALLBACK),  # nothing is below the model fallen back to
    ],
)
def test_where_no_model_stands_in_elevated_passes_and_critical_is_rejected(
    small: Pool | None, state: Pressure, action: Action
) -> None:
    qos = for_tier(STANDARD, when_elevated=Measure.FALLBACK, when_critical=Measure.FALLBACK, fallback_model="small")
    pools = [pressed(standard=state), *([small] if small else [])]
    assert decided(table(*pools, qos=qos), STANDARD).action is action


def test_a_request_that_falls_back_is_degraded_by_the_pressure_there() -> None:
    qos = for_tier(STANDARD, when_critical=Measure.FALLBACK, fallback_model="small")
    made = table(pressed(standard=CRITICAL), pressed(SMALL, standard=ELEVATED, level=0.0), qos=qos)
    decision = decided(made, STANDARD)
    assert (decision.action, decision.output_limit) == (Action.FALLBACK, 1024)


def test_what_is_queued_is_held_until_it_has_aged() -> None:
    made = table(pressed(standard=ELEVATED), qos=for_tier(STANDARD, when_elevated=Measure.QUEUE))
    decision = decided(made, STANDARD)
    assert (decision.action, decision.held_seconds) == (Action.QUEUE, 5.0)
    assert decision.waits_for == ("llama/full/short/on_demand",)
    assert decision.reasons[-1] is Reason.HELD_UNDER_PRESSURE
    assert decided(made, STANDARD, waited=2.0).held_seconds == 3.0
    assert decided(made, STANDARD, waited=5.0).action is Action.PASS


def test_who_was_let_wait_is_not_rejected_any_more() -> None:
    made = table(pressed(best_effort=CRITICAL))
    assert decided(made, BEST_EFFORT, waited=0.1).action is Action.QUEUE
    assert decided(made, BEST_EFFORT, waited=5.0).action is Action.PASS


def test_a_request_that_has_to_wait_for_room_meets_its_pressure_before_it_waits() -> None:
    made = table(pressed(best_effort=CRITICAL, standard=ELEVATED))
    assert decide(asked(made, BEST_EFFORT), made, None, lambda _: False).action is Action.REJECT
    waiting = decide(asked(made, STANDARD), made, None, lambda _: False)
    assert (waiting.action, waiting.output_limit) == (Action.QUEUE, 640)
    assert waiting.held_seconds == 0


# --- shapeable -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "fields", "shaped"),
    [
        ("/v1/chat/completions", {}, True),
        ("/v1/completions", {"prompt": "x"}, True),
        ("/v1/responses", {"input": "x"}, False),
        ("/v1/messages", {}, False),
        ("/v1/embeddings", {"input": "x"}, False),
        ("/v1/rerank", {}, False),
    ],
)
def test_only_shapeable_requests_are_shaped(path: str, fields: dict[str, Any], shaped: bool) -> None:
    """Facts row: shapeable."""
    made = table(pressed(**dict.fromkeys(QosTier, CRITICAL)))
    assert (decided(made, BEST_EFFORT, path=path, **fields).action is Action.REJECT) is shaped
    more = table(*made.pools, qos=replace(GOVERNED, shapes=(*GOVERNED.shapes, "responses", "messages")))  # type: ignore[arg-type]
    also = path.endswith(("/responses", "/messages"))
    assert (decided(more, BEST_EFFORT, path=path, **fields).action is Action.REJECT) is (shaped or also)


@pytest.mark.parametrize(
    ("method", "shaped"), [("POST", True), ("PUT", True), ("PATCH", True), ("GET", False), ("DELETE", False)]
)
def test_only_methods_that_ask_for_text_are_shaped(method: str, shaped: bool) -> None:
    """Facts row: shapeable."""
    made = table(pressed(best_effort=CRITICAL))
    body = {"model": "llama", "messages": [{"role": "user", "content": "Go on"}]}
    ask = make_ask(body, method=method, headers={"x-tenant": NAMES[BEST_EFFORT]}, policy=made.policy)
    assert (decide(ask, made, None).action is Action.REJECT) is shaped


# --- capacity ------------------------------------------------------------------------------------------------------

ON_DEMAND = make_pool()
SPOT = make_pool(capacity="spot")


@pytest.mark.parametrize(
    ("pools", "guaranteed", "standard", "best_effort"),
    [
        ((ON_DEMAND, SPOT), "on_demand", "on_demand", "spot"),
        ((ON_DEMAND, make_pool(capacity="spot", ready=0)), "on_demand", "on_demand", "on_demand"),  # health failure
        ((ON_DEMAND, pressed(SPOT, best_effort=CRITICAL)), "on_demand", "on_demand", "on_demand"),  # spot pressure
        ((pressed(ON_DEMAND, best_effort=CRITICAL), SPOT), "on_demand", "on_demand", "spot"),
        ((SPOT,), "spot", "spot", "spot"),  # the last resort, rather than nothing
        ((make_pool(ready=0), SPOT), "spot", "spot", "spot"),
    ],
)
def test_cluster_routing_is_by_tier(pools: tuple[Pool, ...], guaranteed: str, standard: str, best_effort: str) -> None:
    """Facts row: cluster routing."""
    made = table(*pools)
    found = [decided(made, tier).pool for tier in QosTier]
    assert [pool and pool.capacity_type for pool in found] == [guaranteed, standard, best_effort]


def test_a_tier_is_never_led_by_load_to_the_other_capacity() -> None:
    """Facts row: cluster routing."""
    made = table(ON_DEMAND, SPOT)
    busy = {ON_DEMAND.name}
    waiting = decide(asked(made, STANDARD), made, None, lambda cluster: cluster not in busy)
    assert (waiting.action, waiting.waits_for) == (Action.QUEUE, (ON_DEMAND.name,))
    excluded = {found.pool: found.excluded_by for found in waiting.alternatives}
    assert excluded == {ON_DEMAND.name: None, SPOT.name: "spot"}


def test_never_is_never_also_where_there_is_nothing_else() -> None:
    qos = for_tier(GUARANTEED, spot=SpotUse.NEVER)
    assert decided(table(SPOT, qos=qos), GUARANTEED).reasons[0] is Reason.NO_READY_NODE
    assert decided(table(SPOT, qos=qos), STANDARD).action is Action.PASS


def test_best_effort_says_why_it_is_where_it_is() -> None:
    assert Reason.SPOT_PREFERRED in decided(table(ON_DEMAND, SPOT), BEST_EFFORT).reasons
    evicted = decided(table(ON_DEMAND, pressed(SPOT, best_effort=CRITICAL)), BEST_EFFORT)
    assert Reason.SPOT_EVICTED in evicted.reasons
    assert [a.excluded_by for a in evicted.alternatives] == [None, "critical_pressure"]
    assert decided(table(ON_DEMAND), BEST_EFFORT).reasons == (Reason.NEUTRAL_PREFERS_FULL,)


def test_a_request_that_only_spot_nodes_can_hold_goes_there() -> None:
    long_spot = make_pool(context_class="long", capacity="spot")
    assert decided(table(ON_DEMAND, long_spot), STANDARD, max_tokens=10_000).pool == long_spot
    assert decided(table(ON_DEMAND, long_spot), STANDARD, max_tokens=100_000).pool == ON_DEMAND


def test_critical_pressure_evicts_from_a_pool_as_long_as_another_one_serves() -> None:
    full, quantized = pressed(standard=CRITICAL), make_pool("quantized")
    assert decided(table(full, quantized), STANDARD).pool == quantized
    sensitive = decided(table(full, quantized), STANDARD, temperature=0, response_format={"type": "json_object"})
    assert sensitive.sensitivity is not None
    assert sensitive.sensitivity.verdict is Verdict.SENSITIVE
    assert sensitive.action is Action.REJECT  # it needs the full tier, all of which is pressed


# --- modes ---------------------------------------------------------------------------------------------------------


def test_a_dry_run_decides_as_without_governance_and_records_what_it_would_have_done() -> None:
    pools = (pressed(standard=ELEVATED, best_effort=CRITICAL), SPOT)
    dry, off = table(*pools, qos=replace(GOVERNED, mode=Mode.DRY_RUN)), table(*pools, qos=QosRules())
    for tier in QosTier:
        decision = decided(dry, tier)
        assert structs.replace(decision, would_do=None, pressure=None, pressed_pool="") == decided(off, tier)
        assert decision.would_do is not None
        governed = decided(table(*pools), tier)
        assert (decision.would_do.action, decision.would_do.reasons) == (governed.action, governed.reasons)
        assert decision.would_do.output_limit == governed.output_limit
        assert decision.would_do.pool == (governed.pool.name if governed.pool else "")


def test_disabled_governance_has_no_say() -> None:
    decision = decided(table(pressed(**dict.fromkeys(QosTier, CRITICAL)), qos=QosRules()), BEST_EFFORT)
    assert (decision.action, decision.pressure, decision.would_do) == (Action.PASS, None, None)


def test_explain_says_what_would_be_without_pressure() -> None:
    made = table(pressed(best_effort=CRITICAL))
    changes = explain(asked(made, BEST_EFFORT), made, None).would_change
    assert "without pressure it would be pass and go to llama/full/short/on_demand" in changes


# --- levels and faults ---------------------------------------------------------------------------------------------


def test_the_level_is_where_the_foremost_signal_is_between_its_limits() -> None:
    thresholds = Thresholds(Limits(0.7, 8.0, 0.1), Limits(0.9, 16.0))
    assert level_of(Signals(0.8, 8.0), thresholds) == (pytest.approx(0.5), "kv_cache_use")
    assert level_of(Signals(0.5, 14.0), thresholds) == (0.75, "waiting_per_node")
    assert level_of(Signals(0.95, 14.0), thresholds) == (1.0, "kv_cache_use")
    assert level_of(Signals(None, None, 0.55), thresholds) == (pytest.approx(0.5), "sla_violation_rate")
    assert level_of(Signals(), thresholds) == level_of(Signals(0.5), Thresholds()) == (0.0, "")
    assert level_of(Signals(0.3), Thresholds(critical=Limits(0.6))) == (0.5, "kv_cache_use")


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (QosRules(shapes=("embeddings",)), "qos.shapes: embeddings cannot be shaped"),  # type: ignore[arg-type]
        (for_tier(STANDARD, elevated_at=Limits(0.95)), "qos.standard.elevated_at.kv_cache_use: must not be above"),
        (for_tier(STANDARD, elevated_at=Limits(0.05)), "qos.standard.elevated_at.kv_cache_use: would never end"),
        (for_tier(STANDARD, elevated_at=Limits(None, 0.0)), "qos.standard.elevated_at.waiting_per_node: would never"),
        (for_tier(STANDARD, when_critical=Measure.FALLBACK), "qos.standard.when_critical: there is no model"),
        (for_tier(STANDARD, output_caps=(OutputCap(1, 5), OutputCap(0, 9))), "levels must grow"),
        (for_tier(STANDARD, output_caps=(OutputCap(0, 5), OutputCap(1, 9))), "tokens must not grow"),
    ],
)
def test_contradictions_of_the_table_are_found(rules: QosRules, says: str) -> None:
    assert any(says in fault for fault in faults(Policy(qos=rules)))


def test_all_mistakes_of_the_table_are_found_at_once() -> None:
    wrong = TierRules(elevated_at=Limits(0.9), critical_at=Limits(0.8), when_elevated=Measure.FALLBACK)
    rules = QosRules(guaranteed=wrong, standard=wrong, best_effort=wrong)
    assert len(faults(Policy(qos=rules))) == 6
