"""Who a request is from: keys, claims of tokens, headers of trusted peers, and what engines must not see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controlplane.messages import decision_message
from controlplane.model import Action, Pressure, QosTier, Reason, Refusal, TierPressure
from controlplane.policy.access import Identity, identify, key_digest
from controlplane.policy.ask import parse
from controlplane.policy.decide import decide
from controlplane.policy.faults import faults
from controlplane.policy.pins import pin_key
from controlplane.policy.qos import Measure, Mode, QosRules, TierRules
from controlplane.policy.settings import Policy, Tenant, TenantRules
from controlplane.policy.table import RoutingTable
from support.asks import make_pool, make_request, make_table

SECRET = b"0" * 32
KEY, OTHER_KEY, UNKNOWN = "hr-acme-1", "foreign-key-of-acme", "hr-of-nobody"
ACME = Tenant("acme", keys=(key_digest(KEY, SECRET), key_digest(OTHER_KEY, SECRET)))


def table(*, known: tuple[Tenant, ...] = (ACME,), **rules: Any) -> RoutingTable:
    return make_table(make_pool("full"), policy=Policy(tenants=TenantRules(known=known, **rules)))


def who(table: RoutingTable, secret: bytes | None = SECRET, **headers: str) -> Identity | Refusal:
    return identify({name.replace("_", "-"): value for name, value in headers.items()}, table, secret)


def known(table: RoutingTable, secret: bytes | None = SECRET, **headers: str) -> Identity:
    found = who(table, secret, **headers)
    assert isinstance(found, Identity), found
    return found


def refused(table: RoutingTable, secret: bytes | None = SECRET, **headers: str) -> Refusal:
    found = who(table, secret, **headers)
    assert isinstance(found, Refusal), found
    return found


# --- keys ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [KEY, OTHER_KEY])
@pytest.mark.parametrize(
    ("header", "form"),
    [("authorization", "Bearer {}"), ("authorization", "bearer   {} "), ("x-api-key", "{}"), ("api-key", "{}")],
)
def test_each_key_of_a_tenant_counts_wherever_it_is_shown_and_engines_do_not_see_it(
    header: str, form: str, key: str
) -> None:
    known_by = f"key:{key_digest(key, SECRET)[:12]}"
    assert known(table(required=True), **{header: form.format(key)}) == Identity("name:acme", (header,), known_by)


def test_a_key_shown_twice_is_taken_off_twice_and_a_credential_beside_it_stays() -> None:
    shown = known(table(), authorization=f"Bearer {KEY}", x_api_key=KEY, api_key="engine's")
    assert (shown.tenant, shown.taken_off) == ("name:acme", ("authorization", "x-api-key"))
    assert known(table(pass_keys_on=True), x_api_key=KEY).taken_off == ()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": f"Basic {KEY}"},
        {"authorization": KEY},
        {"authorization": "Bearer "},
        {"authorization": f"Bearer {KEY}x"},
        {"x_api_key": UNKNOWN},
        {"x_api_key": ACME.keys[0]},  # who reads the configuration has no key
        {"x_api_key": "schl\xfcssel"},
    ],
)
def test_without_a_key_that_counts_one_is_refused_where_it_is_required(headers: dict[str, str]) -> None:
    refusal = refused(table(required=True), **headers)
    assert (refusal.status, refusal.type, refusal.code) == (401, "invalid_request_error", "invalid_api_key")
    assert not any(len(value) > 8 and value in refusal.message for value in headers.values())


def test_where_no_key_is_required_strangers_are_told_apart_and_keep_their_own_credentials() -> None:
    stranger = known(table(), authorization="Bearer engine-key")
    assert stranger.tenant.startswith("key:")
    assert stranger.taken_off == ()
    assert known(table()).tenant == ""


def test_a_key_of_ours_that_counts_no_more_is_refused_also_where_none_is_required() -> None:
    assert refused(table(), x_api_key=UNKNOWN).status == 401


def test_a_digest_made_with_another_secret_is_of_no_key() -> None:
    assert refused(table(required=True), b"1" * 32, x_api_key=KEY).status == 401


def test_without_the_secret_nobody_gets_by_with_a_key() -> None:
    assert refused(table(required=True), None, x_api_key=KEY).code == "keys_unchecked"
    assert refused(table(required=True), None).code == "invalid_api_key"


def test_a_decision_says_which_key_it_was_and_not_the_key() -> None:
    """By the beginning of the digest that is listed; of two keys the first one that counts."""
    rules = table()
    for key, other in ((KEY, OTHER_KEY), (OTHER_KEY, KEY)):
        found = known(rules, authorization=f"Bearer {key}", x_api_key=other)
        ask = parse(make_request({"model": "llama", "messages": []}), rules.policy, found.tenant, found.known_by)
        decision = decide(ask, rules, None)  # type: ignore[arg-type]
        assert decision.known_by == f"key:{key_digest(key, SECRET)[:12]}"
        assert key not in str(decision_message(decision))
    assert known(rules, authorization="Bearer engine-key").known_by == ""


def test_an_identity_shows_no_key() -> None:
    assert KEY not in repr(who(table(), x_api_key=KEY))
    assert UNKNOWN not in repr(who(table(), x_api_key=UNKNOWN))


# --- claims and headers --------------------------------------------------------------------------------------------


def test_a_verified_claim_names_the_tenant_also_one_that_is_not_listed() -> None:
    assert known(table(required=True), x_headrace_tenant="acme").tenant == "name:acme"
    assert known(table(required=True), x_headrace_tenant="z\xc3\xbcrich").tenant == "name:zürich"
    assert known(table(required=True), x_headrace_tenant="z\xfcrich").tenant == "name:zürich"


@pytest.mark.parametrize(
    ("peers", "peer", "trusted"),
    [
        ((), "", True),
        (("10.0.0.0/8",), "10.1.2.3", True),
        (("10.0.0.0/8",), "::ffff:10.1.2.3", True),
        (("fd00::/8", "10.0.0.1"), "fd00::1", True),
        (("fd00::/8", "10.0.0.1"), "10.0.0.1", True),
        (("10.0.0.0/8",), "9.9.9.9", False),
        (("10.0.0.0/8",), "10.1.2.3,9.9.9.9", False),
        (("10.0.0.0/8",), "", False),
        (("10.0.0.0/8",), "fd00::1", False),
    ],
)
def test_a_header_counts_from_a_trusted_peer(peers: tuple[str, ...], peer: str, trusted: bool) -> None:
    rules = table(known=(), header="X-Tenant", trusted_peers=peers)
    found = known(rules, x_tenant="acme", x_headrace_peer=peer, x_forwarded_for="10.0.0.1")
    assert found == (Identity("name:acme", known_by="header") if trusted else Identity("", ("x-tenant",)))


def test_a_trusted_header_is_stronger_than_a_claim_and_a_claim_than_a_key() -> None:
    rules = table(header="x-tenant", trusted_peers=("10.0.0.1",))
    shown = {"x_headrace_tenant": "claimed", "x_api_key": KEY, "x_headrace_peer": "10.0.0.1"}
    assert known(rules, x_tenant="proxied", **shown) == Identity("name:proxied", ("x-api-key",), "header")
    assert known(rules, **shown) == Identity("name:claimed", ("x-api-key",), "token")


# --- models --------------------------------------------------------------------------------------------------------

TWO = (make_pool("full"), make_pool("full", model="qwen", aliases=("qwen-alias",)))
LIMITED = Tenant("acme", keys=ACME.keys, models=("qwen",))


def decided(body: dict[str, Any], tenant: str = "name:acme", path: str = "/v1/chat/completions") -> Any:
    rules = make_table(*TWO, policy=Policy(tenants=TenantRules(known=(LIMITED,))))
    ask = parse(make_request(body, path), rules.policy, tenant)
    return decide(ask, rules, None)  # type: ignore[arg-type]


def test_a_tenant_uses_its_own_models_by_all_their_names() -> None:
    assert decided({"model": "qwen"}).pool.model == "qwen"
    assert decided({"model": "qwen-alias"}).pool.model == "qwen"
    assert decided({}).pool.model == "qwen"  # the only one there is for it
    assert decided({"model": "llama"}, "name:other").pool.model == "llama"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings", "/tokenize"])
def test_a_model_of_others_is_told_apart_from_one_that_does_not_exist_only_in_the_ledger(path: str) -> None:
    forbidden, missing = decided({"model": "llama"}, path=path), decided({"model": "xxxxx"}, path=path)
    assert forbidden.action is missing.action is Action.REJECT
    assert forbidden.reasons == (Reason.MODEL_NOT_ALLOWED,)
    assert missing.reasons == (Reason.UNKNOWN_MODEL,)
    assert forbidden.refusal.status == 404
    assert forbidden.refusal.code == "model_not_found"
    assert forbidden.refusal.message == missing.refusal.message.replace("xxxxx", "llama")
    assert "qwen" in forbidden.refusal.message


@pytest.mark.parametrize(("models", "action"), [((), Action.FALLBACK), (("llama",), Action.REJECT)])
def test_under_pressure_a_request_falls_back_only_to_a_model_of_its_tenant(
    models: tuple[str, ...], action: Action
) -> None:
    critical = (TierPressure(QosTier.STANDARD, Pressure.CRITICAL),)
    pools = (replace(make_pool("full"), pressures=critical), make_pool("full", model="qwen"))
    standard = TierRules(when_critical=Measure.FALLBACK, fallback_model="qwen")
    rules = Policy(
        tenants=TenantRules(known=(replace(LIMITED, models=models),)), qos=QosRules(Mode.ENABLED, standard=standard)
    )
    ask = parse(make_request({"model": "llama", "messages": []}), rules, "name:acme")
    assert decide(ask, make_table(*pools, policy=rules), None).action is action  # type: ignore[arg-type]


def test_a_model_of_others_pins_no_session() -> None:
    rules = make_table(*TWO, policy=Policy(tenants=TenantRules(known=(LIMITED,))))
    request = make_request({"model": "llama"}, headers={"x-session-id": "s"})
    assert pin_key(parse(request, rules.policy, "name:acme"), rules) is None  # type: ignore[arg-type]


def test_the_list_of_models_is_the_tenants() -> None:
    rules = make_table(*TWO, policy=Policy(tenants=TenantRules(known=(LIMITED,))))
    assert rules.models_of("name:acme") == ("qwen",)
    assert rules.models_of("name:other") == ("llama", "qwen")


# --- rules that cannot work ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (TenantRules(trusted_peers=("10.0.0.1",)), "tenants.trusted_peers: are those who may set tenants.header"),
        (TenantRules("t", trusted_peers=("10.0.0.1/8",)), "tenants.trusted_peers: 10.0.0.1/8 has host bits set"),
        (TenantRules("t", trusted_peers=("proxy",)), "tenants.trusted_peers: 'proxy' does not appear"),
        (TenantRules("t", required=True), "tenants.header: anybody may set it"),
        (TenantRules("t", known=(ACME,)), "tenants.header: anybody may set it"),
        (TenantRules(known=(ACME, Tenant("b", keys=ACME.keys))), "in two places"),
        (TenantRules(known=(Tenant("a", keys=(KEY,)),)), "a key of a is no digest"),
    ],
)
def test_tenant_rules_that_cannot_work_are_refused(rules: TenantRules, says: str) -> None:
    [fault] = faults(Policy(tenants=rules))
    assert says in fault
    assert KEY not in fault
