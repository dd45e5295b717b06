"""How tenants and sessions are told apart: by names of bounded length, and by digests where a secret must not go on."""

from __future__ import annotations

from hashlib import blake2b, sha256

MAX_ID_CHARS = 200


def bounded_id(value: str) -> str:
    """The id itself, or a digest of a long one."""
    if len(value) <= MAX_ID_CHARS:
        return value
    return "sha256:" + sha256(value.encode(errors="replace")).hexdigest()


def tenant_of_name(name: str) -> str:
    """The tenant that the configured header names; no credential's digest looks like it."""
    return f"name:{bounded_id(name)}"


def tenant_of_credential(credential: str) -> str:
    """The tenant that shows a credential, which cannot be told from it."""
    return "key:" + blake2b(credential.encode(errors="replace"), digest_size=16).hexdigest()
