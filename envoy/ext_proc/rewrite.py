"""Change the few top-level members of a JSON body that the gateway may change, and leave every other byte as it was.

Works on the text, since decoding and encoding again would change numbers, unknown fields and duplicate keys. The body
is known to be a valid JSON object, as the request was parsed before; values are passed by Python's scanner in C.
All of it raises TooManyMembersError.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from functools import lru_cache

_BLANKS = re.compile(r"[ \t\n\r]*")
# Gives a value and where it ends. Numbers are passed, not used: as integers they could be too long for Python.
_scan = json.JSONDecoder(parse_int=float, strict=False).raw_decode


# Each costs some microseconds in Python; no API has so many.
MOST_MEMBERS = 10_000


class TooManyMembersError(Exception):
    """The body has more top-level members than can be looked at while others wait."""


def replace_model(body: bytes, model: str) -> bytes:
    """`body` with `model` as the value of its top-level member `model`; unchanged where there is none."""
    encoded = json.dumps(model)
    return _with_values(body, ("model",), lambda *_: encoded)


def cap_output(body: bytes, limit: int, names: tuple[str, ...], others: tuple[str, ...] = ()) -> bytes:
    """`body` with no output cap above `limit` tokens: `names` are the members that may hold one, and the first of them
    is set where none does. Of duplicates the last counts, as it does for engines. Caps under `others`, which only some
    engines know, are lowered too, and stand for none that all know. A cap is never raised."""
    capped: dict[str, bool] = {}

    def lower(name: str, given: object) -> str | None:
        tokens = _tokens(given)  # None means nothing to an engine, or is for it to refuse
        capped[name] = tokens is not None
        is_endless = name in others and isinstance(given, float) and given < 0  # llama.cpp takes it for no cap
        return str(limit) if is_endless or (tokens is not None and tokens > limit) else None

    changed = _with_values(body, (*names, *others), lower)
    if any(capped.get(name) for name in names):
        return changed
    if names[0] not in capped:
        return _with_first(changed, names[0], str(limit))
    return _with_values(changed, names[:1], lambda _, given: str(limit) if _tokens(given) is None else None)


def set_member(body: bytes, name: str, encoded: str) -> bytes:
    """`body` with `encoded` as the value of its top-level member `name`: of each of them where there are duplicates, of
    a new one, the first, where there is none."""
    found = False

    def value(*_: object) -> str:
        nonlocal found
        found = True
        return encoded

    changed = _with_values(body, (name,), value)
    return changed if found else _with_first(body, name, encoded)


def _tokens(given: object) -> float | None:
    """Engines also take numbers that are written as strings; null, and what is below 1, stands for no cap."""
    if given is None or isinstance(given, bool) or not isinstance(given, (float, int, str)):
        return None
    try:
        tokens = float(given)
    except ValueError:
        return None
    return tokens if math.isfinite(tokens) and tokens > 0 else None


def _with_first(body: bytes, name: str, encoded: str) -> bytes:
    start = body.find(b"{") + 1
    comma = b"" if body[start:].lstrip(b" \t\n\r")[:1] == b"}" else b","
    return body[:start] + json.dumps(name).encode() + b":" + encoded.encode() + comma + body[start:]


def _with_values(body: bytes, names: tuple[str, ...], value: Callable[[str, object], str | None]) -> bytes:
    """`body` with the values that `value` gives, by name and value, for those of the top-level members `names`; None
    leaves one as it is.

    It is unchanged too when it cannot be read after all, as when it is nested deeper than Python follows: the engine
    is then left to refuse it.
    """
    text = body.decode(errors="surrogateescape")
    out: list[str] = []
    at = 0
    try:
        for name, start, end, given in _members(text, names):
            encoded = value(name, given)
            if encoded is not None:
                out += (text[at:start], encoded)
                at = end
    except (ValueError, RecursionError):
        return body
    return "".join((*out, text[at:])).encode(errors="surrogateescape") if out else body


def _members(text: str, names: tuple[str, ...]) -> Iterator[tuple[str, int, int, object]]:
    """The names of these members, where their values are, and what they are. Duplicate keys give several."""
    plain_members = _plain_members(names)
    at = _after_blanks(text, 0)
    looked_at = 0
    while text[at : at + 1] in {"{", ","}:
        looked_at += 1
        if looked_at > MOST_MEMBERS:
            raise TooManyMembersError
        plain = plain_members.match(text, at + 1)
        at = _after_blanks(text, plain.end() if plain else at + 1)
        if text[at : at + 1] != '"':
            return
        key, at = _scan(text, at)
        start = _after_blanks(text, _after_blanks(text, at) + 1)
        value, end = _scan(text, start)
        if key in names:
            yield key, start, end, value
        at = _after_blanks(text, end)


@lru_cache(maxsize=16)
def _plain_members(names: tuple[str, ...]) -> re.Pattern[str]:
    """Runs of other members with short values, so that no number of them costs a step in Python each."""
    ours = "|".join(map(re.escape, names))
    return re.compile(rf'(?:\s*+"(?!(?:{ours})")[^"\\]*+"\s*+:\s*+[^\s"{{}}\[\],]++\s*+,)*+')


def _after_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return match.end() if match else at
