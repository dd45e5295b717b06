"""Replace the value of a top-level member of a JSON object and leave every other byte as it was.

Works on the text, since decoding and encoding again would change numbers, unknown fields and duplicate keys. Linear in
the body. The body is known to be a valid JSON object, as the request was parsed before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

# A string, or a bracket outside of strings. The unrolled loop keeps the match linear.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)
_COLON = re.compile(rb"\s*:\s*")
_SCALAR = re.compile(rb"[^\s,}\]]+")


def replace_string(body: bytes, name: str, value: str) -> bytes:
    """`body` with the string `value` at each top-level member called `name`; unchanged where there is none."""
    encoded = json.dumps(value).encode()
    out: list[bytes] = []
    at = 0
    for start, end in _value_spans(body, name):
        out += (body[at:start], encoded)
        at = end
    return b"".join((*out, body[at:])) if out else body


def _value_spans(body: bytes, name: str) -> Iterator[tuple[int, int]]:
    """Where the values of the top-level members called `name` stand. Duplicate keys give several."""
    depth = 0
    at = 0
    while token := _TOKEN.search(body, at):
        at = token.end()
        text = token.group()
        if text in (b"{", b"["):
            depth += 1
        elif text in (b"}", b"]"):
            depth -= 1
        elif depth == 1 and (colon := _COLON.match(body, at)):
            at = _end_of_value(body, colon.end())
            if json.loads(text) == name:
                yield colon.end(), at


def _end_of_value(body: bytes, start: int) -> int:
    if body[start : start + 1] not in (b'"', b"{", b"["):
        scalar = _SCALAR.match(body, start)
        return scalar.end() if scalar else start
    depth = 0
    at = start
    while token := _TOKEN.search(body, at):
        at = token.end()
        if token.group() in (b"{", b"["):
            depth += 1
        elif token.group() in (b"}", b"]"):
            depth -= 1
        if depth == 0:
            break
    return at
