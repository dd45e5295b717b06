"""What became of each filter worker's decisions, minute by minute, as this control plane knows.

Counts are written with the rows that they count, in one transaction, and as what they then are rather than as what is
added: so a batch that is written twice, since nobody could say whether the first time was one, counts once. No I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from controlplane.ledger.ended import Ended
from controlplane.ledger.row import Row
from controlplane.ledger.store import Tally

# A minute of which nothing was heard for so long is forgotten: its requests are over, its worker tells no more of it.
KEPT_MINUTES = 24 * 60

_Minute = tuple[int, str]


class WorkerMinutes:
    """`recorder` is this control plane's number."""

    def __init__(self, recorder: int) -> None:
        self._recorder = recorder
        self._known: dict[_Minute, Tally] = {}
        self._changed: set[_Minute] = set()

    @property
    def changed(self) -> bool:
        """Whether there is something to write besides rows."""
        return bool(self._changed)

    def told(self, worker: str, minute: int, made: int) -> None:
        """A worker has told how many decisions it made in a minute, so far."""
        known = self._of((minute, worker))
        if made > known.made:
            self._put(known._replace(made=made))

    def lost(self, ended: Ended) -> None:
        """One that is never written, of which that is told as Loss."""
        if ended.worker:
            known = self._of((ended.worker_minute, ended.worker))
            self._put(known._replace(made=max(known.made, ended.worker_number), lost=known.lost + 1))

    def due(self, rows: Sequence[Row]) -> list[Tally]:
        """All that is to be written with these rows: what they make of their minutes, and what else has changed."""
        tallies = {minute: self._known[minute] for minute in self._changed}
        counts = Counter((row.worker_minute, row.worker) for row in rows if row.worker)
        for minute, count in counts.items():
            known = self._of(minute)
            tallies[minute] = known._replace(written=known.written + count)
        for row in rows:
            minute = row.worker_minute, row.worker
            if row.worker and tallies[minute].made < row.worker_number:
                tallies[minute] = tallies[minute]._replace(made=row.worker_number)
        return sorted(tallies.values())

    def done(self, tallies: Iterable[Tally]) -> None:
        """They are written. What was told meanwhile is still to be."""
        for tally in tallies:
            minute = tally.minute, tally.worker
            known = self._of(minute)
            now = known._replace(made=max(known.made, tally.made), written=tally.written)
            self._known[minute] = now
            if now == tally:
                self._changed.discard(minute)

    def forget(self, now_minute: int) -> None:
        """What is so old that nothing more is heard of it."""
        for minute in [each for each in self._known if each[0] < now_minute - KEPT_MINUTES]:
            del self._known[minute]
            self._changed.discard(minute)

    def _of(self, minute: _Minute) -> Tally:
        return self._known.get(minute) or Tally(*minute, self._recorder, made=0, written=0, lost=0)

    def _put(self, tally: Tally) -> None:
        self._known[tally.minute, tally.worker] = tally
        self._changed.add((tally.minute, tally.worker))
