"""One request and its answer, as a connection knows them: what may still come, and what is still to be written."""

from __future__ import annotations

from collections import deque
from typing import Protocol

import msgspec


class Inbound(Protocol):
    """Told of a request until its answer is complete. Neither raises nor waits; it may answer at once."""

    def take(self, data: bytes, ended: bool, /) -> None:
        """A piece of the body, which may be empty. `ended`: it is the last."""

    def reset(self, code: int, /) -> None:
        """The stream is gone; nothing can be sent on it."""


class Stream(msgspec.Struct, eq=False):
    """One is made for each request, of numbers and None, which costs little.

    id: its number.
    may_come: bytes that the peer may still send.
    to_come: bytes of the body that its content-length announces and that are missing; None without one.
    is_coming: the request has not ended.
    window: bytes that we may still send.
    inbound: who is told of the request; None before that is known, and once the answer is complete or the stream gone.
    is_open: more may be sent.
    waiting: data that found no window; `trailers` come after it.
    """

    id: int
    may_come: int
    to_come: int | None
    is_coming: bool
    window: int
    inbound: Inbound | None = None
    is_open: bool = True
    waiting: deque[memoryview] | None = None
    trailers: bytes | None = None

    @property
    def is_answered(self) -> bool:
        """Whether all has been written that ever will be."""
        return not self.is_open and not self.waiting
