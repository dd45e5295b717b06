"""Writes rows to the ledger's store in batches, off the request's path.

`add` never waits and never fails. Rows wait in a queue of bounded length, oldest first, until the store has them. While
it is full, the decisions that arrive are not written: what was accepted is not taken back, what is lost is one stretch
of time with a beginning and an end, and a row that is not written costs next to nothing. Each loss is counted, and
written down in the ledger itself once that works again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import StrEnum
from itertools import islice
from typing import Protocol

from controlplane.ledger.row import Recorded
from controlplane.ledger.store import MINUTE, LedgerStore, Loss, RowsRefusedError, StoreAwayError
from controlplane.ledger.worker_minutes import WorkerMinutes
from controlplane.messages import timestamp
from headrace_protos.headrace.v1 import fleet_pb2

_log = logging.getLogger(__name__)

MOST_ROWS = 1_000  # of one batch
FLUSH_SECONDS = 0.5
FIRST_RETRY_SECONDS = 0.1
LONGEST_RETRY_SECONDS = 5.0
EXPIRY_SECONDS = 60.0
STOP_SECONDS = 2.0


class Cause(StrEnum):
    """Why a decision never reached the ledger."""

    QUEUE_FULL = "queue_full"
    REFUSED = "refused"  # the database does not take it for what it holds
    STOPPED = "stopped"  # the control plane ended while the store was away


class Observer(Protocol):
    """Told of what happens, for metrics."""

    def ledger_written(self, rows: int, seconds: float) -> None: ...

    def ledger_lost(self, cause: str, decisions: int) -> None: ...

    def ledger_failed(self) -> None: ...

    def ledger_up(self, up: bool) -> None: ...


class LedgerWriter:
    """`capacity` is how many rows may wait; `retention` in seconds. `clock` gives Unix seconds."""

    def __init__(
        self,
        store: LedgerStore,
        observer: Observer,
        clock: Callable[[], float],
        *,
        recorder: int,
        capacity: int,
        retention: float,
    ) -> None:
        self.store = store
        self._observer = observer
        self._clock = clock
        self._recorder = recorder
        self._capacity = capacity
        self._retention = retention
        self._queue: deque[Recorded] = deque()
        self._some = asyncio.Event()
        self._many = asyncio.Event()
        self._losses: dict[Cause, Loss] = {}
        self._minutes = WorkerMinutes(recorder)
        self._shedding = False
        self._expire_at = 0.0
        self.trouble: str | None = None
        self.written = 0
        self.lost: Counter[str] = Counter()
        self.last_loss: float | None = None

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def pending(self) -> Iterator[Recorded]:
        """What the store may not have yet, the last first."""
        return reversed(self._queue)

    def add(self, recorded: Recorded) -> None:
        if len(self._queue) >= self._capacity:
            self._lose(Cause.QUEUE_FULL, recorded.at, recorded.at)
            self._minutes.lost(recorded.ended)
            return
        self._queue.append(recorded)
        self._some.set()
        if len(self._queue) >= MOST_ROWS:
            self._many.set()

    def told(self, worker: str, minute: int, made: int) -> None:
        """A filter worker has told how many decisions it made in a Unix minute, so far."""
        self._minutes.told(worker, minute, made)
        if self._minutes.changed:
            self._some.set()

    def status(self) -> fleet_pb2.LedgerStatus:
        return fleet_pb2.LedgerStatus(
            store=self.store.place,
            trouble=self.trouble or "",
            waiting=self.waiting,
            written=self.written,
            lost=self.lost,
            last_loss=timestamp(self.last_loss) if self.last_loss is not None else None,
        )

    async def run(self) -> None:
        """Until it is cancelled; then writes what waits, for STOP_SECONDS at most, and closes the store."""
        try:
            while True:
                await self._until_due()
                await self._write_persistently()
        finally:
            await self._finish()

    async def _until_due(self) -> None:
        """Until there is a full batch, or something has waited for FLUSH_SECONDS, or old rows are to be removed."""
        while not self._queue and not self._minutes.changed:
            self._some.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(self._expire_at - self._clock(), 0.0)):
                    await self._some.wait()
            await self._expire()
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._many.wait()

    async def _write_persistently(self) -> None:
        """One batch, however long it takes."""
        retry = FIRST_RETRY_SECONDS
        while True:
            try:
                await self._write_batch()
            except Exception as error:  # a fault of the ledger must not end the control plane
                self._failed(error)
                await asyncio.sleep(retry)
                retry = min(2 * retry, LONGEST_RETRY_SECONDS)
            else:
                self._succeeded()
                break
        await self._expire()

    async def _write_batch(self) -> None:
        batch = list(islice(self._queue, MOST_ROWS))
        rows = await asyncio.to_thread(lambda: [recorded.row for recorded in batch])
        losses, self._losses = self._losses, {}
        tallies = self._minutes.due(rows)
        started = self._clock()
        try:
            await self.store.write(rows, list(losses.values()), tallies)
        except RowsRefusedError as error:
            self._keep(losses)
            await self._write_one_by_one(batch, str(error))
            return
        except BaseException:
            self._keep(losses)
            raise
        self._minutes.done(tallies)
        self._taken(len(rows))
        self._observer.ledger_written(len(rows), self._clock() - started)

    async def _write_one_by_one(self, batch: list[Recorded], reason: str) -> None:
        """So that one row that the database does not take costs no other."""
        _log.error("the ledger's database refused a batch, its rows are written one by one reason=%s", reason)
        for recorded in batch:
            tallies = self._minutes.due([recorded.row])
            try:
                await self.store.write([recorded.row], [], tallies)
            except RowsRefusedError:
                self._lose(Cause.REFUSED, recorded.at, recorded.at)
                self._minutes.lost(recorded.ended)
                self._taken(1, written=False)
            else:
                self._minutes.done(tallies)
                self._taken(1)
                self._observer.ledger_written(1, 0.0)

    def _taken(self, count: int, *, written: bool = True) -> None:
        for _ in range(count):
            self._queue.popleft()
        self.written += count * written
        if len(self._queue) < MOST_ROWS:
            self._many.clear()
        if self._shedding and len(self._queue) < self._capacity / 2:
            self._shedding = False
            _log.warning("the ledger's queue has room again lost=%s", {str(c): n for c, n in self.lost.items()})

    async def _expire(self) -> None:
        """A slice at a time, so that it does not hold up what is to be written."""
        now = self._clock()
        if now < self._expire_at:
            return
        self._minutes.forget(int(now * 1e6) // MINUTE)
        try:
            more = await self.store.expire(int((now - self._retention) * 1e6))
        except Exception as error:
            more = False
            _log.warning("old decisions could not be removed from the ledger reason=%s", error)
        if not more:
            self._expire_at = now + EXPIRY_SECONDS

    async def _finish(self) -> None:
        with suppress(Exception):
            async with asyncio.timeout(STOP_SECONDS):
                while self._queue or self._minutes.changed:
                    await self._write_batch()
        if self._queue:
            _log.error("the ledger could not be written before the end decisions_lost=%d", len(self._queue))
            self._lose(Cause.STOPPED, self._queue[0].at, self._queue[-1].at, len(self._queue))
        await self.store.close()

    # --- what is told ------------------------------------------------------------------------------------------------

    def _lose(self, cause: Cause, began: int, ended: int, decisions: int = 1) -> None:
        if cause is Cause.QUEUE_FULL and not self._shedding:
            self._shedding = True
            _log.error("the ledger's queue is full, decisions that arrive now are not written waiting=%d", self.waiting)
        self._keep({cause: Loss(began, ended, self._recorder, cause, decisions)})
        self.lost[cause] += decisions
        self.last_loss = self._clock()
        self._observer.ledger_lost(cause, decisions)

    def _keep(self, losses: dict[Cause, Loss]) -> None:
        """To be written; what is kept of the same cause is one loss with it."""
        for cause, loss in losses.items():
            other = self._losses.get(cause, loss._replace(decisions=0))
            self._losses[cause] = loss._replace(
                began=min(loss.began, other.began),
                ended=max(loss.ended, other.ended),
                decisions=loss.decisions + other.decisions,
            )

    def _failed(self, error: Exception) -> None:
        away = isinstance(error, StoreAwayError)
        reason = str(error) if away else f"{type(error).__name__}: {error}"
        self._observer.ledger_failed()
        if self.trouble is None:
            self._observer.ledger_up(False)
            _log.error(
                "the ledger cannot be written, decisions wait store=%s reason=%s",
                self.store.place,
                reason,
                exc_info=None if away else error,
            )
        self.trouble = reason

    def _succeeded(self) -> None:
        if self.trouble is not None:
            _log.info("the ledger is written again store=%s", self.store.place)
        self.trouble = None
        self._observer.ledger_up(True)
