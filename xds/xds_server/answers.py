"""The filter that reads usage, and why an answer ended, out of whole JSON answers into dynamic metadata.

It is `answers.lua`. Envoy's own json_to_metadata would hold an answer back until it is whole, and reads all of it: 100
to 200 instructions for each byte (docs/decisions/0021-what-envoy-spends.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import resources
from typing import Any

from headrace_protos.envoy.extensions.filters.http.lua.v3 import lua_pb2
from xds_server.gateway import Gateway, UsageRule

# As Envoy's own filters do.
_MOST_TEXT = 8192


def answer_reader(gateway: Gateway) -> lua_pb2.Lua:
    constants = {
        "NAMESPACE": gateway.usage_namespace,
        "MOST_BYTES": gateway.buffer_bytes,
        "MOST_TEXT": _MOST_TEXT,
        "IS_TEXT": {rule.key: True for rule in gateway.usage if rule.text},
        "WANTED": _wanted(gateway.usage),
    }
    head = [f"local {name} = {_in_lua(value)}" for name, value in constants.items()]
    script = (resources.files(__package__) / "answers.lua").read_text()
    return lua_pb2.Lua(default_source_code={"inline_string": "\n".join((*head, script))})


def _wanted(rules: Iterable[UsageRule]) -> dict[str, Any]:
    """By the names, with their quotes, of a document's members: the key of their value, or of an object's by its names.
    ValueError for paths that lead deeper."""
    wanted: dict[str, Any] = {}
    for rule in rules:
        match rule.path:
            case (name,):
                wanted[f'"{name}"'] = rule.key
            case (outer, name):
                wanted.setdefault(f'"{outer}"', {})[name] = rule.key
            case _:
                raise ValueError(f"whole answers are not read as deep as {rule.path}")
    return wanted


def _in_lua(value: object) -> str:
    """Texts of ASCII's letters and numbers are written in Lua as in JSON."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'[{_in_lua(key)}] = {_in_lua(each)}' for key, each in value.items())}}}"
    return json.dumps(value)
