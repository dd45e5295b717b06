"""Which settings differ between two policies though no record tells what they would change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from controlplane.policy.settings import Policy, Tenant

# Paths of settings, or of what they are in. A `*` is any one name.
_BLIND = (
    "default_model",
    "sensitivity.words",
    "sensitivity.words_version",
    "sensitivity.positions",
    "sensitivity.head_chars",
    "sensitivity.tail_chars",
    "sensitivity.narrow_top_p",
    "sensitivity.narrow_min_p",
    "estimation",
    "formats",
    "context_classes",
    "selection.load",
    "waiting",
    "qos.stability",
    "qos.aged_turn",
    "qos.*.longest_wait_seconds",
    "qos.*.most_waiting",
    "sessions.headers",
    "sessions.body_fields",
    "sessions.ttl_seconds",
    "sessions.max_sessions",
    "sessions.quiescence",
    "tenants.header",
    "tenants.trusted_peers",
    "tenants.required",
    "tenants.requests_per_minute",
    "tenants.tokens_per_minute",
    "tenants.client_may_prefer",
)
_OF_A_TENANT = ("keys", "requests_per_minute", "tokens_per_minute")


def unseen(was: Policy, now: Policy) -> tuple[str, ...]:
    """The settings, by their paths in the policy's YAML, that differ and that replaying leaves out."""
    found = [path for path in _differences("", was, now) if any(_is_in(path, blind) for blind in _BLIND)]
    before = {tenant.name: tenant for tenant in was.tenants.known}
    for tenant in now.tenants.known:
        other = before.get(tenant.name, Tenant(tenant.name))
        found += [f"tenants.known.{n}" for n in _OF_A_TENANT if getattr(tenant, n) != getattr(other, n)]
    return tuple(dict.fromkeys(found))


def _differences(path: str, was: Any, now: Any) -> Iterator[str]:
    if was == now:
        return
    if not is_dataclass(was):
        yield path
        return
    for field in fields(was):
        inner = f"{path}.{field.name}" if path else field.name
        yield from _differences(inner, getattr(was, field.name), getattr(now, field.name))


def _is_in(path: str, blind: str) -> bool:
    names, wanted = path.split("."), blind.split(".")
    return len(names) >= len(wanted) and all(w in {"*", n} for n, w in zip(names, wanted, strict=False))
