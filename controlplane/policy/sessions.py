"""Reads out of a request which session it is of: from its headers, else from its body."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from controlplane.policy.body import Body
from controlplane.policy.identity import bounded_id
from controlplane.policy.settings import REQUEST_ID_HEADERS, SessionRules


class _Places(NamedTuple):
    """Where sessions are named, in order: headers as HTTP/2 sends them, and paths in the body."""

    headers: tuple[str, ...]
    any_header: frozenset[str]
    fields: tuple[tuple[str, tuple[str, ...]], ...]


def session_of(headers: Mapping[str, str], body: Body | None, rules: SessionRules) -> str | None:
    """The session's id: from the first configured header that has one, else the first body field; long ones hashed."""
    places = _places(rules.headers, rules.body_fields)
    if not places.any_header.isdisjoint(headers):
        for name in places.headers:
            value = headers.get(name)
            if value:
                return bounded_id(value)
    if body is not None:
        for root, rest in places.fields:
            found: object = getattr(body, root, None)
            if found is not None:
                for part in rest:
                    found = found.get(part) if isinstance(found, dict) else None
                if isinstance(found, str) and found:
                    return bounded_id(found)
    return None


@lru_cache(maxsize=8)
def _places(headers: tuple[str, ...], body_fields: tuple[str, ...]) -> _Places:
    names = tuple(name for name in map(str.lower, headers) if name not in REQUEST_ID_HEADERS)
    paths = [path.split(".") for path in body_fields]
    return _Places(names, frozenset(names), tuple((root, tuple(rest)) for root, *rest in paths))
