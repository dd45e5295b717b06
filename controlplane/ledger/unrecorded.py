"""How many decisions of filter workers the ledger has not: those of requests under way, and those that were lost.

A request ends long after it was decided about, and until then nobody can tell the two apart. So what is missing of a
minute is called overdue once no request of that minute can be under way any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from controlplane.ledger.store import MINUTE, LedgerStore, StoreAwayError
from controlplane.messages import timestamp
from headrace_protos.headrace.v1 import fleet_pb2

_log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
SHOWN_MINUTES = 24 * 60
# From the end of a request until its decision is in the ledger: Envoy's buffer, the writer's, and one try that failed.
ON_THE_WAY_SECONDS = 10.0


class UnrecordedWatch:
    """`longest_request` is how long a request may be under way after its decision, in seconds. `clock` gives Unix
    seconds."""

    def __init__(self, store: LedgerStore, clock: Callable[[], float], *, longest_request: float) -> None:
        self._store = store
        self._clock = clock
        self._longest = longest_request + ON_THE_WAY_SECONDS
        self.latest: fleet_pb2.Unrecorded | None = None
        """Of the last day; None while that could not be asked yet."""

    async def run(self, changed: Callable[[fleet_pb2.Unrecorded], None]) -> None:
        """Looks every LOOK_SECONDS, whichever control plane writes, and tells what it found."""
        while True:
            with suppress(StoreAwayError):  # the writer tells
                since = self._clock() - SHOWN_MINUTES * 60
                self.latest = await self.between(int(since * 1e6), None)
                changed(self.latest)
            await asyncio.sleep(LOOK_SECONDS)

    async def between(self, since: int | None, until: int | None) -> fleet_pb2.Unrecorded:
        """Of decisions that were made between these times, in Unix microseconds; of the whole minutes that they are in.

        Raises StoreAwayError.
        """
        last = None if until is None else -(-until // MINUTE)
        shortfalls = await self._store.shortfalls((since or 0) // MINUTE, last)
        over = (self._clock() - self._longest) * 1e6
        overdue = [each for each in shortfalls if (each.minute + 1) * MINUTE <= over]
        return fleet_pb2.Unrecorded(
            decisions=sum(each.decisions for each in shortfalls),
            overdue=sum(each.decisions for each in overdue),
            last_overdue=timestamp((max(each.minute for each in overdue) + 1) * 60.0) if overdue else None,
        )
