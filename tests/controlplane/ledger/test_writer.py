"""Rows reach the store in batches, whatever the store does, and what does not is counted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controlplane.ledger.query import DecisionQuery
from controlplane.ledger.row import Row
from controlplane.ledger.store import Found, Loss, RowsRefusedError, Shortfall, StoreAwayError, Tally
from controlplane.ledger.writer import MOST_ROWS, LedgerWriter
from support.ledger import BEGAN, at_work, entry
from support.waiting import until


class FakeStore:
    """Keeps rows in memory; `trouble` is raised while it is set, and rows of the model `poison` are refused."""

    place = "memory"

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.lost: list[Loss] = []
        self.tallies: dict[int, Tally] = {}
        self.batches: list[int] = []
        self.trouble: Exception | None = None
        self.held = asyncio.Event()
        self.held.set()
        self.expired: list[int] = []
        self.closed = False

    async def write(self, rows: Sequence[Row], losses: Sequence[Loss], tallies: Sequence[Tally] = ()) -> None:
        await self.held.wait()
        if self.trouble is not None:
            raise self.trouble
        if any(each.model == "poison" for each in rows):
            raise RowsRefusedError("poison")
        self.batches.append(len(rows))
        self.rows += rows
        self.lost += losses
        self.tallies |= {tally.minute: tally for tally in tallies}

    async def find(self, query: DecisionQuery, limit: int) -> list[Found]:
        return []

    async def losses(self, since: int | None, until: int | None) -> list[Loss]:
        return self.lost

    async def shortfalls(self, since: int, until: int | None) -> list[Shortfall]:
        return []

    async def expire(self, before: int) -> bool:
        self.expired.append(before)
        return len(self.expired) < 3

    async def close(self) -> None:
        self.closed = True


class Counted:
    def __init__(self) -> None:
        self.written = 0
        self.lost: Counter[str] = Counter()
        self.failures = 0
        self.up: list[bool] = []

    def ledger_written(self, rows: int, seconds: float) -> None:
        self.written += rows

    def ledger_lost(self, cause: str, decisions: int) -> None:
        self.lost[cause] += decisions

    def ledger_failed(self) -> None:
        self.failures += 1

    def ledger_up(self, up: bool) -> None:
        self.up.append(up)


class Running:
    def __init__(self, capacity: int) -> None:
        self.store, self.counted = FakeStore(), Counted()
        self.writer = LedgerWriter(
            self.store, self.counted, lambda: BEGAN / 1e6, recorder=9, capacity=capacity, retention=3600
        )

    def add(self, count: int, **fields: Any) -> None:
        for n in range(count):
            self.writer.add(entry(BEGAN + n, **fields))


@asynccontextmanager
async def running(capacity: int = 10_000) -> AsyncIterator[Running]:
    made = Running(capacity)
    try:
        async with at_work(made.writer):
            yield made
    finally:
        assert made.store.closed


async def test_rows_are_written_in_full_batches_and_the_rest_soon() -> None:
    async with running() as made:
        made.add(2 * MOST_ROWS + 1)
        await until(lambda: len(made.store.rows) == 2 * MOST_ROWS + 1)
        assert made.store.batches == [MOST_ROWS, MOST_ROWS, 1]
        assert [each.recorded for each in made.store.rows] == [BEGAN + n for n in range(2 * MOST_ROWS + 1)]
        assert made.writer.waiting == 0
        assert made.counted.written == made.writer.written == 2 * MOST_ROWS + 1


async def test_while_the_store_is_away_rows_wait_and_then_all_are_written(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as made:
        made.store.trouble = StoreAwayError("gone")
        made.add(50)
        await until(lambda: made.counted.failures >= 3)
        assert made.writer.trouble == "gone"
        assert [each.at for each in made.writer.pending()] == [BEGAN + n for n in reversed(range(50))]
        assert sum("cannot be written" in record.message for record in caplog.records) == 1
        made.store.trouble = None
        await until(lambda: made.writer.trouble is None)
        assert len(made.store.rows) == 50
        assert not made.writer.lost
        assert made.counted.up[0] is False
        assert made.counted.up[-1] is True


async def test_a_full_queue_takes_no_more_and_the_ledger_says_what_it_lost() -> None:
    async with running(capacity=100) as made:
        made.store.held.clear()
        for n in range(130):
            made.writer.add(entry(BEGAN + n))
        assert made.writer.waiting == 100
        assert made.writer.lost == made.counted.lost == {"queue_full": 30}
        made.store.held.set()
        await until(lambda: len(made.store.rows) == 100)
        made.writer.add(entry(BEGAN + 200))
        await until(lambda: made.store.lost)
        assert made.store.lost == [Loss(BEGAN + 100, BEGAN + 129, 9, "queue_full", 30)]


async def test_a_row_that_is_refused_costs_no_other() -> None:
    async with running() as made:
        made.add(5)
        made.add(1, model="poison")
        made.add(5)
        await until(lambda: len(made.store.rows) == 10)
        await until(lambda: made.writer.waiting == 0)
        assert made.writer.lost == {"refused": 1}
        assert made.writer.written == 10


MINUTE = BEGAN // 60_000_000


async def test_rows_are_counted_with_what_their_workers_told() -> None:
    async with running() as made:
        made.writer.told("w", MINUTE, 7)
        await until(lambda: MINUTE in made.store.tallies)  # also where no row ever comes
        assert made.store.tallies == {MINUTE: Tally(MINUTE, "w", 9, made=7, written=0, lost=0)}
        made.add(3, worker=("w", MINUTE, 8))
        made.add(1, worker=("w", MINUTE + 1, 2))
        made.add(1, model="poison", worker=("w", MINUTE + 1, 3))
        made.add(1)
        await until(lambda: made.writer.waiting == 0 and made.store.tallies[MINUTE + 1].lost == 1)
        assert made.store.tallies[MINUTE] == Tally(MINUTE, "w", 9, made=8, written=3, lost=0)
        assert made.store.tallies[MINUTE + 1] == Tally(MINUTE + 1, "w", 9, made=3, written=1, lost=1)


async def test_what_is_told_of_times_long_past_harms_nothing() -> None:
    async with running() as made:
        made.writer.told("w", 5, 7)
        made.add(1)
        await until(lambda: len(made.store.rows) == 1)


async def test_what_no_queue_had_room_for_is_counted_as_lost() -> None:
    async with running(capacity=2) as made:
        made.store.held.clear()
        for n in range(5):
            made.writer.add(entry(BEGAN + n, worker=("w", MINUTE, n + 1)))
        made.store.held.set()
        await until(lambda: made.writer.waiting == 0 and MINUTE in made.store.tallies)
        await until(lambda: made.store.tallies[MINUTE] == Tally(MINUTE, "w", 9, made=5, written=2, lost=3))


async def test_at_the_end_what_waits_is_written() -> None:
    async with running() as made:
        made.add(10)
    assert len(made.store.rows) == 10


async def test_what_cannot_be_written_at_the_end_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as made:
        made.store.trouble = StoreAwayError("gone")
        made.add(10)
    assert made.counted.lost == {"stopped": 10}
    assert "decisions_lost=10" in caplog.text


async def test_old_decisions_are_removed_in_slices_also_without_traffic() -> None:
    async with running() as made:
        await until(lambda: len(made.store.expired) >= 3)
        assert set(made.store.expired) == {BEGAN - 3_600_000_000}


async def test_adding_never_waits_for_the_store() -> None:
    async with running(capacity=1_000) as made:
        made.store.held.clear()
        made.add(5_000)  # without a single await
        assert made.writer.waiting == 1_000
        assert made.writer.lost["queue_full"] == 4_000
        made.store.held.set()
