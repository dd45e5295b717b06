"""Who a request is from, as far as that is proven, and which of its headers the engine must not see.

A name comes from the configured header of a trusted peer, else from a verified token, else from a known API key
(docs/decisions/0014-identity.md). What a tenant may do is the policy's; reading bodies is `ask`'s.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from msgspec import Struct

from controlplane.model import Refusal
from controlplane.policy.identity import tenant_of_credential, tenant_of_name
from controlplane.policy.table import RoutingTable

# The listener takes these off what clients send. Then Envoy sets the one to the claim of a token that it has verified,
# and the other to the address of whoever connected: for peers on its own machine x-forwarded-for has another one.
CLAIMED = "x-headrace-tenant"
PEER = "x-headrace-peer"

# How keys of ours begin, so that one that counts no more is told from a credential that is meant for the engine.
KEY_PREFIX = "hr-"

# The code of the error where a key would have to be checked and there is no secret for it.
KEYS_UNCHECKED = "keys_unchecked"

# A key is told from others by the beginning of its digest, from which no key can be found.
KEY_ID_CHARS = 12

# Where the usual clients show their credential.
_CREDENTIALS = ("authorization", "x-api-key", "api-key")
_BEARER = "bearer "


class Identity(Struct, frozen=True, gc=False):
    """`tenant` and `known_by` are as in Ask. `taken_off` are the request headers that the engine must not see."""

    tenant: str
    taken_off: tuple[str, ...] = ()
    known_by: str = ""


def key_digest(key: str, secret: bytes) -> str:
    """What stands for an API key in the configuration; without the secret no key can be tried against it."""
    return hmac.digest(secret, key.encode(errors="replace"), "sha256").hex()


def identify(headers: Mapping[str, str], table: RoutingTable, secret: bytes | None) -> Identity | Refusal:
    """Who a request is from, or the error to answer when that has to be proven and is not.

    `headers` by names in lower case. `secret` is that of the keys' digests; without it no key can be checked, and
    whoever shows none that could be is refused where a key is what it takes.
    """
    rules = table.policy.tenants
    taken_off: list[str] = []
    tenant = ""
    if rules.header is not None:
        header = rules.header.lower()
        if _comes_from_trusted_peer(headers, table):
            tenant = _named(headers, header)
        elif header in headers:
            taken_off.append(header)
    known_by = "header" if tenant else ""
    if not tenant and CLAIMED in headers and (tenant := _named(headers, CLAIMED)):
        known_by = "token"
    keys = _keys_shown(headers, table, secret) if table.keys else _NO_KEYS
    if keys.digest and not tenant:
        tenant, known_by = table.keys[keys.digest], f"key:{keys.digest[:KEY_ID_CHARS]}"
    if not rules.pass_keys_on:
        taken_off += keys.headers
    if not tenant and (rules.required or keys.of_ours):
        return _no_key_can_be_checked() if keys.shown and not secret else _unproven(keys.shown)
    if not tenant and rules.header is None:
        for name in _CREDENTIALS:
            if credential := headers.get(name):
                tenant = tenant_of_credential(credential)
                break
    return Identity(tenant, tuple(taken_off), known_by)


class _KeysShown(NamedTuple):
    """The credentials that a request shows where there are API keys: whether it shows any, the digest of the first
    one that counts, which `headers` show such ones, and whether one is of ours that counts no more or never did."""

    shown: bool = False
    digest: str = ""
    headers: tuple[str, ...] = ()
    of_ours: bool = False


_NO_KEYS = _KeysShown()


def _keys_shown(headers: Mapping[str, str], table: RoutingTable, secret: bytes | None) -> _KeysShown:
    found = _NO_KEYS
    for header, credential in _shown_credentials(headers):
        # Timing tells nothing here: whoever guesses keys does not know their digests.
        digest = key_digest(credential, secret) if secret else ""
        if digest in table.keys:
            found = _KeysShown(True, found.digest or digest, (*found.headers, header), found.of_ours)
        elif credential.startswith(KEY_PREFIX):
            found = _KeysShown(True, found.digest, (*found.headers, header), True)
        else:
            found = found._replace(shown=True)
    return found


def _comes_from_trusted_peer(headers: Mapping[str, str], table: RoutingTable) -> bool:
    if not table.trusted_peers:
        return True
    try:
        peer = ip_address(headers.get(PEER, ""))
    except ValueError:
        return False
    if isinstance(peer, IPv6Address) and peer.ipv4_mapped is not None:
        peer = peer.ipv4_mapped
    return any(peer in network for network in table.trusted_peers)


def _shown_credentials(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for header in _CREDENTIALS:
        credential = headers.get(header, "").strip()
        if header == "authorization":
            credential = credential[len(_BEARER) :].strip() if credential[: len(_BEARER)].lower() == _BEARER else ""
        if credential:
            yield header, credential


def _named(headers: Mapping[str, str], header: str) -> str:
    """The tenant of that name. Headers come byte by byte; names are UTF-8 where they can be."""
    name = headers.get(header, "")
    if not name.isascii():
        with suppress(UnicodeError):
            name = name.encode("latin-1").decode()
    return tenant_of_name(name) if name else ""


def _unproven(shown: bool) -> Refusal:
    """https://platform.openai.com/docs/guides/error-codes"""
    message = "Incorrect API key provided." if shown else "You did not provide an API key."
    message += " Send yours as `Authorization: Bearer KEY`."
    return Refusal(401, "invalid_request_error", "invalid_api_key", message)


def _no_key_can_be_checked() -> Refusal:
    message = "API keys cannot be checked here: the router has no key secret. This is a fault of its configuration."
    return Refusal(503, "server_error", KEYS_UNCHECKED, message)
