"""What is PostgreSQL's own: several control planes at once, outages, partitions, passwords that are never shown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from prometheus_client import CollectorRegistry

from controlplane.ledger import postgresql_store
from controlplane.ledger.migrations import migrations
from controlplane.ledger.postgresql_store import PostgresqlAccess, PostgresqlStore
from controlplane.ledger.query import DecisionQuery
from controlplane.ledger.store import StoreAwayError
from controlplane.ledger.writer import LedgerWriter
from controlplane.metrics import ControlPlaneMetrics
from support.ledger import BEGAN, DAY, entry, row
from support.postgresql import PASSWORD, RunningPostgresql, running_postgresql
from support.waiting import until


async def test_control_planes_that_start_at_once_migrate_once_and_all_write(
    database: PostgresqlAccess, postgresql: RunningPostgresql
) -> None:
    stores = [PostgresqlStore(database) for _ in range(4)]
    async with asyncio.TaskGroup() as tasks:
        for number, store in enumerate(stores):
            for day in range(3):
                rows = [row(BEGAN + day * DAY + n, recorder=number, tenant=f"name:{n}") for n in range(50)]
                tasks.create_task(store.write(rows, []))
    assert len(await stores[0].find(DecisionQuery(), 1000)) == 600
    async with postgresql.connection(urlsplit(database.url).path[1:]) as sql:
        assert [tuple(r) for r in await sql.fetch("SELECT number, name FROM headrace_ledger_migration")] == [
            (migration.number, migration.name) for migration in migrations("postgresql")
        ]
        shown = await sql.fetchrow("SELECT * FROM headrace_decisions WHERE tenant = 'name:7' LIMIT 1")
        assert (shown["model"], shown["reasons"], shown["score"]) == ("llama", ["neutral_prefers_full"], 12.5)
        partitions = await sql.fetch("SELECT tablename FROM pg_tables WHERE tablename LIKE 'headrace_decision_2%'")
        assert sorted(name for (name,) in partitions) == [f"headrace_decision_2026010{day}" for day in (1, 2, 3)]
    await stores[0].expire(BEGAN + 2 * DAY + 5)
    assert len(await stores[0].find(DecisionQuery(), 1000)) == 200
    late = [row(BEGAN + 500, request_id="late")]
    with pytest.raises(StoreAwayError, match="no partition"):  # it knows nothing of what the other one dropped
        await stores[1].write(late, [])
    await stores[1].write(late, [])
    assert len(await stores[0].find(DecisionQuery(), 1000)) == 201
    for store in stores:
        await store.close()


async def test_a_database_of_a_newer_headrace_is_left_alone(
    database: PostgresqlAccess, postgresql: RunningPostgresql
) -> None:
    store = PostgresqlStore(database)
    await store.write([row()], [])
    async with postgresql.connection(urlsplit(database.url).path[1:]) as sql:
        await sql.execute("INSERT INTO headrace_ledger_migration (number, name) VALUES (999, 'future')")
    await store.close()
    with pytest.raises(StoreAwayError, match="version 999, and this Headrace knows them up to 2"):
        await store.write([row()], [])


async def test_a_wrong_password_is_told_and_shown_nowhere(database: PostgresqlAccess) -> None:
    access = PostgresqlAccess(database.url, "hunter2")
    store = PostgresqlStore(access)
    with pytest.raises(StoreAwayError, match="password authentication failed") as raised:
        await store.write([row()], [])
    assert "hunter2" not in f"{raised.value} {access} {store.place}"


@pytest.fixture
def own_server() -> Iterator[RunningPostgresql]:
    with running_postgresql() as server:
        yield server


async def test_kill_and_freeze_of_the_database_lose_nothing(
    own_server: RunningPostgresql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql_store, "OPERATION_SECONDS", 1.0)
    monkeypatch.setattr(postgresql_store, "READ_SECONDS", 1.0)
    await own_server.until_up()
    store = PostgresqlStore(PostgresqlAccess(own_server.url(), PASSWORD))
    metrics = ControlPlaneMetrics(CollectorRegistry())
    writer = LedgerWriter(store, metrics, time.time, recorder=1, capacity=100_000, retention=3650 * 86400)
    task = asyncio.ensure_future(writer.run())
    count = 0

    def add(more: int) -> None:
        nonlocal count
        for _ in range(more):
            writer.add(entry(BEGAN + count, request_id=str(count)))
            count += 1

    try:
        add(2_000)
        await until(lambda: writer.written)
        own_server.kill()
        add(1_000)
        await until(lambda: writer.trouble is not None)
        with pytest.raises(StoreAwayError):
            await store.find(DecisionQuery(), 1)
        own_server.start()
        add(1_000)
        await until(lambda: writer.written == count, 30)
        own_server.freeze()
        add(10)
        await until(lambda: writer.trouble is not None)
        own_server.thaw()
        await until(lambda: writer.written == count, 30)
        assert not writer.lost
        assert len(await store.find(DecisionQuery(), 10_000)) == count
    finally:
        own_server.thaw()
        task.cancel()
        await asyncio.wait([task])
