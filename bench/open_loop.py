"""Sends requests at the times that a schedule says, whatever becomes of those before, and notes what became of each.

Times are counted from when a request was due, not from when it was sent: what the sender is late by is part of them
(no coordinated omission).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

CHAT = "/v1/chat/completions"
MOST_OPEN = 4000


@dataclass(frozen=True, slots=True)
class Due:
    """A request that is to be sent `at` so many seconds from the beginning. `kind` is the caller's own word for it."""

    at: float
    kind: str
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Came:
    """What became of one. Seconds from when it was due; `first` is to the first piece of the answer. `status` is 0 for
    an answer that broke off. Tokens are the engine's own count, 0 where it gave none."""

    due: Due
    status: int
    first: float
    whole: float
    headers: Mapping[str, str]
    prompt_tokens: int = 0
    output_tokens: int = 0


async def send(gateway: str, schedule: Sequence[Due]) -> list[Came]:
    """In the order of the schedule."""
    limits = httpx.Limits(max_connections=MOST_OPEN, max_keepalive_connections=MOST_OPEN)
    async with httpx.AsyncClient(base_url=gateway, timeout=600.0, limits=limits, trust_env=False) as client:
        began = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            sending = []
            for due in sorted(schedule, key=lambda due: due.at):
                await asyncio.sleep(began + due.at - time.perf_counter())
                sending.append(tasks.create_task(_send(client, due, began + due.at)))
        return [task.result() for task in sending]


async def _send(client: httpx.AsyncClient, due: Due, at: float) -> Came:
    body = {**due.body, "stream": True, "stream_options": {"include_usage": True}}
    status, first = 0, 0.0
    headers: Mapping[str, str] = {}
    usage: Mapping[str, int] = {}
    try:
        async with client.stream("POST", CHAT, json=body, headers=dict(due.headers)) as answer:
            headers = dict(answer.headers)
            async for line in answer.aiter_lines():
                first = first or time.perf_counter() - at
                if '"usage": {' in line:
                    usage = json.loads(line.removeprefix("data: ")).get("usage") or {}
            status = answer.status_code
    except httpx.HTTPError:
        status = 0
    return Came(
        due,
        status,
        first,
        time.perf_counter() - at,
        headers,
        usage.get("prompt_tokens", 0),
        usage.get("completion_tokens", 0),
    )


def quantile(values: Sequence[float], share: float) -> float:
    """Of sorted or unsorted values; 0 for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
