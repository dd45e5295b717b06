"""What the settings about identity must not contradict, all of it found at once."""

from __future__ import annotations

import pytest

from controlplane.config.load import load, load_policy_beside
from controlplane.errors import ConfigurationError

DIGEST = "0" * 64


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("policy: {tenants: {known: [{name: a}]}}", "policy.tenants.known: nothing tells that a request is from a"),
        ("policy: {tenants: {required: true}}", "policy.tenants.required: all requests would be refused"),
        (
            f"policy: {{tenants: {{known: [{{name: a, keys: ['{DIGEST}']}}]}}}}",
            "policy.tenants.known: keys cannot be checked without the secret",
        ),
        ("gateway: {jwt: {jwks_file: a, jwks_url: 'https://b/'}}", "gateway.jwt.jwks_url: both"),
        ("gateway: {jwt: {issuer: a}}", "gateway.jwt.issuer: is for tokens, and none is verified"),
        ("gateway: {jwt: {audiences: [a]}}", "gateway.jwt.audiences: is for tokens, and none is verified"),
        ("gateway: {jwt: {jwks_file: a, jwks_ca_file: b}}", "gateway.jwt.jwks_ca_file: is for keys"),
        ("gateway: {jwt: {jwks_url: 'http://10.0.0.1/'}}", "gateway.jwt.jwks_url: whoever stands between"),
        (
            "{gateway: {jwt: {jwks_file: a}}, policy: {tenants: {header: t}}}",
            "policy.tenants.header: anybody may set it, so that tokens prove nothing",
        ),
        (
            "{gateway: {default_pool: p, jwt: {jwks_file: a}}, policy: {tenants: {required: true}}}",
            "gateway.default_pool: would serve anybody",
        ),
        (
            "{ext_proc: {workers: 2}, policy: {sessions: {headers: [], body_fields: []}, "
            "tenants: {tokens_per_minute: 5}}}",
            "policy.tenants: each of 2 filter workers would allow a tenant its whole rate",
        ),
    ],
)
def test_settings_by_which_nobody_is_known_for_sure_are_refused(text: str, fault: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(text, "h.yaml")
    [found] = caught.value.faults
    assert found.startswith(f"h.yaml:1: {fault}")


def test_a_key_in_the_place_of_its_digest_is_never_shown() -> None:
    for keys in ("[hr-secret-of-acme]", "hr-secret-of-acme", "{hr-secret-of-acme: 1}", "[[hr-secret-of-acme]]"):
        with pytest.raises(ConfigurationError) as caught:
            load(f"policy: {{tenants: {{known: [{{name: acme, keys: {keys}}}]}}}}", "h.yaml")
        assert "secret-of" not in str(caught.value)


def test_a_policy_that_is_set_while_the_fleet_runs_must_fit_the_settings_beside_it() -> None:
    settings = load("gateway: {jwt: {jwks_file: a}}", "h.yaml")
    load_policy_beside(settings, "tenants: {required: true, known: [{name: a}]}", "policy")
    with pytest.raises(ConfigurationError, match="anybody may set it, so that tokens prove nothing"):
        load_policy_beside(settings, "tenants: {header: t}", "policy")
    keys = f"tenants: {{known: [{{name: a, keys: ['{DIGEST}']}}]}}"
    with pytest.raises(ConfigurationError) as caught:
        load_policy_beside(settings, keys, "policy")
    assert caught.value.faults == (
        "policy: policy.tenants.known: keys cannot be checked without the secret that their digests were made with; "
        "name it in ext_proc.key_secret_file",
    )


@pytest.mark.parametrize(
    "text",
    [
        f"{{ext_proc: {{key_secret_file: s}}, policy: {{tenants: {{known: [{{name: a, keys: ['{DIGEST}']}}]}}}}}}",
        "{gateway: {jwt: {jwks_url: 'http://[::1]:80/'}}, policy: {tenants: {required: true, known: [{name: a}]}}}",
        "{gateway: {jwt: {jwks_url: 'https://a/', jwks_ca_file: b, issuer: c}}}",
        "policy: {tenants: {header: t, trusted_peers: [10.0.0.0/8, '::1'], required: true, known: [{name: a}]}}",
    ],
)
def test_each_way_to_be_known_is_enough(text: str) -> None:
    load(text, "h.yaml")
