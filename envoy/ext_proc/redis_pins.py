"""Pins in Redis or Valkey, which any number of filter processes share.

Keys are digests: neither a session's id nor who it belongs to can be read there. The server's own memory limit bounds
their number. Everything takes one round trip. Nothing stands in for a server that is away: see `fallback_pins`.
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from typing import NoReturn

from controlplane.errors import ConfigurationError, UnavailableError
from controlplane.model import FormatTier, Pin
from controlplane.policy.settings import SessionRules
from ext_proc.redis_connection import RedisAccess, RedisConnection, Refused, greeting, open_connection

CONNECT_SECONDS = 1.0
# 30 years; servers refuse what their clock in milliseconds cannot hold.
LONGEST_TTL_SECONDS = 1e9

# What is tried with; no session's key is so short.
_TRIAL = "trial"

_FAILURES = (OSError, EOFError, ValueError, asyncio.LimitOverrunError)


class RedisPins:
    """`prefix` keeps fleets apart that share a server. `timeout` bounds each operation, in seconds."""

    def __init__(self, access: RedisAccess, prefix: str, *, timeout: float) -> None:
        self._access = access
        self._prefix = prefix.encode()
        self._timeout = timeout
        self._rules = SessionRules()
        self._connection: RedisConnection | None = None

    def configure(self, rules: SessionRules) -> None:
        self._rules = rules

    async def connect(self) -> None:
        """Connects, and tries the commands that sessions need.

        Raises UnavailableError, and ConfigurationError when the server is too old for the commands.
        """
        trial = (self._first(_TRIAL, Pin(FormatTier.FULL)), self._look(_TRIAL))
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                connection = await open_connection(self._access)
                refused = await connection.begin((*greeting(self._access), *trial))
        except TimeoutError as error:
            raise self._unavailable(TimeoutError(f"no connection within {CONNECT_SECONDS:g} s")) from error
        except _FAILURES as error:
            raise self._unavailable(error) from error
        if refused is not None:
            connection.lose(ConnectionError("refused"))
            raise self._refusal(refused)
        self._connection = connection

    async def hold(self) -> NoReturn:
        """Takes the server's answers for as long as the connection lasts; then raises UnavailableError."""
        if self._connection is None:
            raise UnavailableError("not connected")
        try:
            await self._connection.take_answers()
        except _FAILURES as error:
            raise self._unavailable(error) from error
        finally:
            self._connection = None

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
        """A failure ends the connection: it will be made anew, and the server tried, before it is relied on again."""
        connection = self._connection
        if connection is None:
            raise UnavailableError("not connected")
        try:
            async with asyncio.timeout(self._timeout):
                answer = await connection.ask(*command)
        except TimeoutError as error:
            late = TimeoutError(f"no answer within {self._timeout:g} s")
            connection.lose(late)
            raise self._unavailable(late) from error
        except OSError as error:
            raise self._unavailable(error) from error
        if isinstance(answer, Refused):
            refused = ConnectionError(f"refuses: {answer.message}")
            connection.lose(refused)
            raise self._unavailable(refused)
        return answer

    def _unavailable(self, error: Exception) -> UnavailableError:
        what = "the server hung up" if isinstance(error, EOFError) else str(error) or type(error).__name__
        return UnavailableError(f"{self._access.url}: {what}")

    def _refusal(self, refused: Refused) -> ConfigurationError | UnavailableError:
        """`SET` with `NX` and `GET` is of Redis 7.0 (https://redis.io/docs/latest/commands/set/#history)."""
        if "syntax error" in refused.message or "unknown command" in refused.message:
            fault = f"needs Redis 7.0 or newer, or Valkey; {self._access.url} says: {refused.message}"
            return ConfigurationError([f"ext_proc.session_store.url: {fault}"])
        return self._unavailable(ConnectionError(f"refuses: {refused.message}"))

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
        return Pin(FormatTier(tier.decode()), float(since or 0))
    except ValueError:
        return None
