"""Recorded decisions for tests of the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controlplane.ledger.encoding import ended_of
from controlplane.ledger.row import Recorded, Row, row_of
from controlplane.ledger.writer import LedgerWriter
from headrace_protos.headrace.v1 import decision_pb2

# 2026-01-01 00:00 UTC in Unix microseconds.
BEGAN = 1_767_225_600_000_000
HOUR = 3_600_000_000
DAY = 24 * HOUR


def recorded(
    at: int = BEGAN,
    *,
    recorder: int = 1,
    request_id: str = "r",
    model: str = "llama",
    pool: str = "llama/full/short/on_demand",
    tier: str = "full",
    tenant: str = "name:acme",
    verdict: str = "neutral",
    reasons: tuple[str, ...] = ("neutral_prefers_full",),
    session: str = "",
    status: int = 200,
    misroute: str = "",
    worker: tuple[str, int, int] = ("", 0, 0),
) -> decision_pb2.RecordedDecision:
    """`at` in Unix microseconds. `worker` is who decided, in which minute, and which of its decisions that was."""
    message = decision_pb2.RecordedDecision(
        request_id=request_id,
        recorder=recorder,
        misroute=misroute,
        worker=worker[0],
        worker_minute=worker[1],
        worker_number=worker[2],
        decision=decision_pb2.Decision(
            action="pass",
            endpoint="chat",
            model=model,
            pool=pool,
            tier=tier,
            reasons=reasons,
            tenant=tenant,
            session=session,
            sensitivity=decision_pb2.Sensitivity(verdict=verdict, score=12.5),
            budget=decision_pb2.Budget(prompt_tokens=10, output_tokens=20),
        ),
        outcome=decision_pb2.Outcome(status=status, cluster=pool, upstream="10.0.0.1:8000", duration_seconds=1.5),
    )
    message.recorded.FromMicroseconds(at)
    message.time.FromMicroseconds(at - 1_500_000)
    return message


def row(at: int = BEGAN, **fields: object) -> Row:
    return row_of(recorded(at, **fields))  # type: ignore[arg-type]


def entry(at: int = BEGAN, **fields: object) -> Recorded:
    message = recorded(at, **fields)  # type: ignore[arg-type]
    return Recorded(ended_of(message), at, message.recorder)


@asynccontextmanager
async def at_work(writer: LedgerWriter) -> AsyncIterator[None]:
    """Has it write for as long as the context lasts; it has closed its store afterwards."""
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        await writer.run()

    task = asyncio.ensure_future(work())
    await begun.wait()  # a task that is cancelled before it begins does nothing
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
