"""What the bounds of single settings cannot say of a policy: contradictions between its fields."""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_network

from controlplane.policy.formats import is_listed
from controlplane.policy.qos import qos_faults
from controlplane.policy.settings import (
    REQUEST_ID_HEADERS,
    SESSION_FIELD_ROOTS,
    FormatRules,
    GainRules,
    Policy,
    TenantRules,
)

# As `headrace keys new` prints them.
DIGEST = re.compile(r"[0-9a-f]{64}")

# Names of pools hold those of classes; they stand in headers, and `/` parts them.
CLASS_NAME = re.compile(r"[\w.-]+")

# https://www.rfc-editor.org/rfc/rfc9110#section-5.6.2
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

# What is remembered at most of time that goes on evenly.
MOST_HALF_LIVES = 1 / math.log(2)


def faults(policy: Policy) -> tuple[str, ...]:
    """Every contradiction in a policy, each as `field: what is wrong and what to do`; empty when it is sound."""
    found: list[str] = []
    sensitivity = policy.sensitivity
    if sensitivity.tolerant_at >= sensitivity.sensitive_at:
        found.append("sensitivity.tolerant_at: must be below sensitivity.sensitive_at")
    if sensitivity.near_greedy_temperature > sensitivity.hot_temperature:
        found.append("sensitivity.near_greedy_temperature: must not be above sensitivity.hot_temperature")

    both = sorted({name.lower() for name in policy.formats.full} & {name.lower() for name in policy.formats.quantized})
    if both:
        found.append(f"formats: {', '.join(both)} is in both tiers; leave it in one")

    classes = policy.context_classes
    if len({entry.name for entry in classes}) < len(classes):
        found.append("context_classes: two classes have the same name; names must differ")
    found.extend(
        f"context_classes: the name {entry.name!r} is a part of pools' names; use letters, digits, - _ and ."
        for entry in classes
        if not CLASS_NAME.fullmatch(entry.name)
    )
    bounds = [entry.max_context for entry in classes]
    if bounds[-1] is not None:
        found.append("context_classes: the last class must be unbounded; leave out its max_context")
    lower = [bound for bound in bounds[:-1] if bound is not None]
    if len(lower) < len(bounds) - 1:
        found.append("context_classes: only the last class may be unbounded; give the others a max_context")
    elif lower != sorted(set(lower)):
        found.append("context_classes: max_context must grow from class to class")

    found.extend(_gain_faults(policy.gain))

    load = policy.selection.load
    if load.room_waiting_per_node > load.overloaded_waiting_per_node:
        found.append("selection.load.room_waiting_per_node: must not be above overloaded_waiting_per_node")
    if load.room_kv_cache_use > load.overloaded_kv_cache_use:
        found.append("selection.load.room_kv_cache_use: must not be above overloaded_kv_cache_use")

    if policy.composition.clear_below > policy.composition.needs_full_above:
        found.append("composition.clear_below: must not be above needs_full_above")
    if policy.sla.stale_seconds > policy.sla.window_seconds:
        found.append("sla.stale_seconds: must not be above sla.window_seconds, which nothing older is in")

    found.extend(qos_faults(policy.qos))
    found.extend(_tenant_faults(policy.tenants))
    found.extend(
        f"sessions.headers: {name} names a request, not a session; leave it out"
        for name in policy.sessions.headers
        if name.lower() in REQUEST_ID_HEADERS
    )
    found.extend(
        f"sessions.body_fields: {path} is not looked at; begin with one of {', '.join(sorted(SESSION_FIELD_ROOTS))}"
        for path in policy.sessions.body_fields
        if path.split(".")[0] not in SESSION_FIELD_ROOTS
    )
    return tuple(found)


def _tenant_faults(rules: TenantRules) -> Iterator[str]:
    names = [tenant.name for tenant in rules.known]
    if len(set(names)) < len(names):
        yield "tenants.known: two entries are of the same tenant; leave one"
    if rules.header is not None and not HEADER_NAME.fullmatch(rules.header):
        yield f"tenants.header: {rules.header!r} is no name of a header"
    if rules.header is not None and rules.header.lower().startswith("x-headrace-"):
        yield "tenants.header: headers that begin with x-headrace- are taken off every request; choose another name"
    if rules.header is None and rules.trusted_peers:
        yield "tenants.trusted_peers: are those who may set tenants.header, and there is none; name it or remove these"
    for peer in rules.trusted_peers:
        try:
            ip_network(peer)
        except ValueError as error:
            yield f"tenants.trusted_peers: {error}; write a network such as 10.1.0.0/16, or one address"
    keys = [(digest, tenant.name) for tenant in rules.known for digest in tenant.keys]
    for digest, name in keys:
        if not DIGEST.fullmatch(digest):  # it may be the key itself, so it is not shown
            yield f"tenants.known: a key of {name} is no digest; make both with `headrace keys new {name}`"
    if any(count > 1 for count in Counter(digest for digest, _ in keys).values()):
        yield "tenants.known: the digest of a key stands in two places; each tenant needs keys of its own"
    if rules.header is not None and not rules.trusted_peers and (keys or rules.required):
        yield (
            "tenants.header: anybody may set it, so that keys and tenants.required prove nothing; say in "
            "tenants.trusted_peers who may, or remove the header"
        )


def _gain_faults(rules: GainRules) -> Iterator[str]:
    classes = [entry.hardware_class.lower() for entry in rules.priors]
    if len(set(classes)) < len(classes):
        yield "gain.priors: two entries are of the same hardware class; leave one"
    if rules.least > rules.most:
        yield "gain.least: must not be above gain.most"
    if rules.enough_seconds >= MOST_HALF_LIVES * rules.half_life_seconds:
        yield "gain.enough_seconds: is forgotten before it is reached; must be below 1.44 times gain.half_life_seconds"


def doubts(policy: Policy) -> list[str]:
    """What may be meant as it stands, but looks like a slip: formats of one's own whose names are nearly known ones."""
    usual = FormatRules()
    known = (*usual.full, *usual.quantized)
    found = []
    for tier, names in (("full", policy.formats.full), ("quantized", policy.formats.quantized)):
        for name in names:
            near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.7)
            if near and not is_listed(name, usual):
                found.append(f"formats.{tier}: {name} is no usual format; did you mean {near[0]}?")
    return found
