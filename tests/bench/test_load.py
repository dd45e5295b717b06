"""The load generator against servers whose answers are known."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from building import built

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
PIECES = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
    b"9\r\ndata: 1\n\n\r\n",
    b"9\r\ndata: 2\n\n\r\n0\r",
    b"\n\r\n",
)
RATE, SECONDS = 200.0, 1.0
STALL_SECONDS = 0.3


@asynccontextmanager
async def serving(answer: tuple[bytes, ...], stall_after: int = 0) -> AsyncIterator[int]:
    """A port at which each request gets this answer, piece by piece; one answer holds up all that follow."""
    count = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                count += 1
                if count == stall_after:
                    time.sleep(STALL_SECONDS)  # noqa: ASYNC251 - all answers are held up
                for piece in answer:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)  # each piece is sent by itself; no event says that it has
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def load(port: int, folder: Path, *, rate: float = 0.0, connections: int = 4) -> dict[str, Any]:
    body = folder / "body.json"
    body.write_bytes(b'{"messages": []}')
    words = (port, "/v1/chat/completions", SECONDS, 0, connections, rate, 1, body)
    process = await asyncio.create_subprocess_exec(built("load"), *map(str, words), stdout=PIPE)
    out, _ = await process.communicate()
    said: dict[str, Any] = json.loads(out)
    return said


@pytest.mark.parametrize("answer", [(WHOLE,), PIECES], ids=["whole", "in chunks"])
async def test_answers_are_counted_and_timed(tmp_path: Path, answer: tuple[bytes, ...]) -> None:
    async with serving(answer) as port:
        said = await load(port, tmp_path)
    assert said["sent"] > 0
    assert said["statuses"] == {"200": said["sent"]}
    assert said["failed"] == said["unanswered"] == 0
    assert len(said["whole"]) == len(said["first"]) == said["sent"]
    assert all(first <= whole for first, whole in zip(said["first"], said["whole"], strict=True))


async def test_what_a_slow_answer_holds_up_is_counted(tmp_path: Path) -> None:
    async with serving((WHOLE,), stall_after=20) as port:
        said = await load(port, tmp_path, rate=RATE, connections=1)
    late = [micros for micros in said["whole"] if micros > STALL_SECONDS / 2 * 1e6]
    assert len(late) >= RATE * STALL_SECONDS / 2 * 0.5  # half of those that were due then, by chance


async def test_an_answer_that_is_not_200_is_a_failure(tmp_path: Path) -> None:
    async with serving((b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n",)) as port:
        said = await load(port, tmp_path, rate=20.0)
    assert said["failed"] == said["sent"] > 0
    assert said["statuses"] == {"503": said["sent"]}
