"""All decisions that can be shown: those in memory and those in the ledger, as one sequence without gap or repetition.

Each gets its place in it when it is recorded: the microsecond and this process's number. Where no ledger is configured,
or it cannot be asked, the ones in memory are all that there are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice

from controlplane.ledger.ended import Ended
from controlplane.ledger.query import DecisionQuery
from controlplane.ledger.row import Recorded, Row
from controlplane.ledger.store import Found, StoreAwayError
from controlplane.ledger.unrecorded import UnrecordedWatch
from controlplane.ledger.writer import LedgerWriter
from headrace_protos.headrace.v1 import fleet_pb2

MOST_WAITING = 10_000  # of one follower
MOST_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Listing:
    """Decisions, the last first; `trouble` says why the ledger was not asked, so that they are those in memory."""

    found: list[Found]
    trouble: str = ""


@dataclass(slots=True)
class Follower:
    """Gets what matches, in order. One that falls behind misses the oldest, and is told how many."""

    query: DecisionQuery
    waiting: deque[Row] = field(default_factory=deque)
    missed: int = 0
    some: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, row: Row) -> None:
        if self.query.matches(row):
            if len(self.waiting) >= MOST_WAITING:
                self.waiting.popleft()
                self.missed += 1
            self.waiting.append(row)
            self.some.set()

    async def batches(self) -> AsyncGenerator[tuple[list[Row], int], None]:
        """Rows, oldest first, and how many were missed before them."""
        while True:
            await self.some.wait()
            missed, self.missed = self.missed, 0
            batch = [self.waiting.popleft() for _ in range(min(len(self.waiting), MOST_AT_ONCE))]
            if not self.waiting:
                self.some.clear()
            yield batch, missed


class Decisions:
    """`capacity` is how many are kept in memory; `recorder` tells this process from others that write the same ledger.

    `clock` gives Unix seconds. Without a `writer` there is no ledger.
    """

    def __init__(
        self,
        capacity: int,
        recorder: int,
        clock: Callable[[], float],
        writer: LedgerWriter | None = None,
        unrecorded: UnrecordedWatch | None = None,
    ) -> None:
        self._recent: deque[Recorded] = deque(maxlen=capacity)
        self._recorder = recorder
        self._clock = clock
        self._writer = writer
        self._unrecorded = unrecorded
        self._followers: list[Follower] = []
        self._last = 0

    def __len__(self) -> int:
        return len(self._recent)

    def record(self, ended: Ended) -> None:
        """Gives it its place."""
        self._last = max(int(self._clock() * 1e6), self._last + 1)
        recorded = Recorded(ended, self._last, self._recorder)
        self._recent.append(recorded)
        if self._writer is not None:
            self._writer.add(recorded)
        for follower in self._followers:
            follower.offer(recorded.row)

    async def newest(self, query: DecisionQuery, limit: int) -> Listing:
        """At most `limit` that match."""
        if self._writer is None:
            return Listing(_found(self._in_memory(), query, limit))
        # Before the store is asked: a row that is written meanwhile is then in either or both.
        pending = _found(self._writer.pending(), query, limit)
        try:
            stored = await self._writer.store.find(query, limit)
        except StoreAwayError as error:
            return Listing(_found(self._in_memory(), query, limit), str(error))
        return Listing(_merged((*pending, *stored), limit))

    async def unrecorded(self, query: DecisionQuery) -> fleet_pb2.Unrecorded | None:
        """What the ledger has not of the time that is asked for, whatever else is; None when that is not known."""
        if self._unrecorded is None:
            return None
        with suppress(StoreAwayError):
            return await self._unrecorded.between(query.since, query.until)
        return None

    @contextmanager
    def following(self, query: DecisionQuery) -> Iterator[Follower]:
        """What is recorded from now on."""
        follower = Follower(query)
        self._followers.append(follower)
        try:
            yield follower
        finally:
            self._followers.remove(follower)

    def _in_memory(self) -> Iterable[Recorded]:
        """The last first, with those that wait for the ledger, however many they are."""
        yield from reversed(self._recent)
        if self._writer is not None and self._recent:
            oldest = self._recent[0].at
            yield from (each for each in self._writer.pending() if each.at < oldest)


def _found(decisions: Iterable[Recorded], query: DecisionQuery, limit: int) -> list[Found]:
    rows = (recorded.row for recorded in decisions)
    matching = (Found(row.recorded, row.recorder, row.message) for row in rows if query.matches(row))
    return list(islice(matching, limit))


def _merged(found: Iterable[Found], limit: int) -> list[Found]:
    unique = {each[:2]: each for each in found}
    return [unique[key] for key in sorted(unique, reverse=True)[:limit]]
