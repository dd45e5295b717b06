"""A Redis that dies, hangs or refuses, as requests meet it: all go on, and none waits for longer than it may.

On uvloop, as filters run: to write to a transport that was just closed is an error there, and nothing to asyncio's.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import uvloop
from redis.asyncio import Redis

from controlplane.errors import UnavailableError
from controlplane.policy.settings import Policy, Tenant, TenantRules
from ext_proc import fallback_pins, redis_link
from ext_proc.answer import Route
from ext_proc.fallback_pins import FallbackPins
from ext_proc.limits import RateLimits
from ext_proc.pins import MemoryPins
from ext_proc.redis_connection import RedisAccess, RedisConnection, open_connection
from ext_proc.redis_debts import RedisDebts
from ext_proc.redis_link import RedisLink
from ext_proc.redis_pins import RedisPins
from support.asks import make_pool, make_request, make_table
from support.filter import Decided, cancelled, new_router, not_extended
from support.redis_server import RunningRedis, running_redis
from support.waiting import until

TIMEOUT = 0.5
# Envoy gives up an answer after 4 s. A request asks twice and is charged once.
LONGEST_SECONDS = 3.0
CLIENTS = 10
# Of a client between two requests, so that other processes have their turn too.
PAUSE_SECONDS = 0.005
ACME = Tenant("acme", requests_per_minute=1_000_000)
TABLE = make_table(make_pool("full"), policy=Policy(tenants=TenantRules("x-tenant", known=(ACME,))))
CHAT = {"model": "llama", "messages": [{"role": "user", "content": "Hi."}], "temperature": 0}


@dataclass(frozen=True, slots=True)
class Trouble:
    """How a server goes bad, and well again; `admin` talks to it."""

    begin: Callable[[RunningRedis, Redis], Awaitable[Any]]
    end: Callable[[RunningRedis, Redis], Awaitable[Any]]


async def kill(server: RunningRedis, _: Redis) -> None:
    await server.kill()


async def start(server: RunningRedis, _: Redis) -> None:
    await server.start()


async def freeze(server: RunningRedis, _: Redis) -> None:
    server.freeze()


async def thaw(server: RunningRedis, _: Redis) -> None:
    server.thaw()


async def fill(_: RunningRedis, admin: Redis) -> None:
    await admin.config_set("maxmemory", 1)


async def make_room(_: RunningRedis, admin: Redis) -> None:
    await admin.config_set("maxmemory", 0)


async def demote(_: RunningRedis, admin: Redis) -> None:
    await admin.replicaof("127.0.0.1", "1")


async def promote(_: RunningRedis, admin: Redis) -> None:
    await admin.replicaof("NO", "ONE")


async def refuse_all(server: RunningRedis, admin: Redis) -> None:
    """It says MASTERDOWN to every command, as one that reads its data says LOADING."""
    await admin.config_set("replica-serve-stale-data", "no")
    await demote(server, admin)


async def shut_out(_: RunningRedis, admin: Redis) -> None:
    """No more clients than the one that is in charge, and those that there are leave."""
    await admin.config_set("maxclients", 1)
    await admin.client_kill_filter(_type="normal", skipme=True)


async def let_in(_: RunningRedis, admin: Redis) -> None:
    await admin.config_set("maxclients", 100)


TROUBLES = {
    "killed": Trouble(kill, start),
    "hangs": Trouble(freeze, thaw),
    "OOM": Trouble(fill, make_room),
    "READONLY": Trouble(demote, promote),
    "MASTERDOWN": Trouble(refuse_all, promote),
    "too many clients": Trouble(shut_out, let_in),
}


@contextmanager
def shorter_pauses() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fallback_pins, "TRY_AGAIN_SECONDS", 0.05)
        patch.setattr(redis_link, "CONNECT_SECONDS", 0.2)
        yield


def on_uvloop(running: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(running)


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
def test_requests_go_on_while_the_store_is_in_trouble_and_it_is_used_again_afterwards(trouble: Trouble) -> None:
    with shorter_pauses():
        on_uvloop(requests_go_on(trouble, rounds=3))


async def requests_go_on(trouble: Trouble, rounds: int) -> None:
    observer = Decided()
    numbers = itertools.count()
    async with running_redis() as server, Redis.from_url(server.url) as admin:
        await admin.ping()
        store = RedisPins(RedisAccess(server.url), "p:", timeout=TIMEOUT)
        seen = StoreSeen()
        pins = FallbackPins(store, MemoryPins(time.monotonic), seen, time.monotonic)
        router = new_router(
            TABLE, pins=pins, observer=observer, rates=RateLimits(RedisDebts(store.link, "r:"), observer)
        )
        took: list[float] = []

        async def keep_sending() -> None:
            while True:
                headers = {"x-tenant": "acme", "x-session-id": f"s{next(numbers) % 100}"}
                began = time.monotonic()
                answer = await router.answer(make_request(CHAT, headers=headers), not_extended)
                took.append(time.monotonic() - began)
                assert isinstance(answer, Route), answer
                await asyncio.sleep(PAUSE_SECONDS)

        await pins.start()
        async with asyncio.TaskGroup() as tasks:
            working = [tasks.create_task(pins.run()), *(tasks.create_task(keep_sending()) for _ in range(CLIENTS))]
            for _ in range(rounds):
                await until(lambda: seen.is_up)
                await trouble.begin(server, admin)
                await until(lambda: not seen.is_up)
                sent = len(took)
                await until(lambda sent=sent: len(took) > sent + CLIENTS)  # type: ignore[misc]
                await trouble.end(server, admin)
            await until(lambda: seen.is_up)
            admitted = observer.rates.count("admitted")
            await until(lambda: observer.rates.count("admitted") > admitted + CLIENTS)
            for task in working:
                task.cancel()
        assert max(took) < LONGEST_SECONDS
        assert seen.failures
        assert "unchecked" in observer.rates


class StoreSeen:
    def __init__(self) -> None:
        self.is_up = True
        self.failures = 0

    def session_store_failed(self, operation: str) -> None:
        self.failures += 1

    def session_store_up(self, up: bool) -> None:
        self.is_up = up


def test_a_transport_that_is_closed_before_anybody_has_read_so_is_a_lost_connection() -> None:
    async def closed(server: RunningRedis) -> RedisConnection:
        reader, writer = await asyncio.open_unix_connection(server.url.removeprefix("unix://"))
        connection = RedisConnection(reader, writer)
        writer.transport.abort()
        return connection

    async def check() -> None:
        async with running_redis() as server:
            connection = await closed(server)
            with pytest.raises(ConnectionError):
                await connection.ask(b"GET", b"a")
            assert not connection.tell(b"GET", b"a")
            with pytest.raises(ConnectionError):
                await (await closed(server)).begin([(b"PING",)])

    on_uvloop(check())


def test_an_answer_that_breaks_off_costs_a_request_the_timeout() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            writer.write(b"$100\r\nhalf of")
        writer.close()

    async def check() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as half:
            host, port = half.sockets[0].getsockname()
            link = RedisLink(RedisAccess(f"redis://{host}:{port}"), timeout=TIMEOUT)
            await link.connect(())
            holding = asyncio.create_task(link.hold())
            for _ in range(2):
                async with asyncio.timeout(LONGEST_SECONDS):
                    with pytest.raises(UnavailableError):
                        await link.ask(b"GET", b"a")
            with pytest.raises(UnavailableError, match="no answer within"):
                await holding

    on_uvloop(check())


def test_a_host_that_takes_no_connection_is_given_up_in_time() -> None:
    async def check() -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
            host, port = listening.getsockname()
            access = RedisAccess(f"redis://{host}:{port}")
            full = [asyncio.create_task(open_connection(access)) for _ in range(8)]
            link = RedisLink(access, timeout=TIMEOUT)
            async with asyncio.timeout(LONGEST_SECONDS):
                with pytest.raises(UnavailableError, match=r"no connection within 0\.2 s"):
                    await link.connect([(b"PING",)])
            for each in full:
                await cancelled(each)

    with shorter_pauses():
        on_uvloop(check())
