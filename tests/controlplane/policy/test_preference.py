"""Who a request is from, and which tier is preferred for it whatever it says."""

from __future__ import annotations

import pytest

from controlplane.model import Ask, FormatTier, Pin, Reason
from controlplane.policy.decide import decide
from controlplane.policy.faults import faults
from controlplane.policy.identity import MAX_ID_CHARS
from controlplane.policy.pins import pin_key
from controlplane.policy.settings import Policy, SelectionRules, Tenant, TenantRules
from support.asks import IDLE, OVERLOADED, make_ask, make_pool, make_table

FULL, QUANTIZED = FormatTier.FULL, FormatTier.QUANTIZED
NAMED = Policy(
    tenants=TenantRules(header="X-Tenant", known=(Tenant("batch", prefers=QUANTIZED), Tenant("audit", prefers=FULL)))
)
SENSITIVE = {"messages": [{"role": "user", "content": "Write Python code"}], "temperature": 0}
TOLERANT = {"messages": [{"role": "user", "content": "Write a short story"}], "temperature": 1}


def asked(body: dict[str, object], policy: Policy | None = None, **headers: str) -> Ask:
    spelt = {name.replace("_", "-"): value for name, value in headers.items()}
    return make_ask({"model": "llama", **body}, headers=spelt, policy=policy)


def both_tiers(policy: Policy | None = None, full: object = IDLE, **kinds: float):
    return make_table(make_pool("full", load=full), make_pool("quantized", load=IDLE, **kinds), policy=policy)


def test_a_client_may_prefer_either_tier_whatever_the_request_is() -> None:
    cheap = decide(asked(SENSITIVE, x_headrace_format="quantized"), both_tiers(), None)
    exact = decide(asked(TOLERANT, x_headrace_format=" Full "), both_tiers(), None)
    assert (cheap.pool.tier, exact.pool.tier) == (QUANTIZED, FULL)
    assert cheap.reasons == exact.reasons == (Reason.CLIENT_PREFERENCE,)


@pytest.mark.parametrize("said", ["fp16", "fullest", "full,quantized", "int4"])
def test_what_is_no_tier_does_not_count_and_leaves_its_trace(said: str) -> None:
    decision = decide(asked(SENSITIVE, x_headrace_format=said), both_tiers(), None)
    assert decision.reasons == (Reason.SENSITIVE_NEEDS_FULL, Reason.PREFERENCE_UNKNOWN)


@pytest.mark.parametrize("said", ["", "  "])
def test_an_empty_wish_is_none(said: str) -> None:
    decision = decide(asked(SENSITIVE, x_headrace_format=said), both_tiers(), None)
    assert decision.reasons == (Reason.SENSITIVE_NEEDS_FULL,)


def test_the_policy_says_which_preferences_of_clients_count() -> None:
    policy = Policy(tenants=TenantRules(client_may_prefer=(QUANTIZED,)))
    decision = decide(asked(TOLERANT, x_headrace_format="full"), both_tiers(policy), None)
    reasons = (Reason.TOLERANT_PREFERS_QUANTIZED, Reason.PREFERENCE_NOT_ALLOWED)
    assert (decision.pool.tier, decision.reasons) == (QUANTIZED, reasons)


def test_preferring_full_is_as_strong_as_being_sensitive() -> None:
    """Sensitive requests never spill under load; where no full pool is ready the policy decides."""
    ask = asked(TOLERANT, x_headrace_format="full")
    assert decide(ask, both_tiers(full=OVERLOADED), None).pool.tier is FULL
    only_quantized = make_table(make_pool("quantized"))
    assert decide(ask, only_quantized, None).reasons == (Reason.PREFERENCE_NOT_MET, Reason.TIER_UNAVAILABLE)
    strict = Policy(selection=SelectionRules(sensitive_may_use_quantized=False))
    assert decide(ask, make_table(make_pool("quantized"), policy=strict), None).pool is None


def test_preferring_quantized_counts_also_where_nothing_is_gained() -> None:
    assert decide(asked(TOLERANT, x_headrace_format="quantized"), both_tiers(gain=1.0), None).pool.tier is QUANTIZED


def test_a_tenants_preference_counts_unless_the_client_has_one_of_its_own() -> None:
    table = both_tiers(NAMED)
    batch = decide(asked(SENSITIVE, NAMED, x_tenant="batch"), table, None)
    assert (batch.pool.tier, batch.reasons) == (QUANTIZED, (Reason.TENANT_PREFERENCE,))
    assert decide(asked(TOLERANT, NAMED, x_tenant="audit"), table, None).pool.tier is FULL
    own = decide(asked(SENSITIVE, NAMED, x_tenant="batch", x_headrace_format="full"), table, None)
    assert (own.pool.tier, own.reasons) == (FULL, (Reason.CLIENT_PREFERENCE,))
    assert decide(asked(SENSITIVE, NAMED, x_tenant="other"), table, None).reasons == (Reason.SENSITIVE_NEEDS_FULL,)


def test_a_sessions_pin_is_stronger_than_any_preference() -> None:
    decision = decide(asked(TOLERANT, x_headrace_format="quantized"), both_tiers(), Pin(FULL))
    assert (decision.pool.tier, decision.reasons) == (FULL, (Reason.SESSION_PINNED, Reason.PREFERENCE_PINNED))
    alike = decide(asked(TOLERANT, x_headrace_format="full"), both_tiers(), Pin(FULL))
    assert alike.reasons == (Reason.SESSION_PINNED,)


def test_a_wish_that_spills_under_load_does_not_read_as_granted() -> None:
    table = make_table(make_pool("full", load=IDLE), make_pool("quantized", load=OVERLOADED))
    decision = decide(asked(TOLERANT, x_headrace_format="quantized"), table, None)
    assert (decision.pool.tier, decision.reasons) == (FULL, (Reason.PREFERENCE_NOT_MET, Reason.SPILLED_UNDER_LOAD))


def test_pins_are_per_tenant() -> None:
    """Two clients that choose the same session id must not move each other's session."""
    table = both_tiers()
    key = {
        pin_key(asked(SENSITIVE, x_session_id="chat-1", **credential), table)
        for credential in ({}, {"authorization": "Bearer a"}, {"authorization": "Bearer b"}, {"x_api_key": "a"})
    }
    assert len(key) == 4
    by_name = [
        pin_key(asked(SENSITIVE, NAMED, x_session_id="chat-1", x_tenant=tenant, authorization=key), both_tiers(NAMED))
        for tenant, key in (("batch", "Bearer a"), ("batch", "Bearer rotated"), ("audit", "Bearer a"))
    ]
    assert by_name[0] == by_name[1] != by_name[2]


def test_no_credential_goes_on_from_the_parser() -> None:
    ask = asked(SENSITIVE, authorization="Bearer very-secret", x_session_id="s")
    assert "very-secret" not in repr(ask)
    assert ask.tenant.startswith("key:")
    assert asked(SENSITIVE, NAMED, x_tenant="key:" + "0" * 32).tenant == "name:key:" + "0" * 32


def test_a_long_tenant_name_is_bounded_and_still_the_same_tenant() -> None:
    name = "x" * 10_000
    policy = Policy(tenants=TenantRules("x-tenant", known=(Tenant(name, prefers=QUANTIZED),)))
    assert decide(asked(SENSITIVE, policy, x_tenant=name), both_tiers(policy), None).pool.tier is QUANTIZED
    assert len(asked(SENSITIVE, NAMED, x_tenant="x" * 10_000).tenant) < MAX_ID_CHARS


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (TenantRules("t", known=(Tenant("a", prefers=FULL), Tenant("a", prefers=QUANTIZED))), "same tenant"),
        (TenantRules("X-Headrace-Tenant"), "begin with x-headrace-"),
    ],
)
def test_tenant_rules_that_cannot_work_are_refused(rules: TenantRules, says: str) -> None:
    assert [fault for fault in faults(Policy(tenants=rules)) if says in fault]
