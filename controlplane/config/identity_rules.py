"""Rules between the settings by which it is known, and proven, who a request is from."""

from __future__ import annotations

from collections.abc import Iterator

from controlplane.config.addresses import is_loopback, url_address
from controlplane.config.rules import Broken, Rule, path
from controlplane.config.settings import Settings


def tenants_have_names(settings: Settings) -> Iterator[Broken]:
    tenants = settings.policy.tenants
    if tenants.header is not None or settings.gateway.jwt.is_used:
        return
    nameless = [tenant.name for tenant in tenants.known if not tenant.keys]
    if nameless:
        yield Broken(
            (path("policy.tenants.known"), path("policy.tenants.header")),
            f"nothing tells that a request is from {nameless[0]}; give it keys by `headrace keys new`, name a trusted "
            "proxy's header in policy.tenants.header, or have tokens verified by gateway.jwt",
        )
    if tenants.required and not tenants.known:
        yield Broken(
            (path("policy.tenants.required"), path("policy.tenants.known")),
            "all requests would be refused, since nothing names a tenant; give tenants keys by `headrace keys new`, "
            "name a trusted proxy's header in policy.tenants.header, or have tokens verified by gateway.jwt",
        )


def keys_have_a_secret(settings: Settings) -> Iterator[Broken]:
    if settings.ext_proc.key_secret_file is None and any(t.keys for t in settings.policy.tenants.known):
        yield Broken(
            (path("policy.tenants.known"), path("ext_proc.key_secret_file")),
            "keys cannot be checked without the secret that their digests were made with; name it in "
            "ext_proc.key_secret_file",
        )


def tokens_prove_something(settings: Settings) -> Iterator[Broken]:
    jwt, tenants = settings.gateway.jwt, settings.policy.tenants
    if jwt.jwks_file is not None and jwt.jwks_url is not None:
        yield Broken(
            (path("gateway.jwt.jwks_url"), path("gateway.jwt.jwks_file")),
            "both it and gateway.jwt.jwks_file say where the keys are; remove one of them",
        )
    if not jwt.is_used and (jwt.issuer is not None or jwt.audiences):
        name = "issuer" if jwt.issuer is not None else "audiences"
        yield Broken(
            (path(f"gateway.jwt.{name}"), path("gateway.jwt.jwks_url")),
            "is for tokens, and none is verified; name the issuer's keys in gateway.jwt.jwks_url or jwks_file",
        )
    if jwt.jwks_ca_file is not None and not (jwt.jwks_url or "").startswith("https://"):
        yield Broken(
            (path("gateway.jwt.jwks_ca_file"), path("gateway.jwt.jwks_url")),
            "is for keys that Envoy fetches by TLS; write https:// in gateway.jwt.jwks_url or remove this",
        )
    if jwt.jwks_url is not None and jwt.jwks_url.startswith("http://") and not is_loopback(url_address(jwt.jwks_url)):
        yield Broken(
            (path("gateway.jwt.jwks_url"),),
            f"whoever stands between Envoy and {jwt.jwks_url} could put in keys of their own; use https://",
        )
    if jwt.is_used and tenants.header is not None and not tenants.trusted_peers:
        yield Broken(
            (path("policy.tenants.header"), path("policy.tenants.trusted_peers"), path("gateway.jwt.jwks_url")),
            "anybody may set it, so that tokens prove nothing; say in policy.tenants.trusted_peers who may, or remove "
            "the header",
        )


def nobody_gets_by_when_filters_fail(settings: Settings) -> Iterator[Broken]:
    if settings.gateway.default_pool is not None and settings.policy.tenants.required:
        yield Broken(
            (path("gateway.default_pool"), path("policy.tenants.required")),
            "would serve anybody while no filter answers, and policy.tenants.required says that nobody unknown is "
            "served; remove one of them",
        )


def workers_count_together(settings: Settings) -> Iterator[Broken]:
    ext_proc, tenants = settings.ext_proc, settings.policy.tenants
    workers = max(ext_proc.workers or 1, len(ext_proc.advertise))
    if tenants.have_rates and workers > 1 and ext_proc.session_store.url is None:
        yield Broken(
            (path("policy.tenants"), path("ext_proc.session_store.url")),
            f"each of {workers} filter workers would allow a tenant its whole rate; name a Redis or Valkey in "
            "ext_proc.session_store.url, run one worker, or set no rates",
        )


IDENTITY_RULES: tuple[Rule[Settings], ...] = (
    tenants_have_names,
    keys_have_a_secret,
    tokens_prove_something,
    nobody_gets_by_when_filters_fail,
    workers_count_together,
)
