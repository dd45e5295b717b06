"""Keeps what the fleet has room for up to date, for those who divide it among filter workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from controlplane.latest import Latest
from controlplane.learning.rooms import Room, RoomWatch
from controlplane.ledger.ended import Ended
from controlplane.view import CurrentView

# Reports and ends of requests that come closer together than this count as one.
COALESCE_SECONDS = 0.1
# Reports grow old without anything happening.
REFRESH_SECONDS = 1.0


class Crediting:
    """`rooms` is worked out anew after each view and each end of a request. `clock` gives Unix seconds."""

    def __init__(self, current: CurrentView, clock: Callable[[], float]) -> None:
        self._current = current
        self._clock = clock
        self._watch = RoomWatch()
        self._finished = asyncio.Event()
        self.rooms = Latest[tuple[Room, ...]](())

    def request_finished(self, ended: Ended) -> None:
        outcome = ended.outcome
        if outcome.upstream:
            at = ended.began_seconds + ended.began_nanos / 1e9 + outcome.duration_seconds
            # By Envoy's clock, which may be ahead of ours.
            self._watch.request_finished(outcome.upstream, min(at, self._clock()))
            self._finished.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            next_view = asyncio.ensure_future(self._current.next())
            next_end = asyncio.ensure_future(self._finished.wait())
            try:
                self._work_out()
                await asyncio.sleep(COALESCE_SECONDS)
                await asyncio.wait((next_view, next_end), timeout=REFRESH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            finally:
                next_view.cancel()
                next_end.cancel()

    def _work_out(self) -> None:
        self._finished.clear()
        view = self._current.value
        if view is not None:
            limits = view.table.policy.selection.load
            self.rooms.put(self._watch.rooms(view.fleet, limits, self._clock()))
