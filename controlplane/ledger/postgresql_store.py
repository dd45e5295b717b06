"""The ledger in PostgreSQL 13 or newer, which any number of control planes of one fleet write and read.

Tables are partitioned by days of UTC, so that what is too old is dropped whole. What must not be done by two control
planes at once is done under an advisory lock.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from controlplane.ledger.compact import pack, unpack
from controlplane.ledger.detail import detail_of
from controlplane.ledger.filtering import CODED, ERRORS, Term, asked_reasons, columns_of, terms_of, texts_of
from controlplane.ledger.migrations import migrations, newer_than_known
from controlplane.ledger.query import DecisionQuery
from controlplane.ledger.row import Row, row_of
from controlplane.ledger.store import MINUTE, Found, Loss, RowsRefusedError, Shortfall, StoreAwayError, Tally
from headrace_protos.headrace.v1 import decision_pb2

KIND = "postgresql"
CONNECT_SECONDS = 5.0
OPERATION_SECONDS = 10.0
READ_SECONDS = 5.0
MOST_LOSSES = 1_000

# Of pg_advisory_lock; any number that nobody else uses in the same database.
_LOCK = 0x6865616472616365
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PARTITIONED = ("headrace_decision", "headrace_decision_detail")
# The columns of each table with their types; those of `flags` come as one text.
_KEY = {"recorded": "timestamptz", "recorder": "bigint"}
_DECISION = _KEY | {
    "status": "smallint",
    **dict.fromkeys(("model", "pool", "tier", "tenant", "verdict", "reasons"), "integer"),
    **dict.fromkeys(("session", "request"), "bigint"),
}
_DETAIL = _KEY | {
    **dict.fromkeys(("session", "request_id", "endpoint", "action", "pinned"), "text"),
    "stream": "boolean",
    "score": "double precision",
    **dict.fromkeys(("budget_prompt_tokens", "budget_output_tokens"), "bigint"),
    **dict.fromkeys(("cluster", "upstream", "node_id"), "text"),
    "started": "timestamptz",
    **dict.fromkeys(("duration", "first_byte"), "double precision"),
    **dict.fromkeys(("prompt_tokens", "completion_tokens", "attempts"), "bigint"),
    "flags": "text",
    "message": "bytea",
}
_TALLY = {"minute": "bigint", "worker": "text", **dict.fromkeys(("recorder", "made", "written", "lost"), "bigint")}
_LOSS = {"began": "timestamptz", "ended": "timestamptz", "recorder": "bigint", "cause": "text", "decisions": "bigint"}

# How many of the newest decisions are looked through one by one, before all of them are.
_NEWEST = 10_000
_MOST_CODES = 50_000  # kept in memory
_DAY = 86_400_000_000


_OF_THE_CLIENT = (asyncpg.InterfaceError, asyncpg.InternalClientError)
_FAILURES = (asyncpg.PostgresError, *_OF_THE_CLIENT)
_Connection = Any  # of asyncpg, which has no types


@dataclass(frozen=True, slots=True)
class PostgresqlAccess:
    """`url` is postgresql://user@host:port/database, with ?host=/folder for a Unix socket. With `ca_file` the server
    must show a certificate that it signed; without it TLS is used where the server offers it, unverified."""

    url: str
    password: str | None = None
    ca_file: str | None = None

    def __repr__(self) -> str:
        """Without the password."""
        return f"PostgresqlAccess({self.url!r})"


class PostgresqlStore:
    """Connects when it is first used, and again after each failure."""

    def __init__(self, access: PostgresqlAccess) -> None:
        self._access = access
        self._writing = _Line(access, self._begin)
        self._reading = _Line(access, lambda: None)
        self._days: set[date] = set()
        self._codes: dict[str, tuple[int, int]] = {}

    @property
    def place(self) -> str:
        return self._access.url

    async def write(self, rows: Sequence[Row], losses: Sequence[Loss], tallies: Sequence[Tally] = ()) -> None:
        async with self._writing.connection(OPERATION_SECONDS) as connection:
            texts = [texts_of(row) for row in rows]
            codes = await self._codes_of(connection, rows, texts)
            decisions, details = await asyncio.to_thread(_records, rows, texts, codes)
            await self._make_partitions(connection, {record[0].date() for record in decisions} - self._days)
            async with _transaction(connection):
                try:
                    await _insert(connection, "headrace_decision", _DECISION, decisions)
                    await _insert(connection, "headrace_decision_detail", _DETAIL, details)
                    await _insert(connection, "headrace_ledger_loss", _LOSS, [_loss_record(loss) for loss in losses])
                    await _keep_tallies(connection, tallies)
                except (asyncpg.DataError, asyncpg.ProgramLimitExceededError) as error:
                    raise RowsRefusedError(f"{type(error).__name__}: {error}") from error

    async def find(self, query: DecisionQuery, limit: int) -> list[Found]:
        async with self._reading.connection(READ_SECONDS) as connection:
            terms = await self._terms(connection, query)
            if terms is None:
                return []
            where, values = _written(terms)
            if query.errors_only:
                where += f" AND {ERRORS}"
            # Left to itself, the planner walks all decisions from the newest on, when it wrongly believes that many
            # match. So a few are walked, and if that is not enough, all are found and then sorted.
            walked = f"""
                SELECT recorded, recorder FROM (
                    SELECT * FROM headrace_decision ORDER BY recorded DESC, recorder DESC LIMIT {_NEWEST}
                ) AS newest WHERE {where} ORDER BY recorded DESC, recorder DESC LIMIT {limit}
            """  # noqa: S608
            searched = f"""
                SELECT recorded, recorder FROM headrace_decision WHERE {where}
                ORDER BY recorded + interval '0' DESC, recorder DESC LIMIT {limit}
            """  # noqa: S608
            keys = await connection.fetch(walked, *values) if limit <= _NEWEST and not _is_indexed(terms) else []
            if len(keys) < limit:
                keys = await connection.fetch(searched, *values)
            details = await connection.fetch(
                "SELECT recorded, recorder, message FROM headrace_decision_detail "
                "JOIN unnest($1::timestamptz[], $2::bigint[]) AS key (recorded, recorder) USING (recorded, recorder) "
                "WHERE recorded BETWEEN $3 AND $4 ORDER BY recorded DESC, recorder DESC",
                [recorded for recorded, _ in keys],
                [recorder for _, recorder in keys],
                min((recorded for recorded, _ in keys), default=_EPOCH),
                max((recorded for recorded, _ in keys), default=_EPOCH),
            )
        found = [Found(_microseconds(r["recorded"]), r["recorder"], unpack(r["message"])) for r in details]
        if not (query.session or query.request_id):
            return found
        return [each for each in found if query.matches(row_of(decision_pb2.RecordedDecision.FromString(each.message)))]

    async def losses(self, since: int | None, until: int | None) -> list[Loss]:
        async with self._reading.connection(READ_SECONDS) as connection:
            found = await connection.fetch(
                "SELECT * FROM headrace_ledger_loss WHERE ended >= $1 AND began < $2 ORDER BY ended DESC LIMIT $3",
                _moment(since or 0),
                _moment(until) if until is not None else datetime.max.replace(tzinfo=UTC),
                MOST_LOSSES,
            )
        return [Loss(_microseconds(began), _microseconds(ended), *rest) for began, ended, *rest in found]

    async def shortfalls(self, since: int, until: int | None) -> list[Shortfall]:
        async with self._reading.connection(READ_SECONDS) as connection:
            found = await connection.fetch(
                "SELECT minute, worker, (max(made) - sum(written + lost))::bigint FROM headrace_worker_minute "
                "WHERE minute >= $1 AND minute < $2 GROUP BY minute, worker HAVING max(made) > sum(written + lost) "
                "ORDER BY minute, worker",
                since,
                until if until is not None else 2**62,
            )
        return [Shortfall(*row) for row in found]

    async def expire(self, before: int) -> bool:
        """Whole days only, so a little less than asked for."""
        last = _moment(before).date()
        async with self._writing.connection(OPERATION_SECONDS) as connection, _transaction(connection):
            # A long query holds a lock that dropping waits for, and all others would wait behind that.
            await connection.execute("SET LOCAL lock_timeout = '2s'")
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            for parent in _PARTITIONED:
                for name in await self._partitions(connection, parent):
                    if datetime.strptime(name[-8:], "%Y%m%d").replace(tzinfo=UTC).date() < last:
                        await connection.execute(f"DROP TABLE {name}")
            await connection.execute("DELETE FROM headrace_ledger_loss WHERE ended < $1", _moment(before))
            await connection.execute("DELETE FROM headrace_worker_minute WHERE minute < $1", before // MINUTE)
            # What was used later than a day before may be in use since, which is not written down each time.
            await connection.execute("DELETE FROM headrace_text WHERE used < $1", _moment(before - 2 * _DAY))
            self._days.clear()
        return False

    async def close(self) -> None:
        self._reading.drop()
        self._writing.drop()

    def _begin(self) -> None:
        """What comes back after a failure may be another database, with other codes and days."""
        self._codes.clear()
        self._days.clear()

    async def _codes_of(
        self, connection: _Connection, rows: Sequence[Row], texts: Sequence[Sequence[str]]
    ) -> dict[str, int]:
        """Of all texts of the rows; those that have none yet get one, whatever becomes of the rows."""
        used = {text: row.recorded for row, of_row in zip(rows, texts, strict=True) for text in of_row}
        unsure = sorted(text for text, at in used.items() if at - self._codes.get(text, (0, 0))[1] >= _DAY)
        if unsure:  # in order, so that control planes that do the same do not lock each other out
            if len(self._codes) > _MOST_CODES:
                self._codes.clear()
                unsure = sorted(used)
            given = await connection.fetch(
                "INSERT INTO headrace_text AS known (text, used) SELECT * FROM unnest($1::text[], $2::timestamptz[]) "
                "ON CONFLICT (text) DO UPDATE SET used = greatest(known.used, excluded.used) RETURNING text, code",
                unsure,
                [_moment(used[text]) for text in unsure],
            )
            self._codes |= {text: (code, used[text]) for text, code in given}
        return {text: self._codes[text][0] for text in used}

    async def _terms(self, connection: _Connection, query: DecisionQuery) -> list[Term] | None:
        codes = await connection.fetch(
            "SELECT text, code FROM headrace_text WHERE text = ANY ($1)",
            [getattr(query, column) for column in CODED],
        )
        reasons = []
        if asked := asked_reasons(query):
            reasons = await connection.fetch(
                "SELECT code FROM headrace_text WHERE "
                "(SELECT bool_and(position(word in text) > 0) FROM unnest($1::text[]) AS word)",
                asked,
            )
        return terms_of(query, dict(map(tuple, codes)), [code for (code,) in reasons])

    async def _make_partitions(self, connection: _Connection, days: set[date]) -> None:
        if not days:
            return
        async with _transaction(connection):
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            for parent in _PARTITIONED:
                there = set(await self._partitions(connection, parent))
                for day in days:
                    name = f"{parent}_{day:%Y%m%d}"
                    if name not in there:
                        await connection.execute(
                            f"CREATE TABLE {name} PARTITION OF {parent} "
                            f"FOR VALUES FROM ('{day} 00:00:00Z') TO ('{day + timedelta(days=1)} 00:00:00Z')"
                        )
        self._days |= days

    @staticmethod
    async def _partitions(connection: _Connection, parent: str) -> list[str]:
        found = await connection.fetch(
            "SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE inhparent = $1::regclass", parent
        )
        return [name for (name,) in found]


class _Line:
    """One connection, for one operation at a time; made when it is needed, and anew after each failure."""

    def __init__(self, access: PostgresqlAccess, begin: Callable[[], None]) -> None:
        self._access = access
        self._begin = begin
        self._free = asyncio.Lock()
        self._connection: _Connection = None

    @asynccontextmanager
    async def connection(self, seconds: float) -> AsyncIterator[_Connection]:
        """For an operation that may take so long. Raises StoreAwayError.

        Ending the connection ends whatever waits for a server that is stuck; a cancelled wait would wait for it again.
        """
        async with self._free:
            timer: asyncio.TimerHandle | None = None
            try:
                if self._connection is None:
                    self._connection = await _connected(self._access)
                    self._begin()
                timer = asyncio.get_running_loop().call_later(seconds, self._connection.terminate)
                yield self._connection
            except (RowsRefusedError, StoreAwayError):
                raise
            except BaseException as error:
                late = timer is not None and timer.when() <= asyncio.get_running_loop().time()
                self.drop()
                if isinstance(error, (OSError, TimeoutError, *_FAILURES)):
                    raise StoreAwayError(f"it took longer than {seconds:g} s" if late else _told(error)) from error
                raise
            finally:
                if timer is not None:
                    timer.cancel()

    def drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


async def _connected(access: PostgresqlAccess) -> _Connection:
    """To a database that has all tables."""
    async with asyncio.timeout(CONNECT_SECONDS):
        connection = await asyncpg.connect(
            server_settings={"application_name": "headrace", "TimeZone": "UTC"}, **_arguments(access)
        )
        try:
            await _migrate(connection)
        except BaseException:
            connection.terminate()
            raise
    return connection


@asynccontextmanager
async def _transaction(connection: _Connection) -> AsyncIterator[None]:
    await connection.execute("BEGIN")
    try:
        yield
    except RowsRefusedError:
        await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")


async def _migrate(connection: _Connection) -> None:
    async with _transaction(connection):
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS headrace_ledger_migration "
            "(number integer PRIMARY KEY, name text NOT NULL, done timestamptz NOT NULL DEFAULT now())"
        )
        version = await connection.fetchval("SELECT coalesce(max(number), 0) FROM headrace_ledger_migration")
        if version > migrations(KIND)[-1].number:
            raise StoreAwayError(newer_than_known(KIND, version))
        for migration in migrations(KIND):
            if migration.number > version:
                await connection.execute(migration.sql)
                await connection.execute(
                    "INSERT INTO headrace_ledger_migration (number, name) VALUES ($1, $2)",
                    migration.number,
                    migration.name,
                )


def _arguments(access: PostgresqlAccess) -> dict[str, Any]:
    """Spelled out, since a URL would let the environment and files of this user have a say."""
    parts = urlsplit(access.url)
    arguments: dict[str, Any] = {
        "host": parse_qs(parts.query).get("host", [parts.hostname or "localhost"])[0],
        "port": parts.port or 5432,
        "user": unquote(parts.username or "postgres"),
        "database": unquote(parts.path.removeprefix("/")),
        "password": access.password or "",
        "ssl": "prefer",
    }
    if access.ca_file is not None:
        arguments["ssl"] = ssl.create_default_context(cafile=access.ca_file)
    elif str(arguments["host"]).startswith("/"):
        arguments["ssl"] = False
    return arguments


async def _insert(
    connection: _Connection, table: str, columns: Mapping[str, str], records: Sequence[tuple[Any, ...]]
) -> None:
    """Column by column in one statement, which is nearly as fast as COPY, and leaves rows that are there already."""
    if records:
        names = ", ".join(columns)
        values = names.replace("flags", "string_to_array(flags, ' ')")
        arrays = ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(columns.values(), 1))
        await connection.execute(
            f"INSERT INTO {table} ({names}) SELECT {values} FROM unnest({arrays}) AS r ({names}) "  # noqa: S608
            "ON CONFLICT DO NOTHING",
            *zip(*records, strict=True),
        )


async def _keep_tallies(connection: _Connection, tallies: Sequence[Tally]) -> None:
    if tallies:
        names = ", ".join(_TALLY)
        arrays = ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(_TALLY.values(), 1))
        await connection.execute(
            f"INSERT INTO headrace_worker_minute ({names}) SELECT * FROM unnest({arrays}) "  # noqa: S608
            "ON CONFLICT (minute, worker, recorder) DO UPDATE "
            "SET made = excluded.made, written = excluded.written, lost = excluded.lost",
            *zip(*tallies, strict=True),
        )


def _records(
    rows: Sequence[Row], texts: Sequence[Sequence[str]], codes: Mapping[str, int]
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Of both tables, in the order of _DECISION and _DETAIL."""
    decisions: list[tuple[Any, ...]] = []
    details: list[tuple[Any, ...]] = []
    for row, of_row, packed in zip(rows, texts, pack(row.message for row in rows), strict=True):
        recorded = _moment(row.recorded)
        decisions.append((recorded, *columns_of(row, [codes[text] for text in of_row])))
        detail = detail_of(row)
        shown = detail._asdict() | {"started": _moment(detail.started), "flags": " ".join(detail.flags)}
        details.append((recorded, row.recorder, row.session, row.request_id, *shown.values(), packed))
    return decisions, details


def _loss_record(loss: Loss) -> tuple[Any, ...]:
    return _moment(loss.began), _moment(loss.ended), loss.recorder, loss.cause, loss.decisions


def _moment(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _told(error: Exception) -> str:
    text = (str(error) or type(error).__name__).splitlines()[0]
    # Of asyncpg itself, whose words for a connection that broke depend on what was going on.
    return f"the connection broke: {text}" if isinstance(error, _OF_THE_CLIENT) else text


def _written(terms: Sequence[Term]) -> tuple[str, list[Any]]:
    parts: list[str] = []
    values: list[Any] = []
    for column, operator, value in terms:
        values.append(_moment(value) if column == "recorded" and isinstance(value, int) else value)
        parts.append(f"{column} = ANY (${len(values)})" if operator == "in" else f"{column} {operator} ${len(values)}")
    if any(term.column == "session" for term in terms):
        parts.append("session <> 0")  # which the index is of
    return " AND ".join(parts) or "true", values


def _is_indexed(terms: Sequence[Term]) -> bool:
    """Whether hardly any decision matches, and an index finds them."""
    return any(term.column in {"session", "request"} for term in terms)
