"""What the filter answers about one request, as values without protobuf."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.model import Refusal

JSON = (("content-type", "application/json"),)


@dataclass(frozen=True, slots=True)
class Route:
    """Send the request to `pool`. `body` replaces the request's body when it is not None."""

    pool: str
    metadata: Mapping[str, str]
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the client here. `details` goes to Envoy's response-code details: a short code without request text."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    metadata: Mapping[str, str]
    details: str


Answer = Route | Reply


def error_body(refusal: Refusal) -> bytes:
    """The refusal as OpenAI's clients expect an error."""
    error = {"message": refusal.message, "type": refusal.type, "param": refusal.param, "code": refusal.code}
    return json.dumps({"error": error}, ensure_ascii=False).encode("utf-8", "replace")
