"""What the ledger has not is told apart from what it cannot have yet."""

from __future__ import annotations

import asyncio
from pathlib import Path

from controlplane.ledger.sqlite_store import SqliteStore
from controlplane.ledger.store import Tally
from controlplane.ledger.unrecorded import ON_THE_WAY_SECONDS, UnrecordedWatch
from controlplane.messages import timestamp
from headrace_protos.headrace.v1 import fleet_pb2
from support.waiting import until

NOW = 1_000_000 * 60.0


async def test_decisions_are_overdue_once_their_requests_must_be_over(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "ledger.sqlite")
    minute = int(NOW / 60)
    await store.write([], [], [Tally(minute - n, "w", 1, made=2 + n, written=1, lost=0) for n in range(4)])
    now = NOW + 1.0
    watch = UnrecordedWatch(store, lambda: now, longest_request=60.0)
    assert await watch.between(None, None) == fleet_pb2.Unrecorded(
        decisions=1 + 2 + 3 + 4, overdue=4, last_overdue=timestamp(NOW - 120.0)
    )
    now = NOW + 60.0 + ON_THE_WAY_SECONDS
    assert (await watch.between(None, None)).overdue == 2 + 3 + 4
    assert (await watch.between(None, int((NOW - 90.0) * 1e6))).decisions == 3 + 4
    assert (await watch.between(int((NOW + 59.0) * 1e6), None)).decisions == 1
    await store.close()


async def test_it_keeps_looking_and_a_store_that_is_away_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    store = SqliteStore(folder / "ledger.sqlite")
    await store.write([], [], [Tally(int(NOW / 60), "w", 1, made=2, written=1, lost=0)])
    told: list[int] = []
    watch = UnrecordedWatch(store, lambda: NOW, longest_request=60.0)
    task = asyncio.ensure_future(watch.run(lambda found: told.append(found.decisions)))
    await until(lambda: told == [1])
    task.cancel()
    await asyncio.wait([task])
    await store.close()
    assert watch.latest == fleet_pb2.Unrecorded(decisions=1)
