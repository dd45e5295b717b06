"""A small HTTP/1.1 server beside gRPC, for probes, Prometheus and people: one short question per connection.

h11 reads and writes the protocol. This bounds what clients can take of the process: connections, the size and the time
of a question, the time for taking the answer. It takes GET and HEAD, reads no bodies, and speaks plain text only.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

import h11

from controlplane.config.addresses import joined_address, split_address

_log = logging.getLogger(__name__)

MOST_CONNECTIONS = 64
# In the kernel; beyond them a client is told nothing and tries again seconds later.
WAITING_CONNECTIONS = 1024
MOST_HEAD_BYTES = 16 * 1024
MOST_PARAMETERS = 64
QUESTION_SECONDS = 5.0
ANSWER_SECONDS = 30.0
# For which a client that has its answer may leave the connection open.
LINGER_SECONDS = 1.0
# Before the next try when the system has no more to give, such as file descriptors.
EXHAUSTED_SECONDS = 0.1
_READ_BYTES = 8 * 1024

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Question:
    """A request: its path, what its query says in order, and its headers, names in lower case."""

    path: str
    parameters: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Question], Awaitable[Answer]]


@asynccontextmanager
async def serving_http(address: str, routes: Mapping[str, Handler]) -> AsyncIterator[str]:
    """Serves `routes`, by path, at `address`; yields the address with the port that was given for port 0.

    Raises OSError when the address cannot be had.
    """
    with closing(_listen(address)) as listener:
        serving = _Serving(listener, routes)
        async with asyncio.TaskGroup() as tasks:
            accepting = tasks.create_task(serving.accept(tasks))
            try:
                yield joined_address(split_address(address)[0], listener.getsockname()[1])
            finally:
                accepting.cancel()
                serving.stop()


def _listen(address: str) -> socket.socket:
    host, port = split_address(address)
    try:
        family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        both = host == "::" and socket.has_dualstack_ipv6()
        listener = socket.create_server((host, port), family=family, backlog=WAITING_CONNECTIONS, dualstack_ipv6=both)
    except OSError as error:
        raise OSError(f"cannot serve HTTP on {address}: {error.strerror}") from error
    listener.setblocking(False)
    return listener


class _Serving:
    """All connections of a listener. When there are too many, the oldest one gives way to the new: so whoever opens
    connections and neither asks nor takes the answer keeps nobody out."""

    def __init__(self, listener: socket.socket, routes: Mapping[str, Handler]) -> None:
        self._listener = listener
        self._routes = routes
        self._open: dict[asyncio.Task[None], None] = {}

    async def accept(self, tasks: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError as error:
                _log.warning("cannot take an HTTP connection: %s", error)
                await asyncio.sleep(EXHAUSTED_SECONDS)
                continue
            if len(self._open) >= MOST_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                oldest.cancel()
            connection.setblocking(False)
            task = tasks.create_task(self._serve(connection))
            self._open[task] = None
            task.add_done_callback(lambda done: self._open.pop(done, None))

    def stop(self) -> None:
        for task in self._open:
            task.cancel()

    async def _serve(self, connection: socket.socket) -> None:
        with closing(connection):
            try:
                await self._exchange(_Exchange(connection))
            except (OSError, TimeoutError):
                pass  # the client is gone, or too slow
            except Exception:  # of one connection, which must not end the others
                _log.exception("an HTTP connection failed")

    async def _exchange(self, exchange: _Exchange) -> None:
        async with asyncio.timeout(QUESTION_SECONDS):
            asked = await exchange.ask()
        if asked is None:
            return
        async with asyncio.timeout(ANSWER_SECONDS):
            await exchange.answer(asked if isinstance(asked, Answer) else await self._answer(asked))
        async with asyncio.timeout(LINGER_SECONDS):
            await exchange.leave()

    async def _answer(self, question: Question) -> Answer:
        handle = self._routes.get(question.path)
        if handle is None:
            return refusal(404, f"there is nothing here; there is {' '.join(self._routes)}")
        try:
            return await handle(question)
        except Exception:
            _log.exception("cannot answer %s", question.path)
            return refusal(500, "internal error; the log says more")


class _Exchange:
    """One question and its answer."""

    def __init__(self, connection: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = connection
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD_BYTES)
        self._without_body = False

    async def ask(self) -> Question | Answer | None:
        """The question; the answer at once, to what cannot be asked; None when the client leaves without a word."""
        try:
            while (event := self._protocol.next_event()) is h11.NEED_DATA:
                self._protocol.receive_data(await self._loop.sock_recv(self._socket, _READ_BYTES))
        except h11.RemoteProtocolError as error:
            return refusal(error.error_status_hint, str(error))
        if not isinstance(event, h11.Request):
            return None
        self._without_body = event.method == b"HEAD"
        return _question(event)

    async def answer(self, answer: Answer) -> None:
        response = h11.Response(
            status_code=answer.status,
            reason=HTTPStatus(answer.status).phrase,
            headers=[
                ("content-type", answer.content_type),
                ("content-length", str(len(answer.body))),
                ("cache-control", "no-store"),
                ("connection", "close"),
                *answer.headers,
            ],
        )
        head = self._protocol.send(response)
        assert head is not None  # only the end of a connection is nothing to send
        await self._loop.sock_sendall(self._socket, head if self._without_body else head + answer.body)

    async def leave(self) -> None:
        """Reads on until the client has closed: bytes that nobody has read would take the answer back."""
        self._socket.shutdown(socket.SHUT_WR)
        while await self._loop.sock_recv(self._socket, _READ_BYTES):
            pass


def _question(request: h11.Request) -> Question | Answer:
    if request.method not in {b"GET", b"HEAD"}:
        return refusal(405, "only GET and HEAD are answered here", ("allow", "GET, HEAD"))
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        return refusal(413, "requests with a body are not answered here")
    try:
        target = urlsplit(request.target.decode("ascii"))
        parameters = parse_qsl(target.query, keep_blank_values=True, max_num_fields=MOST_PARAMETERS, errors="strict")
    except ValueError:
        return refusal(400, "the target of the request cannot be read")
    return Question(target.path, tuple(parameters), headers)


def refusal(status: int, message: str, *headers: tuple[str, str]) -> Answer:
    return Answer(status, f"{message}\n".encode(), headers=headers)
