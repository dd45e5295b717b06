"""One connection to a Redis or Valkey, on which any number of commands are under way at once.

Speaks what the session store needs of RESP2 (https://redis.io/docs/latest/develop/reference/protocol-spec/). Answers
come in the order of their commands, so a caller may leave: its answer is taken and dropped, and is never another's.
Knows nothing of sessions, and does not connect again.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

DEFAULT_PORT = 6379
# A server that is silent for so long is asked whether it is there, and given up after as long again: an idle connection
# may have been dropped on its way without a word.
SILENCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RedisAccess:
    """`url` is redis://, rediss:// or unix://; a rediss:// server is vouched for by `ca_file`, else by the system's."""

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """What the server says of a command that it does not carry out."""

    message: str


# None says that there is no such key.
Reply: TypeAlias = bytes | Refused | None


class RedisConnection:
    """First `begin`, then `take_answers` for as long as it lasts, and meanwhile `ask`, any number of callers at once.

    When the connection is lost they raise OSError or EOFError, and ValueError when the server speaks something else.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._asked: deque[asyncio.Future[Reply]] = deque()
        self.lost: Exception | None = None  # why, once it is

    async def ask(self, *command: bytes) -> Reply:
        """The answer to a command."""
        return await self._send(command)

    def tell(self, *command: bytes) -> bool:
        """Sends a command whose answer is for nobody; whether it could be sent."""
        try:
            self._send(command).cancel()
        except ConnectionError:
            return False
        return True

    async def begin(self, commands: Iterable[tuple[bytes, ...]]) -> Refused | None:
        """Sends commands one by one, to the first one that is refused. A connection that fails meanwhile is ended."""
        try:
            for command in commands:
                self._write(command)
                answer = await self._answer(await self._reader.readuntil(b"\r\n"))
                if isinstance(answer, Refused):
                    return answer
        except BaseException:
            self.lose(ConnectionError("did not begin"))
            raise
        return None

    async def take_answers(self) -> NoReturn:
        """Gives answers to those who asked until the connection is lost; raises why, as `lose` was told if it was."""
        silent = False
        try:
            while True:
                try:
                    async with asyncio.timeout(SILENCE_SECONDS):
                        head = await self._reader.readuntil(b"\r\n")
                except TimeoutError:
                    if silent:
                        raise TimeoutError("the server is silent") from None
                    silent = True
                    self.tell(b"PING")
                    continue
                silent = False
                self._deliver(await self._answer(head))
        except Exception as error:
            if self.lost is not None:
                raise self.lost from error
            raise
        finally:
            self.lose(ConnectionError("closed"))

    def lose(self, reason: Exception) -> None:
        """Ends the connection at once."""
        if self.lost is not None:
            return
        self.lost = reason
        self._writer.transport.abort()
        for asked in self._asked:
            if not asked.done():
                asked.set_exception(ConnectionError("the connection was lost"))
        self._asked.clear()

    def _send(self, command: tuple[bytes, ...]) -> asyncio.Future[Reply]:
        self._write(command)
        asked: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        return asked

    def _write(self, command: tuple[bytes, ...]) -> None:
        """Raises ConnectionError. A transport is closed some moments before whoever reads hears of it: to write to it
        then is nothing to asyncio's, and a RuntimeError to uvloop's."""
        if self.lost is not None or self._writer.is_closing():
            raise ConnectionError("the connection is lost") from self.lost
        self._writer.write(_packed(command))

    def _deliver(self, answer: Reply) -> None:
        if not self._asked:
            raise ValueError("an answer came that nobody had asked for")
        asked = self._asked.popleft()
        if not asked.done():
            asked.set_result(answer)

    async def _answer(self, head: bytes) -> Reply:
        kind, rest = head[:1], head[1:-2]
        match kind:
            case b"+" | b":":
                return rest
            case b"-":
                return Refused(rest.decode(errors="replace"))
            case b"$" if (size := int(rest)) >= 0:
                return (await self._reader.readexactly(size + 2))[:-2]
            case b"$":
                return None
            case _:
                raise ValueError("what answers there is no Redis")


async def open_connection(access: RedisAccess) -> RedisConnection:
    """A connection that wants `greeting` first. Raises OSError."""
    parts = urlsplit(access.url)
    if parts.scheme == "unix":
        return RedisConnection(*await asyncio.open_unix_connection(unquote(parts.path)))
    tls = ssl.create_default_context(cafile=access.ca_file) if parts.scheme == "rediss" else None
    host, port = parts.hostname or "localhost", parts.port or DEFAULT_PORT
    return RedisConnection(*await asyncio.open_connection(host, port, ssl=tls))


def greeting(access: RedisAccess) -> Iterator[tuple[bytes, ...]]:
    """The commands before all others: who we are, and which database it is about."""
    if access.password is not None:
        user = () if access.username is None else (access.username.encode(),)
        yield (b"AUTH", *user, access.password.encode())
    parts = urlsplit(access.url)
    database = parse_qs(parts.query).get("db", ["0"])[0] if parts.scheme == "unix" else parts.path.strip("/")
    if database not in {"", "0"}:
        yield (b"SELECT", database.encode())


def _packed(command: tuple[bytes, ...]) -> bytes:
    return b"".join((b"*%d\r\n" % len(command), *(b"$%d\r\n%b\r\n" % (len(part), part) for part in command)))
