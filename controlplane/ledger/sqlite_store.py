"""The ledger in an SQLite file, which one control plane writes. Needs nothing beside it.

A thread writes and another reads, each by a connection of its own, so that the event loop never waits for the disk. The
file is in WAL mode: readers and the writer do not hold each other up, and what was written survives the end of the
process, however it ends.

What filters look at is described in `filtering`; the rest of each row is in its message.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from controlplane.ledger.compact import pack, unpack
from controlplane.ledger.filtering import ERRORS, Term, asked_reasons, columns_of, terms_of, texts_of
from controlplane.ledger.migrations import migrations, newer_than_known
from controlplane.ledger.query import DecisionQuery
from controlplane.ledger.row import Row, row_of
from controlplane.ledger.store import MINUTE, Found, Loss, RowsRefusedError, Shortfall, StoreAwayError, Tally
from headrace_protos.headrace.v1 import decision_pb2

T = TypeVar("T")

KIND = "sqlite"
BUSY_SECONDS = 5.0
READ_SECONDS = 5.0
EXPIRED_AT_ONCE = 2_000
MOST_CODES = 50_000  # kept in memory
MOST_LOSSES = 1_000
_DAY = 86_400_000_000


class SqliteStore:
    """The file is made, with its folder, when it is first used."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._writing = _Lane("ledger-writer")
        self._reading = _Lane("ledger-reader")
        self._opening = threading.Lock()
        self._codes: OrderedDict[str, tuple[int, int]] = OrderedDict()

    @property
    def place(self) -> str:
        return f"sqlite:///{self._file}"

    async def write(self, rows: Sequence[Row], losses: Sequence[Loss], tallies: Sequence[Tally] = ()) -> None:
        await self._writing.run(lambda: self._write(rows, losses, tallies))

    async def find(self, query: DecisionQuery, limit: int) -> list[Found]:
        return await self._reading.run(lambda: self._find(query, limit), READ_SECONDS)

    async def losses(self, since: int | None, until: int | None) -> list[Loss]:
        return await self._reading.run(lambda: self._losses(since, until), READ_SECONDS)

    async def shortfalls(self, since: int, until: int | None) -> list[Shortfall]:
        return await self._reading.run(lambda: self._shortfalls(since, until), READ_SECONDS)

    async def expire(self, before: int) -> bool:
        return await self._writing.run(lambda: self._expire(before))

    async def close(self) -> None:
        await self._reading.close()
        await self._writing.close()

    def _open(self) -> sqlite3.Connection:
        """One after the other: who turns WAL mode on waits for nobody."""
        with self._opening:
            return _opened(self._file)

    # --- in the writing thread ---------------------------------------------------------------------------------------

    def _write(self, rows: Sequence[Row], losses: Sequence[Loss], tallies: Sequence[Tally]) -> None:
        with self._transaction() as connection:
            try:
                texts = [texts_of(row) for row in rows]
                # Few rows have texts that no other of the batch has.
                used = {of_row: row.recorded for row, of_row in zip(rows, texts, strict=True)}
                codes = {
                    alike: [self._code(connection, text, recorded) for text in alike]
                    for alike, recorded in used.items()
                }
                connection.executemany(
                    "INSERT OR IGNORE INTO decision VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    [(row.recorded, *columns_of(row, codes[of_row])) for row, of_row in zip(rows, texts, strict=True)],
                )
                connection.executemany(
                    "INSERT OR IGNORE INTO message VALUES (?, ?, ?)",
                    [
                        (row.recorded, row.recorder, packed)
                        for row, packed in zip(rows, pack(row.message for row in rows), strict=True)
                    ],
                )
                connection.executemany("INSERT OR IGNORE INTO loss VALUES (?, ?, ?, ?, ?)", losses)
                connection.executemany("INSERT OR REPLACE INTO worker_minute VALUES (?, ?, ?, ?, ?, ?)", tallies)
            except (sqlite3.IntegrityError, sqlite3.DataError, OverflowError, UnicodeEncodeError) as error:
                raise RowsRefusedError(f"{type(error).__name__}: {error}") from error

    def _code(self, connection: sqlite3.Connection, text: str, recorded: int) -> int:
        known = self._codes.get(text)
        if known is not None and recorded - known[1] < _DAY:
            return known[0]
        found: tuple[int, int] | None = connection.execute(
            "SELECT code, used FROM text WHERE text = ?", (text,)
        ).fetchone()
        if found is None:
            cursor = connection.execute("INSERT INTO text (text, used) VALUES (?, ?)", (text, recorded))
            assert cursor.lastrowid is not None
            known = cursor.lastrowid, recorded
        elif recorded - found[1] >= _DAY:
            connection.execute("UPDATE text SET used = ? WHERE code = ?", (recorded, found[0]))
            known = found[0], recorded
        else:
            known = found
        self._codes[text] = known
        self._codes.move_to_end(text)
        if len(self._codes) > MOST_CODES:
            self._codes.popitem(last=False)
        return known[0]

    def _expire(self, before: int) -> bool:
        with self._transaction() as connection:
            oldest = connection.execute(
                "SELECT recorded FROM decision WHERE recorded < ? ORDER BY recorded LIMIT 1 OFFSET ?",
                (before, EXPIRED_AT_ONCE),
            ).fetchone()
            bound = before if oldest is None else oldest[0]
            connection.execute("DELETE FROM decision WHERE recorded < ?", (bound,))
            connection.execute("DELETE FROM message WHERE recorded < ?", (bound,))
            connection.execute("DELETE FROM loss WHERE ended < ?", (bound,))
            connection.execute("DELETE FROM worker_minute WHERE minute < ?", (bound // MINUTE,))
            if oldest is None:
                # What was used later than a day before may be in use since, which is not written down each time.
                connection.execute("DELETE FROM text WHERE used < ?", (before - _DAY,))
                self._codes.clear()
        return oldest is not None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._writing.connection
        if connection is None:
            connection = self._writing.connection = self._open()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            # Codes that were given in this transaction are none any more.
            self._codes.clear()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    # --- in the reading thread ---------------------------------------------------------------------------------------

    def _find(self, query: DecisionQuery, limit: int) -> list[Found]:
        connection = self._reader()
        terms = _terms(connection, query)
        if terms is None:
            return []
        # Said of a status of 400 or more, too, since the index of errors is only taken where its own condition stands.
        errors = query.errors_only or query.status_from >= 400
        where = [_written(term) for term in terms] + ([ERRORS] if errors else [])
        if query.session:
            where.append("session <> 0")  # which the index is of
        values = [value for term in terms for value in (term.value if isinstance(term.value, list) else [term.value])]
        keys = connection.execute(
            f"SELECT recorded, recorder FROM decision WHERE {' AND '.join(where) or 'true'} "  # noqa: S608
            "ORDER BY recorded DESC, recorder DESC",
            values,
        )
        by_hash = bool(query.session or query.request_id)
        found: list[Found] = []
        for recorded, recorder in keys:
            if len(found) == limit:
                break
            (packed,) = connection.execute(
                "SELECT message FROM message WHERE recorded = ? AND recorder = ?", (recorded, recorder)
            ).fetchone()
            message = unpack(packed)
            if not by_hash or query.matches(row_of(decision_pb2.RecordedDecision.FromString(message))):
                found.append(Found(recorded, recorder, message))
        return found

    def _losses(self, since: int | None, until: int | None) -> list[Loss]:
        rows = self._reader().execute(
            "SELECT * FROM loss WHERE ended >= ? AND began < ? ORDER BY ended DESC LIMIT ?",
            (since or 0, until if until is not None else 2**62, MOST_LOSSES),
        )
        return [Loss(*row) for row in rows]

    def _shortfalls(self, since: int, until: int | None) -> list[Shortfall]:
        rows = self._reader().execute(
            "SELECT minute, worker, max(made) - sum(written + lost) AS short FROM worker_minute "
            "WHERE minute >= ? AND minute < ? GROUP BY minute, worker HAVING short > 0 ORDER BY minute, worker",
            (since, until if until is not None else 2**62),
        )
        return [Shortfall(*row) for row in rows]

    def _reader(self) -> sqlite3.Connection:
        connection = self._reading.connection
        if connection is None:
            connection = self._reading.connection = self._open()
        return connection


class _Lane:
    """One thread with one connection, which is opened anew after a failure."""

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix=name)
        self.connection: sqlite3.Connection | None = None

    async def run(self, work: Callable[[], T], seconds: float | None = None) -> T:
        """Does work in the thread; what takes longer than `seconds` is interrupted. Raises StoreAwayError."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, self._interrupt) if seconds is not None else None
        try:
            return await asyncio.shield(loop.run_in_executor(self._threads, self._guarded, work))
        finally:
            if timer is not None:
                timer.cancel()

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, self._disconnect)
        self._threads.shutdown()

    def _guarded(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (sqlite3.Error, OSError) as error:
            self._disconnect()
            told = "the search took too long; narrow it down, as to a shorter time"
            raise StoreAwayError(told if str(error) == "interrupted" else str(error)) from error

    def _disconnect(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def _interrupt(self) -> None:
        if self.connection is not None:
            self.connection.interrupt()


def _opened(file: Path) -> sqlite3.Connection:
    """With its tables."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # Transactions are begun by hand; the connection stays in its thread, but for being interrupted.
    connection = sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")  # a crash of the machine may cost the last moments
        connection.execute("PRAGMA cache_size = -65536")  # in KiB, when negative
        # Ids are written all over their indexes: rarer checkpoints write fewer of the same pages again.
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        connection.execute("PRAGMA mmap_size = 1073741824")
        _migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection) -> None:
    """In one transaction; whoever else migrates at once is waited for."""
    known = migrations(KIND)[-1].number
    if _version(connection) == known:
        return
    connection.execute("BEGIN IMMEDIATE")
    version = _version(connection)
    if version > known:
        raise StoreAwayError(newer_than_known(KIND, version))
    for migration in migrations(KIND):
        if migration.number > version:
            for statement in _statements(migration.sql):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {migration.number}")
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _statements(sql: str) -> Iterator[str]:
    """`executescript` would end the transaction."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _terms(connection: sqlite3.Connection, query: DecisionQuery) -> list[Term] | None:
    texts = [query.model, query.pool, query.tier, query.tenant, query.verdict]
    codes = connection.execute(f"SELECT text, code FROM text WHERE text IN ({_places(texts)})", texts)  # noqa: S608
    asked = asked_reasons(query)
    holds = " AND ".join(["instr(text, ?)"] * len(asked)) or "false"
    reasons = connection.execute(f"SELECT code FROM text WHERE {holds}", asked)  # noqa: S608
    return terms_of(query, dict(codes.fetchall()), [code for (code,) in reasons])


def _written(term: Term) -> str:
    if isinstance(term.value, list):
        return f"{term.column} IN ({_places(term.value)})"
    return f"{term.column} {term.operator} ?"


def _places(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
