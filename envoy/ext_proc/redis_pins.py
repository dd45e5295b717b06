"""Pins in Redis or Valkey, which any number of filter processes share.

Keys are digests: neither a session's id nor who it belongs to can be read there. The server's own memory limit bounds
their number. Everything takes one round trip, and every failure is a RedisError or a TimeoutError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeVar

from redis.asyncio import Redis
from redis.asyncio.connection import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from controlplane.model import FormatTier
from controlplane.policy.settings import SessionRules

T = TypeVar("T")

MOST_CONNECTIONS = 64


@dataclass(frozen=True, slots=True)
class RedisAccess:
    """`url` as of redis-py: redis://, rediss:// or unix://. `timeout` bounds each operation, in seconds."""

    url: str
    username: str | None = None
    password: str | None = None
    ca_file: str | None = None
    timeout: float = 0.1

    def __repr__(self) -> str:
        """Without the password."""
        return f"RedisAccess({self.url!r})"


class RedisPins:
    """`prefix` keeps fleets apart that share a server."""

    def __init__(self, access: RedisAccess, prefix: str) -> None:
        tls = {"ssl_ca_certs": access.ca_file} if access.ca_file is not None else {}
        pool = BlockingConnectionPool.from_url(
            access.url,
            username=access.username,
            password=access.password,
            max_connections=MOST_CONNECTIONS,
            timeout=access.timeout,
            socket_connect_timeout=access.timeout,
            retry=Retry(NoBackoff(), 0),
            **tls,
        )
        self._redis = Redis.from_pool(pool)
        self._prefix = prefix
        self._timeout = access.timeout
        self._rules = SessionRules()

    def configure(self, rules: SessionRules) -> None:
        self._rules = rules

    async def get(self, session: str) -> FormatTier | None:
        return _tier(await self._bounded(self._redis.getex(self._key(session), px=self._ttl)))

    async def set_first(self, session: str, tier: FormatTier) -> FormatTier:
        former = await self._bounded(self._redis.set(self._key(session), tier.value, nx=True, get=True, px=self._ttl))
        return _tier(former) or tier

    async def replace(self, session: str, tier: FormatTier) -> None:
        await self._bounded(self._redis.set(self._key(session), tier.value, px=self._ttl))

    async def close(self) -> None:
        await self._redis.aclose()

    @property
    def _ttl(self) -> int:
        """In milliseconds."""
        return max(1, round(self._rules.ttl_seconds * 1000))

    def _key(self, session: str) -> str:
        return self._prefix + blake2b(session.encode(errors="replace"), digest_size=16).hexdigest()

    async def _bounded(self, operation: Awaitable[T]) -> T:
        async with asyncio.timeout(self._timeout):
            return await operation


def _tier(value: object) -> FormatTier | None:
    """What another version may have written, and this one cannot read, is no pin."""
    try:
        return FormatTier(value.decode()) if isinstance(value, bytes) else None
    except ValueError:
        return None
