"""Recorded decisions against another policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from google.protobuf.json_format import ParseDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from controlplane.messages import as_fields, decision_message, timestamp
from controlplane.model import Action, Ask, FormatTier, Pin, Pool, PoolLoad, Pressure, QosTier, Reason, TierPressure
from controlplane.policy.decide import decide, not_served
from controlplane.policy.pressure import Limits, Signals, Thresholds, level_of, severity
from controlplane.policy.qos import Measure, Mode, OutputCap, QosRules
from controlplane.policy.settings import Policy, Tenant, TenantRules
from controlplane.policy.table import RoutingTable
from headrace_protos.headrace.v1 import decision_pb2
from planner.replay.replaying import Doubt, Fate, Replayed, Standing, replay
from support.asks import make_ask, make_pool, make_table

NAMES = {tier: str(tier) for tier in QosTier}
TENANTS = TenantRules(header="x-tenant", known=tuple(Tenant(name, tier) for tier, name in NAMES.items()))
WAS = Policy(
    tenants=TENANTS,
    qos=replace(
        QosRules(mode=Mode.ENABLED),
        guaranteed=replace(QosRules().guaranteed, when_elevated=Measure.FALLBACK, fallback_model="small"),
        best_effort=replace(QosRules().best_effort, when_critical=Measure.REJECT),
    ),
)
POOLS = (
    make_pool(),
    make_pool("quantized"),
    make_pool(context_class="long"),
    make_pool(capacity="spot"),
    make_pool("quantized", "long"),
    make_pool(model="small"),
)


def pressed(pool: Pool, signals: Signals, policy: Policy) -> Pool:
    """With the states of the signals by themselves."""
    found = []
    for tier in QosTier:
        rules = policy.qos.of(tier)
        thresholds = Thresholds(rules.elevated_at, rules.critical_at)
        level, signal = level_of(signals, thresholds)
        state = severity(signals, thresholds, Pressure.NORMAL, 0.0)
        told = (signals.sla_violation_rate, signals.kv_cache_use, signals.waiting_per_node)
        found.append(TierPressure(tier, state, round(level, 2), signal, *told))
    return replace(pool, pressures=tuple(found))


def recorded(
    ask: Ask,
    table: RoutingTable,
    pin: Pin | None = None,
    number: int = 0,
    refused_for: Reason = Reason.WAIT_TOO_LONG,
    **how: Any,
) -> decision_pb2.RecordedDecision:
    """As the filter decides; who finds no room is not served."""
    decision = decide(ask, table, pin, **how)
    if decision.action is Action.QUEUE:
        seconds = 30.0 if refused_for is Reason.WAIT_TOO_LONG else 0.0
        decision = not_served(decision, refused_for, seconds, 5.0)
    return decision_pb2.RecordedDecision(
        request_id=f"r{number}", time=timestamp(1000.0 + number), decision=decision_message(decision)
    )


def ask_of(tier: QosTier, text: str = "Go on", policy: Policy = WAS, **fields: Any) -> Ask:
    body = {"model": "llama", "messages": [{"role": "user", "content": text}], **fields}
    return make_ask(body, headers={"x-tenant": NAMES[tier], "x-session-id": str(fields)}, policy=policy)


LOADS = st.builds(PoolLoad, st.integers(0, 32), st.integers(0, 9), st.sampled_from([None, 0.1, 0.5, 0.84, 0.9, 0.97]))
SIGNALS = st.builds(
    Signals,
    st.one_of(st.none(), st.sampled_from([0.1, 0.65, 0.8, 0.96])),
    st.one_of(st.none(), st.sampled_from([0.0, 9.0, 40.0])),
    st.one_of(st.none(), st.sampled_from([0.0, 0.05, 0.15, 0.25])),
)
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0, 0.2, 0.5, 0.9]),
        "max_tokens": st.integers(1, 20_000),
        "tools": st.just([{"type": "function", "function": {"name": "f"}}]),
        "n": st.integers(1, 4),
        "seed": st.just(7),
    },
)
TEXTS = st.sampled_from(["Go on", "Write a Python function.", "Tell me a story.", "word " * 9000, "word " * 40_000])


@st.composite
def recordings(draw: st.DrawFn) -> tuple[Mode, list[dict[str, Any]]]:
    """A decision, with others of the same moment about the model that may stand in and the one asked for."""
    mode = draw(st.sampled_from(Mode))
    tolerant = draw(st.booleans())
    policy = replace(WAS, qos=replace(WAS.qos, mode=mode))
    pools = []
    for pool in draw(st.sets(st.sampled_from(POOLS), min_size=3)):
        load, signals, ready = draw(LOADS), draw(SIGNALS), draw(st.sampled_from([2, 2, 1, 0]))
        made = replace(pool, load=load, ready_nodes=ready, gain=1.8 if tolerant else 1.05)
        pools.append(pressed(made, signals, policy))
    if "llama" not in {pool.model for pool in pools}:
        pools.append(make_pool())
    headers = {"x-tenant": draw(st.sampled_from(list(NAMES.values())))}
    if wish := draw(st.sampled_from(["", "full", "quantized"])):
        headers["x-headrace-format"] = wish
    body = {"model": "llama", "messages": [{"role": "user", "content": draw(TEXTS)}], **draw(BODIES)}
    ask = make_ask(body, headers=headers, policy=policy)
    pin = draw(st.one_of(st.none(), st.builds(Pin, st.sampled_from(FormatTier))))
    busy = draw(st.sets(st.sampled_from([pool.name for pool in POOLS]), max_size=2))
    how = {"free": lambda cluster: cluster.partition("@")[0] not in busy}
    table = make_table(*pools, policy=policy)
    refused_for = draw(st.sampled_from([Reason.WAIT_TOO_LONG, Reason.WOULD_WAIT_TOO_LONG, Reason.QUEUE_FULL]))
    rows = [recorded(ask, table, pin, refused_for=refused_for, **how)]
    if "fell_back_under_pressure" in {*rows[0].decision.reasons, *rows[0].decision.would_do.reasons}:
        calm = make_table(*(replace(pool, pressures=()) for pool in pools), policy=policy)
        rows += [recorded(structs.replace(ask, model=model), calm, pin, 1, **how) for model in calm.models]
    return mode, [as_fields(row) for row in rows]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(recordings())
def test_the_policy_that_was_in_force_changes_nothing(recording: tuple[Mode, list[dict[str, Any]]]) -> None:
    """Facts row: offline replay."""
    mode, rows = recording
    policy = replace(WAS, qos=replace(WAS.qos, mode=mode))
    found, *_ = replay([ParseDict(row, decision_pb2.RecordedDecision()) for row in rows], policy, policy)
    assert not found.changes
    assert found.standing is (Standing.CERTAIN if found.recorded.decision.alternatives else Standing.OUTSIDE)


# --- other policies ------------------------------------------------------------------------------------------------


def one(row: decision_pb2.RecordedDecision, now: Policy, was: Policy = WAS) -> Replayed:
    [found] = replay([row], was, now)
    return found


def busy(kv_cache_use: float, policy: Policy = WAS) -> RoutingTable:
    pool = replace(make_pool(), load=PoolLoad(1, 0, kv_cache_use))
    return make_table(pressed(pool, Signals(kv_cache_use), policy), policy=policy)


def for_tier(tier: QosTier, **changes: Any) -> Policy:
    return replace(WAS, qos=replace(WAS.qos, **{tier: replace(WAS.qos.of(tier), **changes)}))


POOL = make_pool().name
PASSED = Fate(Action.PASS, "llama", POOL)
REJECTED = Fate(Action.REJECT, "")


def test_a_lower_limit_rejects_who_was_passed_and_a_higher_one_passes_who_was_rejected() -> None:
    """Facts row: its own gaps (limits that were never held against recorded traffic)."""
    lower = for_tier(QosTier.BEST_EFFORT, critical_at=Limits(0.4))
    found = one(recorded(ask_of(QosTier.BEST_EFFORT), busy(0.5)), lower)
    assert (found.was, found.now, found.standing) == (PASSED, REJECTED, Standing.CERTAIN)
    higher = for_tier(QosTier.BEST_EFFORT, critical_at=Limits(0.9))
    found = one(recorded(ask_of(QosTier.BEST_EFFORT), busy(0.7)), higher)
    assert (found.was, found.now, found.standing) == (REJECTED, PASSED, Standing.CERTAIN)


def test_signals_are_known_to_the_step_that_they_are_recorded_in() -> None:
    row = recorded(ask_of(QosTier.STANDARD), busy(0.8))
    assert row.decision.output_limit == 640
    sooner = one(row, for_tier(QosTier.STANDARD, critical_at=Limits(0.79)))
    assert (sooner.now, sooner.standing) == (REJECTED, Standing.CERTAIN)
    just_there = one(row, for_tier(QosTier.STANDARD, critical_at=Limits(0.803)))
    assert (just_there.now.action, just_there.doubts) == (Action.DEGRADE, (Doubt.PRESSURE,))


def test_the_cap_follows_the_other_curve() -> None:
    row = recorded(ask_of(QosTier.STANDARD), busy(0.8))
    found = one(row, for_tier(QosTier.STANDARD, output_caps=(OutputCap(0.0, 200), OutputCap(1.0, 100))))
    assert found.was == Fate(Action.DEGRADE, "llama", POOL, 640)
    assert found.now == Fate(Action.DEGRADE, "llama", POOL, 150)
    own = recorded(ask_of(QosTier.STANDARD, max_tokens=100), busy(0.8))
    assert not one(own, for_tier(QosTier.STANDARD, output_caps=(OutputCap(0.0, 200), OutputCap(1.0, 100)))).changes


def test_a_milder_cap_is_none_for_a_client_that_named_less() -> None:
    milder = for_tier(QosTier.STANDARD, output_caps=(OutputCap(0.0, 4000),))
    found = one(recorded(ask_of(QosTier.STANDARD, max_tokens=3000), busy(0.8)), milder)
    assert (found.was.output_limit, found.now, found.standing) == (640, PASSED, Standing.CERTAIN)
    assert one(recorded(ask_of(QosTier.STANDARD), busy(0.8)), milder).now.output_limit == 4000


def test_another_tier_of_a_tenant_meets_that_tiers_rules() -> None:
    known = tuple(replace(t, qos_tier=QosTier.BEST_EFFORT) for t in TENANTS.known)
    found = one(recorded(ask_of(QosTier.STANDARD), busy(0.65)), replace(WAS, tenants=replace(TENANTS, known=known)))
    assert (found.was_tier, found.tier) == (QosTier.STANDARD, QosTier.BEST_EFFORT)
    assert (found.now, found.standing) == (REJECTED, Standing.CERTAIN)


def test_a_dry_run_says_what_governance_does_once_it_is_enabled() -> None:
    dry = replace(WAS, qos=replace(WAS.qos, mode=Mode.DRY_RUN))
    row = recorded(ask_of(QosTier.BEST_EFFORT, policy=dry), busy(0.7, dry))
    found = one(row, WAS, dry)
    assert (found.was, found.now, found.standing) == (PASSED, REJECTED, Standing.CERTAIN)


def test_pressure_that_nobody_recorded_is_doubted() -> None:
    off = replace(WAS, qos=replace(WAS.qos, mode=Mode.DISABLED))
    found = one(recorded(ask_of(QosTier.BEST_EFFORT, policy=off), busy(0.7, off)), WAS, off)
    assert (found.now, found.standing, found.doubts) == (PASSED, Standing.LIKELY, (Doubt.PRESSURE,))


TWO = (replace(make_pool(), load=PoolLoad(1, 0, 0.1)), replace(make_pool("quantized"), load=PoolLoad(1, 0, 0.1)))
STORY = "Tell me a story about a fox."


CALM = replace(WAS, qos=replace(WAS.qos, mode=Mode.DISABLED))


def test_other_weights_and_thresholds_give_another_verdict_and_pool() -> None:
    tolerant = recorded(ask_of(QosTier.STANDARD, STORY, temperature=0.9), make_table(*TWO, policy=CALM))
    assert tolerant.decision.pool == TWO[1].name
    stricter = replace(CALM, sensitivity=replace(CALM.sensitivity, tolerant_at=-1000))
    found = one(tolerant, stricter, CALM)
    assert (found.now.pool, found.standing) == (POOL, Standing.CERTAIN)
    weights = replace(CALM.sensitivity.weights, creative_words=0)
    found = one(tolerant, replace(CALM, sensitivity=replace(CALM.sensitivity, weights=weights)), CALM)
    assert (found.now.pool, found.standing) == (POOL, Standing.CERTAIN)
    hotter = replace(CALM, sensitivity=replace(CALM.sensitivity, hot_temperature=1.0))
    assert one(tolerant, hotter, CALM).now.pool == POOL


def test_what_hangs_on_words_that_are_not_recorded_is_doubted() -> None:
    tolerant = recorded(ask_of(QosTier.STANDARD, STORY, temperature=0.9), make_table(*TWO, policy=CALM))
    found = one(tolerant, replace(CALM, sensitivity=replace(CALM.sensitivity, head_chars=1)), CALM)
    assert (found.changes, found.doubts) == (False, (Doubt.VERDICT,))


def test_whether_the_pool_that_it_would_go_to_was_pressed_is_doubted() -> None:
    tolerant = recorded(ask_of(QosTier.STANDARD, STORY, temperature=0.9), make_table(*TWO, policy=WAS))
    found = one(tolerant, replace(WAS, sensitivity=replace(WAS.sensitivity, tolerant_at=-1000)))
    assert (found.now.pool, found.doubts) == (POOL, (Doubt.PRESSURE,))


def test_a_session_keeps_to_where_its_first_request_would_have_gone() -> None:
    table = make_table(*TWO, policy=WAS)
    first = structs.replace(ask_of(QosTier.STANDARD, STORY, temperature=0.9), session="s")
    rows = [recorded(first, table), recorded(first, table, Pin(FormatTier.QUANTIZED), 1)]
    stricter = replace(WAS, sensitivity=replace(WAS.sensitivity, tolerant_at=-1000))
    assert [each.now.pool for each in replay(rows, WAS, stricter)] == [POOL, POOL]


def test_a_record_that_does_not_follow_from_the_policy_in_force_claims_nothing() -> None:
    other = for_tier(QosTier.BEST_EFFORT, critical_at=Limits(0.9))
    found = one(recorded(ask_of(QosTier.BEST_EFFORT), busy(0.7)), other, was=other)
    assert not found.changes
    row = recorded(ask_of(QosTier.BEST_EFFORT), busy(0.1))
    row.decision.sensitivity.contributions[0].points += 1
    assert one(row, WAS).standing is Standing.UNKNOWN
    assert one(decision_pb2.RecordedDecision(), WAS).standing is Standing.OUTSIDE


def test_who_waited_may_have_been_turned_away_as_it_came() -> None:
    dry = replace(WAS, qos=replace(WAS.qos, mode=Mode.DRY_RUN))
    ask = ask_of(QosTier.BEST_EFFORT, policy=dry)
    before, waited, after = (recorded(ask, busy(use, dry), None, n) for n, use in enumerate((0.7, 0.1, 0.7)))
    waited.decision.waited_seconds = 5.0
    assert [(each.now, each.standing) for each in replay([before, waited, after], dry, WAS)] == [
        (REJECTED, Standing.CERTAIN)
    ] * 3
    calmer = recorded(ask, busy(0.1, dry), None, 2)
    found = replay([before, waited, calmer], dry, WAS)[1]
    assert (found.now, found.doubts) == (REJECTED, (Doubt.ARRIVAL,))
    assert replay([waited], dry, dry)[0].standing is Standing.CERTAIN
