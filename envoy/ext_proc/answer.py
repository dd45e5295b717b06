"""What the filter answers about one request, as values without protobuf."""

from __future__ import annotations

import json

from msgspec import Struct

from controlplane.model import Endpoint, Refusal

JSON = (("content-type", "application/json"),)

# https://docs.anthropic.com/en/api/errors
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class Route(Struct, frozen=True, gc=False):
    """Send the request to `cluster`. `body` replaces the request's body when it is not None; of its headers those in
    `taken_off` are removed and then those in `headers` set."""

    cluster: str
    metadata: dict[str, str]
    body: bytes | None = None
    taken_off: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()


class Reply(Struct, frozen=True, gc=False):
    """Answer the client here. `details` goes to Envoy's response-code details: a short code without request text."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    metadata: dict[str, str]
    details: str


Answer = Route | Reply


def error_body(refusal: Refusal, endpoint: Endpoint) -> bytes:
    """The refusal as the clients of that API expect an error: Anthropic's of messages, OpenAI's of all else."""
    value: dict[str, object]
    if endpoint is Endpoint.MESSAGES:
        kind = _ANTHROPIC_TYPES.get(refusal.status, "invalid_request_error" if refusal.status < 500 else "api_error")
        value = {"type": "error", "error": {"type": kind, "message": refusal.message}}
    else:
        error = {"message": refusal.message, "type": refusal.type, "param": refusal.param, "code": refusal.code}
        value = {"error": error}
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
