"""One connection to a real server for any number of callers: who gets which answer, and how it ends."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ext_proc import redis_connection
from ext_proc.redis_connection import RedisAccess, RedisConnection, Refused, greeting, open_connection
from support.certificates import Authority
from support.filter import cancelled
from support.redis_server import RunningRedis, running_redis


@pytest.fixture
async def server() -> AsyncIterator[RunningRedis]:
    async with running_redis() as running:
        yield running


@asynccontextmanager
async def connected(access: RedisAccess) -> AsyncIterator[RedisConnection]:
    connection = await open_connection(access)
    assert await connection.begin(greeting(access)) is None
    taking = asyncio.create_task(connection.take_answers())
    try:
        yield connection
    finally:
        await cancelled(taking)


async def test_each_caller_gets_its_own_answer_whichever_kind_it_is(server: RunningRedis) -> None:
    async with connected(RedisAccess(server.url)) as connection:
        assert await asyncio.gather(
            connection.ask(b"SET", b"a", b"1\r\n2"),
            connection.ask(b"GET", b"a"),
            connection.ask(b"GET", b"none"),
            connection.ask(b"INCR", b"count"),
            connection.ask(b"SET", b"empty", b""),
            connection.ask(b"GET", b"empty"),
        ) == [b"OK", b"1\r\n2", None, b"1", b"OK", b""]
        refused = await connection.ask(b"INCR", b"a")
        assert isinstance(refused, Refused)
        assert "not an integer" in refused.message


async def test_any_number_of_callers_share_one_connection(server: RunningRedis) -> None:
    async with connected(RedisAccess(server.url)) as connection:
        await connection.ask(b"SET", b"a", b"1")
        assert set(await asyncio.gather(*(connection.ask(b"GET", b"a") for _ in range(2000)))) == {b"1"}
        clients = await connection.ask(b"INFO", b"clients")
        assert isinstance(clients, bytes)
        assert b"connected_clients:1\r\n" in clients


async def test_an_answer_whose_caller_has_gone_is_nobody_elses(server: RunningRedis) -> None:
    async with connected(RedisAccess(server.url)) as connection:
        for number in range(50):
            await connection.ask(b"SET", b"%d" % number, b"value %d" % number)
        for round_ in range(5):
            asking = [asyncio.create_task(connection.ask(b"GET", b"%d" % number)) for number in range(50)]
            for _ in range(round_):
                await asyncio.sleep(0)
            for gone in asking[::2]:
                gone.cancel()
            answers = await asyncio.gather(*asking, return_exceptions=True)
            assert answers[1::2] == [b"value %d" % number for number in range(1, 50, 2)]


async def test_all_callers_are_told_at_once_when_the_server_dies(server: RunningRedis) -> None:
    async with connected(RedisAccess(server.url)) as connection:
        server.freeze()
        asking = [asyncio.create_task(connection.ask(b"GET", b"a")) for _ in range(10)]
        await asyncio.sleep(0)
        await server.kill()
        results = await asyncio.gather(*asking, return_exceptions=True)
        assert {type(result) for result in results} == {ConnectionError}
        with pytest.raises(ConnectionError):
            await connection.ask(b"GET", b"a")


async def test_a_server_that_falls_silent_is_noticed_while_nobody_asks(
    server: RunningRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_connection, "SILENCE_SECONDS", 0.1)
    connection = await open_connection(RedisAccess(server.url))
    taking = asyncio.create_task(connection.take_answers())
    done, _ = await asyncio.wait([taking], timeout=0.5)
    assert not done  # it is asked whether it is there, and answers
    server.freeze()
    with pytest.raises(TimeoutError, match="silent"):
        await taking


async def test_a_server_of_another_kind_is_called_so() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        connection = await open_connection(RedisAccess(f"redis://127.0.0.1:{port}"))
        with pytest.raises(ValueError, match="is no Redis"):
            await connection.begin([(b"PING",)])


async def test_an_answer_that_nobody_asked_for_ends_the_connection() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"+OK\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        connection = await open_connection(RedisAccess(f"redis://127.0.0.1:{port}"))
        with pytest.raises(ValueError, match="nobody had asked"):
            await connection.take_answers()
        with pytest.raises(ConnectionError):
            await connection.ask(b"PING")


@pytest.mark.parametrize(
    ("username", "password", "right"),
    [("alice", "sesame", True), (None, "open", True), ("alice", "open", False), (None, None, False)],
)
async def test_users_and_passwords(username: str | None, password: str | None, right: bool) -> None:
    async with running_redis("--requirepass", "open", "--user", "alice", "on", ">sesame", "~*", "+@all") as server:
        access = RedisAccess(server.url, username, password)
        connection = await open_connection(access)
        refused = await connection.begin([*greeting(access), (b"SET", b"a", b"1")])
        assert (refused is None) is right
        connection.lose(ConnectionError("closed"))


async def test_the_databases_of_a_server_are_apart(server: RunningRedis) -> None:
    async with (
        connected(RedisAccess(f"{server.url}?db=1")) as one,
        connected(RedisAccess(server.url)) as other,
    ):
        await one.ask(b"SET", b"a", b"1")
        assert await other.ask(b"GET", b"a") is None
    assert list(greeting(RedisAccess("redis://h:1/7"))) == [(b"SELECT", b"7")]
    assert list(greeting(RedisAccess("redis://h:1/"))) == []


async def test_tls_trusts_the_authority_that_is_named_and_no_other(server: RunningRedis, tmp_path: Path) -> None:
    for name in ("ours", "others"):
        (tmp_path / name).mkdir()
    ours, others = Authority(tmp_path / "ours"), Authority(tmp_path / "others")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*ours.issue("store"))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_unix_connection(server.url.removeprefix("unix://"))
        to_writer.write(await reader.readuntil(b"PING\r\n"))
        writer.write(await to_reader.readuntil(b"\r\n"))
        await writer.drain()
        for each in (to_writer, writer):
            each.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as relay:
        url = f"rediss://127.0.0.1:{relay.sockets[0].getsockname()[1]}"
        connection = await open_connection(RedisAccess(url, ca_file=str(ours.file)))
        assert await connection.begin([(b"PING",)]) is None
        connection.lose(ConnectionError("closed"))
        with pytest.raises(ssl.SSLCertVerificationError):
            await open_connection(RedisAccess(url, ca_file=str(others.file)))


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(RedisAccess("redis://h", password="secret"))
