"""The conversation with Envoy about one HTTP request, without I/O: parts of a request in, the whole request out.

Envoy sends the headers and then the body, in one piece or several, without waiting for answers
(docs/decisions/0005-ext-proc-mode.md). The exchange says when the request is whole, or at once that it is too large;
what comes after that is ignored, since some versions of Envoy mark the end twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.model import HttpRequest
from ext_proc.names import CONTENT_LENGTH, METHOD, PATH


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The body exceeds `limit` bytes. `head` is the request without its body."""

    head: HttpRequest
    limit: int


class Exchange:
    """Collects one request. Each method returns it once it is whole, or TooLarge, and None before and after."""

    __slots__ = ("_chunks", "_done", "_headers", "_limit", "_size")

    def __init__(self, max_body_bytes: int) -> None:
        self._limit = max_body_bytes
        self._headers: Mapping[str, str] = {}
        self._chunks: list[bytes] = []
        self._size = 0
        self._done = False

    def take_headers(self, headers: Mapping[str, str], *, end_of_stream: bool) -> HttpRequest | TooLarge | None:
        """The request's headers, names in lower case."""
        if self._done:
            return None
        self._headers = headers
        announced = headers.get(CONTENT_LENGTH, "")
        if announced.isascii() and announced.isdigit() and len(announced) < 19 and int(announced) > self._limit:
            return self._too_large()
        return self._finish() if end_of_stream else None

    def take_body(self, chunk: bytes, *, end_of_stream: bool) -> HttpRequest | TooLarge | None:
        """The next piece of the body."""
        if self._done:
            return None
        self._size += len(chunk)
        if self._size > self._limit:
            return self._too_large()
        self._chunks.append(chunk)
        return self._finish() if end_of_stream else None

    def _finish(self) -> HttpRequest:
        self._done = True
        body = b"".join(self._chunks)
        self._chunks.clear()
        return self._request(body)

    def _too_large(self) -> TooLarge:
        self._done = True
        self._chunks.clear()
        return TooLarge(self._request(b""), self._limit)

    def _request(self, body: bytes) -> HttpRequest:
        return HttpRequest(self._headers.get(METHOD, ""), self._headers.get(PATH, ""), self._headers, body)
