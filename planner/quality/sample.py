"""Requests to evaluate with, as they are read from a file of JSON lines, and which of them are taken.

A line is the body of a chat or completions request. Three more keys may stand in it, and are not sent: `category`,
`path` and `headers`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from controlplane.errors import ConfigurationError

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


@dataclass(frozen=True, slots=True)
class Sample:
    """A request as somebody would send it. `category` is empty where nobody has named one; `number` counts from 1."""

    number: int
    body: Mapping[str, Any]
    path: str = CHAT
    category: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class _LineError(Exception):
    pass


def read_samples(text: str, source: str) -> tuple[Sample, ...]:
    """The requests of a file named `source`. Raises ConfigurationError with the fault of every line."""
    samples: list[Sample] = []
    faults: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            samples.append(_sample(number, line))
        except _LineError as error:
            faults.append(f"{source}:{number}: {error}")
    if not samples and not faults:
        faults.append(f"{source}: holds no request; write one JSON object a line, the body of a chat completion")
    if faults:
        raise ConfigurationError(faults)
    return tuple(samples)


def choose(samples: Sequence[Sample], limit: int | None, seed: int) -> tuple[Sample, ...]:
    """At most `limit` of them, in an order that is random but the same for one seed: what is left when an evaluation is
    ended early is then still a fair sample."""
    return tuple(Random(seed).sample(samples, k=min(limit or len(samples), len(samples))))


def _sample(number: int, line: str) -> Sample:
    try:
        body = json.loads(line)
    except ValueError as error:
        raise _LineError(f"is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise _LineError("must be a JSON object, the body of a request")
    category, path, headers = body.pop("category", ""), body.pop("path", None), body.pop("headers", {})
    if not isinstance(category, str):
        raise _LineError("category: must be a text")
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        raise _LineError("headers: must be an object whose values are texts")
    if path is None:
        path = COMPLETIONS if "prompt" in body and "messages" not in body else CHAT
    needed = {CHAT: "messages", COMPLETIONS: "prompt"}.get(path)
    if needed is None:
        raise _LineError(f"path: must be {CHAT} or {COMPLETIONS}, whose answers can be compared")
    if needed not in body:
        raise _LineError(f"has no {needed}, which a request to {path} needs")
    return Sample(number, body, path, category.strip(), {name.lower(): value for name, value in headers.items()})
