"""Sends requests at the times that a schedule says, whatever becomes of those before, and notes what became of each.

Times are counted from when a request was due, not from when it was sent: what the sender is late by is part of them
(no coordinated omission), and told apart as `late`. Each request has a connection of its own, and what comes is read
as bytes: a client with a pool spends more on a request, with a thousand of them open, than the gateway does.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any
from urllib.parse import urlsplit

CHAT = "/v1/chat/completions"
GIVE_UP_SECONDS = 600.0
LONGEST_HEAD = 1 << 20
# Most pieces of an answer have none, or null.
_USAGE = re.compile(rb'"usage": ?\{')


@dataclass(frozen=True, slots=True)
class Due:
    """A request that is to be sent `at` so many seconds from the beginning. `kind` is the caller's own word for it."""

    at: float
    kind: str
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Came:
    """What became of one. Seconds from when it was due; `first` is to the first piece of the answer, `late` to when it
    was sent. `status` is 0 for an answer that broke off. Tokens are the engine's own count, 0 where it gave none."""

    due: Due
    status: int
    first: float
    whole: float
    headers: Mapping[str, str]
    prompt_tokens: int = 0
    output_tokens: int = 0
    late: float = 0.0


async def send(urls: Sequence[str], schedule: Sequence[Due], *, counted_until: float = math.inf) -> list[Came]:
    """In the order of the schedule, to these URLs in turn.

    Requests that are due from `counted_until` on keep those before in company: they are not told of, and given up once
    all others have come.
    """
    began = time.perf_counter()
    counted: list[asyncio.Task[Came]] = []
    company: list[asyncio.Task[Came]] = []
    all_counted_sent = asyncio.Event()

    async def send_all(tasks: asyncio.TaskGroup) -> None:
        for url, due in zip(cycle(urls), sorted(schedule, key=lambda due: due.at), strict=False):
            if due.at >= counted_until:
                all_counted_sent.set()
            await asyncio.sleep(began + due.at - time.perf_counter())
            task = tasks.create_task(_send(url, due, began + due.at))
            (counted if due.at < counted_until else company).append(task)
        all_counted_sent.set()

    async with asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(send_all(tasks))
        await all_counted_sent.wait()
        came = [await task for task in counted]
        for task in (sending, *company):
            task.cancel()
    return came


@dataclass(slots=True)
class _Answer:
    """As far as it has come. `first` and `sent` by `time.perf_counter`, 0 before."""

    sent: float = 0.0
    first: float = 0.0
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


async def _send(gateway: str, due: Due, at: float) -> Came:
    answer = _Answer()
    try:
        async with asyncio.timeout(GIVE_UP_SECONDS):
            await _exchange(gateway, due, answer)
        text = _dechunked(answer.body) if "transfer-encoding" in answer.headers else answer.body
        status = answer.status
    except (OSError, EOFError, ValueError, TimeoutError):
        status, text = 0, b""
    usage = next((u for line in text.splitlines() if _USAGE.search(line) and (u := _usage(line))), {})
    return Came(
        due,
        status,
        answer.first - at if answer.first else 0.0,
        time.perf_counter() - at,
        answer.headers,
        usage.get("prompt_tokens", 0),
        usage.get("completion_tokens", 0),
        answer.sent - at if answer.sent else 0.0,
    )


async def _exchange(gateway: str, due: Due, answer: _Answer) -> None:
    host = urlsplit(gateway)
    reader, writer = await asyncio.open_connection(host.hostname, host.port, limit=LONGEST_HEAD)
    try:
        writer.write(_request(host.netloc, due))
        answer.sent = time.perf_counter()
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        answer.status = int(head[0].split(" ")[1])
        answer.headers |= {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        pieces = [await reader.read(1)]
        answer.first = time.perf_counter()
        pieces.append(await reader.read())
        answer.body = b"".join(pieces)
    finally:
        writer.close()


def _request(host: str, due: Due) -> bytes:
    body = json.dumps({**due.body, "stream": True, "stream_options": {"include_usage": True}}).encode()
    head = [f"POST {CHAT} HTTP/1.1", f"host: {host}", "content-type: application/json", "connection: close"]
    head += [f"content-length: {len(body)}", *(f"{name}: {value}" for name, value in due.headers.items())]
    return "\r\n".join([*head, "", ""]).encode() + body


def _dechunked(body: bytes) -> bytes:
    """Raises EOFError where the last chunk is missing (https://www.rfc-editor.org/rfc/rfc9112#section-7.1)."""
    pieces: list[bytes] = []
    place = 0
    while True:
        end = body.find(b"\r\n", place)
        if end < 0:
            raise EOFError
        size = int(body[place:end], 16)
        if size == 0:
            return b"".join(pieces)
        pieces.append(body[end + 2 : end + 2 + size])
        place = end + 2 + size + 2


def _usage(line: bytes) -> dict[str, int]:
    return json.loads(line.removeprefix(b"data: ")).get("usage") or {}


def quantile(values: Sequence[float], share: float) -> float:
    """Of sorted or unsorted values; 0 for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
