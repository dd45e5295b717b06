"""The conversation with Envoy about one HTTP request, without I/O: parts of a request in, the whole request out.

Envoy sends the headers and then the body, in one piece or several, without waiting for answers
(docs/decisions/0005-ext-proc-mode.md). The exchange says when the request is whole, or at once that it is too large;
what comes after that is ignored, since some versions of Envoy mark the end twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import msgspec

from controlplane.model import HttpRequest
from ext_proc.names import CONTENT_LENGTH, METHOD, PATH


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The body exceeds `limit` bytes. `head` is the request without its body."""

    head: HttpRequest
    limit: int


_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class Exchange(msgspec.Struct, eq=False):
    """Collects one request. Each method returns it once it is whole, or TooLarge, and None before and after.

    `chunks` are those of the body that have come, `size` bytes together.
    """

    max_body_bytes: int
    headers: Mapping[str, str] = _NO_HEADERS
    chunks: list[bytes] = msgspec.field(default_factory=list)
    size: int = 0
    is_done: bool = False

    def take_headers(self, headers: Mapping[str, str], *, end_of_stream: bool) -> HttpRequest | TooLarge | None:
        """The request's headers, names in lower case."""
        if self.is_done:
            return None
        self.headers = headers
        announced = headers.get(CONTENT_LENGTH)
        if announced is not None and self._is_too_large(announced):
            return self._too_large()
        return self._finish() if end_of_stream else None

    def take_body(self, chunk: bytes, *, end_of_stream: bool) -> HttpRequest | TooLarge | None:
        """The next piece of the body."""
        if self.is_done:
            return None
        self.size += len(chunk)
        if self.size > self.max_body_bytes:
            return self._too_large()
        self.chunks.append(chunk)
        return self._finish() if end_of_stream else None

    def _is_too_large(self, announced: str) -> bool:
        return (
            announced.isascii() and announced.isdigit() and len(announced) < 19 and int(announced) > self.max_body_bytes
        )

    def _finish(self) -> HttpRequest:
        self.is_done = True
        body = b"".join(self.chunks)
        self.chunks.clear()
        return self._request(body)

    def _too_large(self) -> TooLarge:
        self.is_done = True
        self.chunks.clear()
        return TooLarge(self._request(b""), self.max_body_bytes)

    def _request(self, body: bytes) -> HttpRequest:
        return HttpRequest(self.headers.get(METHOD, ""), self.headers.get(PATH, ""), self.headers, body)
