"""A TCP relay that a test can cut, so that one client loses a server which goes on for all others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Relay:
    """Passes bytes between clients of `address` and a target, while it is not cut."""

    def __init__(self, target: str) -> None:
        self._host, port = target.rsplit(":", 1)
        self._port = int(port)
        self._is_cut = False
        self._open: set[asyncio.StreamWriter] = set()
        self.address = ""

    def cut(self) -> None:
        """Breaks every connection, and each new one at once."""
        self._is_cut = True
        for writer in self._open:
            writer.transport.abort()

    def mend(self) -> None:
        self._is_cut = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            if not self._is_cut:
                to_reader, to_writer = await asyncio.open_connection(self._host, self._port)
                await asyncio.gather(self._pass(reader, to_writer), self._pass(to_reader, writer))
        writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            with suppress(OSError):
                while data := await reader.read(65536):
                    writer.write(data)
                    await writer.drain()
        finally:
            self._open.discard(writer)
            writer.transport.abort()


@asynccontextmanager
async def relay(target: str) -> AsyncIterator[Relay]:
    """A relay to `target`, an `ip:port`, on a free port."""
    made = Relay(target)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        made.cut()
        server.close()
        await server.wait_closed()
