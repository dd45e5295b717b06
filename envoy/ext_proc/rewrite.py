"""Replace the model that a JSON body names and leave every other byte as it was.

Works on the text, since decoding and encoding again would change numbers, unknown fields and duplicate keys. The body
is known to be a valid JSON object, as the request was parsed before; values are passed by Python's scanner in C.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

_NAME = "model"
_BLANKS = re.compile(r"[ \t\n\r]*")
# Runs of other members with short values, so that no number of them costs a step in Python each.
_PLAIN_MEMBERS = re.compile(rf'(?:\s*+"(?!{_NAME}")[^"\\]*+"\s*+:\s*+[^\s"{{}}\[\],]++\s*+,)*+')
# Gives a value and where it ends. Numbers are passed, not used: as integers they could be too long for Python.
_scan = json.JSONDecoder(parse_int=float, strict=False).raw_decode


def replace_model(body: bytes, model: str) -> bytes:
    """`body` with `model` as the value of its top-level member `model`; unchanged where there is none.

    It is unchanged too when it cannot be read after all, as when it is nested deeper than Python follows: the engine
    is then left to refuse it.
    """
    text = body.decode(errors="surrogateescape")
    encoded = json.dumps(model)
    out: list[str] = []
    at = 0
    try:
        for start, end in _value_spans(text):
            out += (text[at:start], encoded)
            at = end
    except (ValueError, RecursionError):
        return body
    return "".join((*out, text[at:])).encode(errors="surrogateescape") if out else body


def _value_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where the model is named. Duplicate keys give several."""
    at = _after_blanks(text, 0)
    while text[at : at + 1] in {"{", ","}:
        plain = _PLAIN_MEMBERS.match(text, at + 1)
        at = _after_blanks(text, plain.end() if plain else at + 1)
        if text[at : at + 1] != '"':
            return
        key, at = _scan(text, at)
        start = _after_blanks(text, _after_blanks(text, at) + 1)
        _, end = _scan(text, start)
        if key == _NAME:
            yield start, end
        at = _after_blanks(text, end)


def _after_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return match.end() if match else at
