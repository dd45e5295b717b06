"""A gRPC server for asyncio on TCP and Unix sockets, in clear text.

What is to be written is written once per turn of the loop, so that answers which become ready together leave together.
A client that does not read is not read from.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Mapping
from typing import Final, cast

from ext_proc.http2.connection import Limits
from ext_proc.http2.grpc import GrpcConnection, Method

# A peer that vanished without closing is noticed: after this long in silence it is asked, after as long again let go.
SILENCE_SECONDS: Final = 20.0
_BACKLOG: Final = 1024
# For what is written last to a client that is let go, which may not read.
_LAST_WORDS_SECONDS: Final = 0.5


class GrpcServer:
    """Serves `methods` at `listen`, `host:port` or `unix:/path`; `address` has the port that was given for port 0.

    Raises OSError when the address cannot be had.
    """

    def __init__(self, listen: str, methods: Mapping[str, Method], *, limits: Limits, most_message_bytes: int) -> None:
        self._methods = methods
        self._limits = limits
        self._most = most_message_bytes
        self._peers: set[_Peer] = set()
        self._stopping = False
        self._alone = asyncio.Event()
        self._server: asyncio.Server | None = None
        try:
            self._socket, self.address = _bound(listen)
        except OSError as error:
            raise OSError(error.errno, f"cannot listen on {listen}: {error.strerror or error}") from error

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        if self._socket.family == socket.AF_UNIX:
            self._server = await loop.create_unix_server(self._new_peer, sock=self._socket, backlog=_BACKLOG)
        else:
            self._server = await loop.create_server(self._new_peer, sock=self._socket, backlog=_BACKLOG)

    async def stop(self, grace: float) -> None:
        """Accepts nothing more, lets the calls that run be finished for `grace` seconds, and ends the others."""
        self._stopping = True
        if self._server is None:
            self._socket.close()
        else:
            self._server.close()
        for peer in list(self._peers):
            peer.drain()
        if not await self._is_alone_within(grace):
            for peer in list(self._peers):
                peer.close()
            if not await self._is_alone_within(_LAST_WORDS_SECONDS):
                for peer in list(self._peers):
                    peer.abort()
                await self._is_alone_within(_LAST_WORDS_SECONDS)
        if self.address.startswith("unix:"):
            _remove_socket(self.address.removeprefix("unix:"))

    async def _is_alone_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                while self._peers:
                    self._alone.clear()
                    await self._alone.wait()
        except TimeoutError:
            return False
        return True

    def _new_peer(self) -> _Peer:
        return _Peer(self)

    def joined(self, peer: _Peer) -> GrpcConnection:
        self._peers.add(peer)
        loop = asyncio.get_running_loop()
        return GrpcConnection(
            self._methods, self._limits, self._most, wake=peer.wake, later=loop.call_later, now=loop.time()
        )

    def left(self, peer: _Peer) -> None:
        self._peers.discard(peer)
        if not self._peers:
            self._alone.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping


class _Peer(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, server: GrpcServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._will_write = False
        self._heard = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._grpc = self._server.joined(self)
        self._silence = self._loop.call_later(SILENCE_SECONDS, self._look_for_life)
        self.wake()
        if self._server.is_stopping:
            self.drain()

    def data_received(self, data: bytes) -> None:
        self._heard = True
        self._will_write = True
        self._grpc.receive(data, self._loop.time())
        self._write()

    def eof_received(self) -> None:
        """A client that has shut down its side has left: the transport closes."""

    def pause_writing(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._silence.cancel()
        self._grpc.close()
        self._server.left(self)

    def wake(self) -> None:
        if not self._will_write:
            self._will_write = True
            self._loop.call_soon(self._write)

    def drain(self) -> None:
        self._grpc.http2.drain()
        self.wake()

    def close(self) -> None:
        """Ends its calls, and says so to the client if it reads."""
        self._grpc.close()
        self._write()

    def abort(self) -> None:
        self._transport.abort()

    def _write(self) -> None:
        self._will_write = False
        http2 = self._grpc.http2
        out = http2.take_output()
        if out and not self._transport.is_closing():
            self._transport.write(out)
        if http2.is_over:
            self._transport.close()

    def _look_for_life(self) -> None:
        if not self._heard:
            self._transport.abort()
            return
        self._heard = False
        self._grpc.http2.ping()
        self.wake()
        self._silence = self._loop.call_later(SILENCE_SECONDS, self._look_for_life)


def _bound(listen: str) -> tuple[socket.socket, str]:
    if listen.startswith("unix:"):
        path = listen.removeprefix("unix:")
        _remove_socket(path)
        made = socket.socket(socket.AF_UNIX)
        try:
            made.bind(path)
        except OSError:
            made.close()
            raise
        return made, listen
    host, _, port = listen.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    family, kind, protocol, _, address = socket.getaddrinfo(
        bare or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made, f"{host}:{made.getsockname()[1]}"


def _remove_socket(path: str) -> None:
    """Of a server that was killed. Anything else that has this name stays, and is an error of the address."""
    try:
        if stat.S_ISSOCK(os.stat(path).st_mode):
            os.unlink(path)
    except FileNotFoundError:
        pass
