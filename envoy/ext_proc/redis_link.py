"""A connection to a Redis or Valkey that may be lost and made anew, for all that a filter worker keeps there.

Knows nothing of what is kept. Whoever holds the link looks after it; all others may ask meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NoReturn

from controlplane.errors import ConfigurationError, UnavailableError
from ext_proc.redis_connection import RedisAccess, RedisConnection, Refused, Reply, greeting, open_connection

CONNECT_SECONDS = 1.0

_FAILURES = (OSError, EOFError, ValueError, asyncio.LimitOverrunError)


class RedisLink:
    """`timeout` bounds each command, in seconds."""

    def __init__(self, access: RedisAccess, *, timeout: float) -> None:
        self._access = access
        self._timeout = timeout
        self._connection: RedisConnection | None = None

    async def connect(self, trial: Iterable[tuple[bytes, ...]]) -> None:
        """Connects, and tries some commands.

        Raises UnavailableError, and ConfigurationError when the server is too old for the commands.
        """
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

    async def ask(self, *command: bytes) -> Reply:
        """The answer to a command. Raises UnavailableError, at once while there is no connection.

        A failure ends the connection: it will be made anew, and the server tried, before it is relied on again.
        """
        connection = self._connection
        if connection is None:
            raise UnavailableError("not connected")
        late = TimeoutError(f"no answer within {self._timeout:g} s")
        timer = asyncio.get_running_loop().call_later(self._timeout, connection.lose, late)
        try:
            return await connection.ask(*command)
        except OSError as error:
            raise self._unavailable(late if connection.lost is late else error) from error
        finally:
            timer.cancel()

    def tell(self, *command: bytes) -> bool:
        """Sends a command whose answer is for nobody; whether there is a connection for it."""
        return self._connection is not None and self._connection.tell(*command)

    def refused(self, refused: Refused) -> UnavailableError:
        """What to raise of a command that the server ought to carry out; the connection is ended."""
        error = ConnectionError(f"refuses: {refused.message}")
        if self._connection is not None:
            self._connection.lose(error)
        return self._unavailable(error)

    def _unavailable(self, error: Exception) -> UnavailableError:
        what = "the server hung up" if isinstance(error, EOFError) else str(error) or type(error).__name__
        return UnavailableError(f"{self._access.url}: {what}")

    def _refusal(self, refused: Refused) -> ConfigurationError | UnavailableError:
        """`SET` with `NX` and `GET` is of Redis 7.0 (https://redis.io/docs/latest/commands/set/#history)."""
        if "syntax error" in refused.message or "unknown command" in refused.message:
            fault = f"needs Redis 7.0 or newer, or Valkey; {self._access.url} says: {refused.message}"
            return ConfigurationError([f"ext_proc.session_store.url: {fault}"])
        return self._unavailable(ConnectionError(f"refuses: {refused.message}"))
