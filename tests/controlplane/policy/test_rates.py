"""The arithmetic of rates: what is admitted, what is left, what is told, and how charges are put right."""

from __future__ import annotations

import pytest

from controlplane.features import Category
from controlplane.model import Action, Budget, Decision, Endpoint, EstimateSource, Reason
from controlplane.policy.rates import (
    Admission,
    Charge,
    admit,
    charges_of,
    correction,
    rate_limited,
    remaining,
    spelled,
    told,
)
from controlplane.policy.settings import Policy, Tenant, TenantRules
from support.asks import make_pool, make_table

REQUEST = Charge("requests", 60, 1)
TOKENS = Charge("tokens", 6000, 1000)
DECISION = Decision(
    Action.PASS,
    Endpoint.CHAT,
    "llama",
    (Reason.NEUTRAL_PREFERS_FULL,),
    pool=make_pool(),
    cluster="c",
    budget=Budget(700, 300, Category.PROSE, 3.6, "client cap", 650, EstimateSource.PRIOR),
)


def test_a_charge_is_a_share_of_a_minute() -> None:
    assert REQUEST.seconds == 1.0
    assert TOKENS.seconds == 10.0


def test_a_whole_minutes_allowance_may_be_used_at_once_and_no_more() -> None:
    debts: tuple[float, ...] = (0.0,)
    for _ in range(6):
        admission = admit(debts, (TOKENS,))
        assert admission.admitted
        debts = admission.debts
    assert debts == (60.0,)
    assert admit(debts, (TOKENS,)) == Admission(False, debts)
    assert admit((49.9,), (TOKENS,)).admitted


def test_all_charges_are_made_or_none() -> None:
    assert admit((0.0, 55.0), (REQUEST, TOKENS)) == Admission(False, (0.0, 55.0))
    assert admit((59.5, 0.0), (REQUEST, TOKENS)) == Admission(False, (59.5, 0.0))
    assert admit((1.0, 20.0), (REQUEST, TOKENS)) == Admission(True, (2.0, 30.0))


def test_a_request_is_charged_with_what_it_is_expected_to_need() -> None:
    assert charges_of(DECISION, 60, 6000) == (REQUEST, TOKENS)
    assert charges_of(DECISION, None, 6000) == (TOKENS,)
    assert charges_of(DECISION, None, None) == ()


def test_what_is_not_estimated_is_charged_once_its_usage_is_known() -> None:
    unknown = Decision(Action.PASS, Endpoint.EMBEDDINGS, "llama", (Reason.NOT_CLASSIFIED,))
    assert charges_of(unknown, None, 6000) == (Charge("tokens", 6000, 0),)


@pytest.mark.parametrize(
    ("used", "failed", "more"), [(400, False, -600), (1500, False, 500), (0, True, -1000), (None, True, -1000)]
)
def test_a_charge_is_put_right_by_what_was_used(used: int | None, failed: bool, more: int) -> None:
    assert correction(1000, used, failed=failed) == more


def test_usage_that_nobody_counted_stays_as_charged() -> None:
    assert correction(1000, None, failed=False) == 0


def test_a_refusal_says_which_rate_and_when_to_try_again() -> None:
    refused = rate_limited(DECISION, (REQUEST, TOKENS), (30.0, 55.5))
    assert refused.action is Action.REJECT
    assert refused.reasons[0] is Reason.RATE_LIMITED
    assert (refused.pool, refused.cluster) == (None, "")
    assert refused.refusal is not None
    assert (refused.refusal.status, refused.refusal.type) == (429, "tokens")
    assert refused.refusal.code == "rate_limit_exceeded"
    assert refused.refusal.retry_after == pytest.approx(5.5)
    assert "6000 tokens per minute" in refused.refusal.message
    assert "450 are left" in refused.refusal.message
    assert "5.5s" in refused.refusal.message


def test_a_request_that_no_minute_can_hold_is_not_told_to_come_again() -> None:
    refused = rate_limited(DECISION, (Charge("tokens", 999, 1000),), (0.0,)).refusal
    assert refused is not None
    assert refused.retry_after is None
    assert "more than the 999 per minute" in refused.message


def test_what_is_told_is_as_openai_tells_it() -> None:
    assert told((REQUEST, TOKENS), (1.0, 61.5)) == {
        "limit-requests": "60",
        "remaining-requests": "59",
        "reset-requests": "1s",
        "limit-tokens": "6000",
        "remaining-tokens": "0",
        "reset-tokens": "1m1.5s",
    }


def test_what_is_left_does_not_fall_by_rounding() -> None:
    for limit in (1, 3, 7, 60, 1000, 99_999):
        for used in range(min(limit, 50)):
            assert remaining(Charge("requests", limit, 1), used * (60.0 / limit)) == limit - used


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0ms"), (0.0061, "7ms"), (1, "1s"), (59.9999, "1m0s"), (90, "1m30s"), (3600, "60m0s")]
)
def test_times_are_spelled_short_and_never_too_early(seconds: float, text: str) -> None:
    assert spelled(seconds) == text


def test_each_tenant_has_its_own_rates_and_all_others_theirs() -> None:
    rules = TenantRules("t", known=(Tenant("acme", tokens_per_minute=5),), requests_per_minute=7)
    table = make_table(policy=Policy(tenants=rules))
    assert table.rates_of("name:acme") == (None, 5)
    assert table.rates_of("name:other") == table.rates_of("") == (7, None)
