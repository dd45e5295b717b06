"""Pins in Redis or Valkey, which any number of filter processes share.

Keys are digests: neither a session's id nor who it belongs to can be read there. The server's own memory limit bounds
their number. Everything takes one round trip. Nothing stands in for a server that is away: see `fallback_pins`.
"""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import NoReturn

from controlplane.model import FormatTier, Pin
from controlplane.policy.settings import SessionRules
from ext_proc.redis_connection import RedisAccess, Refused
from ext_proc.redis_link import RedisLink

# 30 years; servers refuse what their clock in milliseconds cannot hold.
LONGEST_TTL_SECONDS = 1e9

# What is tried with; no session's key is so short.
_TRIAL = "trial"


class RedisPins:
    """`prefix` keeps fleets apart that share a server. `timeout` bounds each operation, in seconds."""

    def __init__(self, access: RedisAccess, prefix: str, *, timeout: float) -> None:
        self.link = RedisLink(access, timeout=timeout)
        self._prefix = prefix.encode()
        self._rules = SessionRules()

    def configure(self, rules: SessionRules) -> None:
        self._rules = rules

    async def connect(self) -> None:
        """Connects, and tries the commands that sessions need.

        Raises UnavailableError, and ConfigurationError when the server is too old for the commands.
        """
        await self.link.connect((self._first(_TRIAL, Pin(FormatTier.FULL)), self._look(_TRIAL)))

    async def hold(self) -> NoReturn:
        """Takes the server's answers for as long as the connection lasts; then raises UnavailableError."""
        await self.link.hold()

    async def get(self, session: str) -> Pin | None:
        return _pin(await self._ask(self._look(session)))

    async def set_first(self, session: str, pin: Pin) -> Pin:
        held = await self._ask(self._first(session, pin))
        winner = pin if held is None else _pin(held)
        if winner is None:
            await self.replace(session, pin)
        return winner or pin

    async def replace(self, session: str, pin: Pin) -> None:
        await self._ask((b"SET", self._key(session), _value(pin), b"PX", self._ttl))

    def _first(self, session: str, pin: Pin) -> tuple[bytes, ...]:
        return b"SET", self._key(session), _value(pin), b"NX", b"GET", b"PX", self._ttl

    def _look(self, session: str) -> tuple[bytes, ...]:
        return b"GETEX", self._key(session), b"PX", self._ttl

    async def _ask(self, command: tuple[bytes, ...]) -> bytes | None:
        answer = await self.link.ask(*command)
        if isinstance(answer, Refused):
            raise self.link.refused(answer)
        return answer

    @property
    def _ttl(self) -> bytes:
        """In milliseconds."""
        return b"%d" % max(1, round(min(self._rules.ttl_seconds, LONGEST_TTL_SECONDS) * 1000))

    def _key(self, session: str) -> bytes:
        return self._prefix + blake2b(session.encode(errors="surrogatepass"), digest_size=16).hexdigest().encode()


def _value(pin: Pin) -> bytes:
    """The tier, and where it matters since when, such as `full 1780000000.25`."""
    return f"{pin.tier} {pin.since!r}".encode() if pin.since else pin.tier.encode()


def _pin(value: bytes | None) -> Pin | None:
    """What another version may have written, and this one cannot read, is no pin."""
    if value is None:
        return None
    tier, _, since = value.partition(b" ")
    try:
        pin = Pin(FormatTier(tier.decode()), float(since or 0))
    except ValueError:
        return None
    return pin if math.isfinite(pin.since) else None
