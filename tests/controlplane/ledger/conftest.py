"""Both kinds of store, each empty."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from controlplane.ledger.postgresql_store import PostgresqlAccess, PostgresqlStore
from controlplane.ledger.sqlite_store import SqliteStore
from controlplane.ledger.store import LedgerStore
from support.postgresql import PASSWORD, RunningPostgresql, running_postgresql


@pytest.fixture(scope="session")
def postgresql() -> Iterator[RunningPostgresql]:
    """One server for all tests; each has a database of its own."""
    with running_postgresql() as server:
        yield server


@pytest.fixture
async def database(postgresql: RunningPostgresql) -> PostgresqlAccess:
    """An empty one."""
    return await new_database(postgresql)


@pytest.fixture(params=["sqlite", "postgresql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LedgerStore]:
    opened: LedgerStore
    if request.param == "sqlite":
        opened = SqliteStore(tmp_path / "state" / "ledger.sqlite")
    else:
        server: RunningPostgresql = request.getfixturevalue("postgresql")
        opened = PostgresqlStore(await new_database(server))
    yield opened
    await opened.close()


async def new_database(server: RunningPostgresql) -> PostgresqlAccess:
    await server.until_up()
    return PostgresqlAccess(await server.new_database(), PASSWORD)
