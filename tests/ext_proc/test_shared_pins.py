"""What every store of pins does, the memory and Redis; and what stands in for a store that is away."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import blake2b

import pytest
from redis.asyncio import Redis

from controlplane.errors import ConfigurationError, UnavailableError
from controlplane.model import FormatTier, Pin
from controlplane.policy.settings import SessionRules
from ext_proc import fallback_pins
from ext_proc.fallback_pins import FallbackPins
from ext_proc.pins import MemoryPins, PinStore
from ext_proc.redis_connection import RedisAccess
from ext_proc.redis_pins import RedisPins
from support.filter import cancelled
from support.logs import logged
from support.redis_server import RunningRedis, running_redis
from support.waiting import until

FULL, QUANTIZED = Pin(FormatTier.FULL, since=1_780_000_000.125), Pin(FormatTier.QUANTIZED)
PREFIX = "headrace:test:pin:"


@pytest.fixture(params=["memory", "redis"])
async def stores(request: pytest.FixtureRequest) -> AsyncIterator[tuple[PinStore, PinStore]]:
    """The same store as two filters have it; one process has but one memory."""
    if request.param == "memory":
        pins = MemoryPins(lambda: 0.0)
        yield pins, pins
        return
    async with running_redis() as server, connected(server) as first, connected(server) as second:
        yield first, second


@asynccontextmanager
async def connected(server: RunningRedis, prefix: str = PREFIX, *, timeout: float = 5.0) -> AsyncIterator[RedisPins]:
    pins = RedisPins(RedisAccess(server.url), prefix, timeout=timeout)
    await pins.connect()
    holding = asyncio.create_task(pins.hold())
    try:
        yield pins
    finally:
        await cancelled(holding)


async def keys_of_sessions(client: Redis) -> list[bytes]:
    """All but the one with which connections are tried."""
    trial = (PREFIX + blake2b(b"trial", digest_size=16).hexdigest()).encode()
    return [key for key in await client.keys(f"{PREFIX}*") if key != trial]


# --- the contract --------------------------------------------------------------------------------------------------


async def test_a_session_that_was_never_seen_has_no_pin(stores: tuple[PinStore, PinStore]) -> None:
    assert await stores[0].get("s") is None


async def test_the_first_writer_wins_and_both_filters_see_it(stores: tuple[PinStore, PinStore]) -> None:
    """Facts row: shared state."""
    first, second = stores
    assert await first.set_first("s", FULL) == FULL
    assert await second.set_first("s", QUANTIZED) == FULL
    assert (await first.get("s"), await second.get("s")) == (FULL, FULL)


async def test_filters_that_race_for_a_new_session_agree(stores: tuple[PinStore, PinStore]) -> None:
    for number in range(20):
        writers = zip(itertools.cycle(stores), [FULL, QUANTIZED] * 8, strict=False)
        winners = await asyncio.gather(*(store.set_first(f"s{number}", tier) for store, tier in writers))
        assert len(set(winners)) == 1


async def test_a_pin_is_replaced_whatever_held(stores: tuple[PinStore, PinStore]) -> None:
    first, second = stores
    await first.set_first("s", FULL)
    await second.replace("s", QUANTIZED)
    assert await first.get("s") == QUANTIZED


@pytest.mark.parametrize("session", ["", "a\nb", "\x00", "ü\ud800", "x" * 5000, "a b*?[]"])
async def test_any_id_names_a_session_of_its_own(stores: tuple[PinStore, PinStore], session: str) -> None:
    await stores[0].set_first("other", QUANTIZED)
    await stores[0].set_first(session, FULL)
    assert (await stores[1].get(session), await stores[1].get("other")) == (FULL, QUANTIZED)


# --- Redis alone ---------------------------------------------------------------------------------------------------


async def test_a_pin_in_redis_ends_its_ttl_after_the_last_use() -> None:
    async with running_redis() as server, connected(server) as pins, Redis.from_url(server.url) as client:
        pins.configure(SessionRules(ttl_seconds=100))
        await pins.set_first("s", FULL)
        [key] = await keys_of_sessions(client)
        assert 90_000 < await client.pttl(key) <= 100_000
        await client.pexpire(key, 5_000)
        await pins.get("s")
        assert await client.pttl(key) > 90_000
        for shortest_and_longest in (1e-9, 1e300):
            pins.configure(SessionRules(ttl_seconds=shortest_and_longest))
            await pins.replace("s", FULL)
        assert await pins.get("s") == FULL


async def test_redis_holds_no_id_and_keeps_fleets_apart() -> None:
    async with running_redis() as server, Redis.from_url(server.url) as client:
        async with connected(server) as pins, connected(server, "headrace:other:pin:") as others:
            await pins.set_first("model\nkey:digest\nsecret-session", FULL)
            assert await others.get("model\nkey:digest\nsecret-session") is None
        [key] = await keys_of_sessions(client)
        assert key.startswith(PREFIX.encode())
        assert b"secret" not in key
        assert await client.get(key) == b"full 1780000000.125"


@pytest.mark.parametrize(
    "value", [b"\xff of another version", b"full inf", b"full nan", b"full 1e999", b"full 1 2", b""]
)
async def test_what_this_version_cannot_read_is_no_pin_and_gives_way(value: bytes) -> None:
    async with running_redis() as server, connected(server) as pins, Redis.from_url(server.url) as client:
        await pins.set_first("s", FULL)
        [key] = await keys_of_sessions(client)
        await client.set(key, value)
        assert await pins.get("s") is None
        assert await pins.set_first("s", QUANTIZED) == QUANTIZED
        assert await pins.get("s") == QUANTIZED


async def test_a_server_that_hangs_costs_a_request_the_timeout_and_those_after_it_nothing() -> None:
    async with running_redis() as server, connected(server, timeout=0.05) as pins:
        await pins.set_first("s", FULL)
        server.freeze()
        with pytest.raises(UnavailableError, match=r"no answer within 0\.05 s"):
            await pins.get("s")
        with pytest.raises(UnavailableError, match=r"lost|not connected"):
            async with asyncio.timeout(0.04):
                await pins.get("s")
        server.thaw()


async def test_a_server_without_room_is_no_store_until_it_has_some() -> None:
    async with running_redis("--maxmemory", "1", "--maxmemory-policy", "noeviction") as server:
        with pytest.raises(UnavailableError, match="OOM"):
            await RedisPins(RedisAccess(server.url), PREFIX, timeout=5.0).connect()


async def test_a_redis_before_7_is_refused_and_told_what_is_needed() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"PX")
        writer.write(b"-ERR syntax error\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as old:
        url = f"redis://127.0.0.1:{old.sockets[0].getsockname()[1]}"
        with pytest.raises(ConfigurationError, match=r"session_store\.url: needs Redis 7\.0 or newer, or Valkey"):
            await RedisPins(RedisAccess(url), PREFIX, timeout=5.0).connect()


# --- a store that is away ------------------------------------------------------------------------------------------


class Told:
    def __init__(self) -> None:
        self.failures: list[str] = []
        self.up: list[bool] = []

    def session_store_failed(self, operation: str) -> None:
        self.failures.append(operation)

    def session_store_up(self, up: bool) -> None:
        self.up.append(up)


class Unsteady(MemoryPins):
    """A shared store that a test takes away and gives back."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.away = False
        self.tries = 0

    async def connect(self) -> None:
        self.tries += 1
        self._fail_if_away()

    async def hold(self) -> None:
        await until(lambda: self.away)
        self._fail_if_away()

    async def get(self, session: str) -> FormatTier | None:
        self._fail_if_away()
        return await super().get(session)

    async def set_first(self, session: str, tier: FormatTier) -> FormatTier:
        self._fail_if_away()
        return await super().set_first(session, tier)

    async def replace(self, session: str, tier: FormatTier) -> None:
        self._fail_if_away()
        await super().replace(session, tier)

    def lose_data(self) -> None:
        self._pins.clear()

    def _fail_if_away(self) -> None:
        if self.away:
            raise UnavailableError("it was taken away")


class Filter:
    """One filter's view of a shared store."""

    def __init__(self, store: Unsteady) -> None:
        self.told = Told()
        self.pins = FallbackPins(store, MemoryPins(lambda: 0.0), self.told, lambda: 0.0)


async def test_while_the_store_is_away_sessions_that_a_filter_has_served_keep_their_tier() -> None:
    store = Unsteady()
    here, elsewhere = Filter(store), Filter(store)
    await here.pins.set_first("here", FULL)
    await elsewhere.pins.set_first("elsewhere", FULL)
    assert await here.pins.get("elsewhere") == FULL  # seen once
    store.away = True
    assert (await here.pins.get("here"), await here.pins.get("elsewhere")) == (FULL, FULL)
    assert await here.pins.set_first("here", QUANTIZED) == FULL
    assert await here.pins.get("new") is None
    await here.pins.replace("here", QUANTIZED)
    assert await here.pins.get("here") == QUANTIZED


async def test_each_operation_that_the_store_did_not_do_is_counted() -> None:
    store = Unsteady()
    here = Filter(store)
    await here.pins.get("s")
    store.away = True
    await here.pins.get("s")
    await here.pins.set_first("s", FULL)
    await here.pins.replace("s", QUANTIZED)
    assert here.told.failures == ["get", "set_first", "replace"]


async def test_sessions_that_began_without_the_store_are_taken_back_to_it() -> None:
    store = Unsteady()
    here, elsewhere = Filter(store), Filter(store)
    store.away = True
    assert await here.pins.set_first("s", QUANTIZED) == QUANTIZED
    store.away = False
    assert await here.pins.get("s") == QUANTIZED
    assert await elsewhere.pins.get("s") == QUANTIZED


async def test_a_store_that_came_back_empty_learns_again_what_filters_know() -> None:
    store = Unsteady()
    here = Filter(store)
    await here.pins.set_first("s", FULL)
    store.lose_data()
    assert await here.pins.get("s") == FULL
    assert await store.get("s") == FULL


async def test_of_filters_that_decided_differently_without_the_store_all_obey_the_first_that_tells_it() -> None:
    store = Unsteady()
    one, other = Filter(store), Filter(store)
    store.away = True
    await one.pins.set_first("s", FULL)
    await other.pins.set_first("s", QUANTIZED)
    store.away = False
    assert [await one.pins.get("s"), await other.pins.get("s"), await other.pins.get("s")] == [FULL, FULL, FULL]


async def test_what_the_store_holds_is_stronger_than_what_a_filter_decided_without_it() -> None:
    store = Unsteady()
    here, elsewhere = Filter(store), Filter(store)
    await elsewhere.pins.set_first("s", FULL)
    store.away = True
    await here.pins.set_first("s", QUANTIZED)
    store.away = False
    assert await here.pins.get("s") == FULL
    store.away = True
    assert await here.pins.get("s") == FULL


async def test_an_outage_is_told_at_its_beginning_and_its_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fallback_pins, "TRY_AGAIN_SECONDS", 0.01)
    caplog.set_level(logging.INFO)
    store = Unsteady()
    here = Filter(store)
    await here.pins.start()
    running = asyncio.create_task(here.pins.run())
    for _ in range(2):
        store.away = True
        tries = store.tries
        await until(lambda before=tries: store.tries > before + 3)  # type: ignore[misc]
        store.away = False
        await until(lambda: here.told.up and here.told.up[-1])
    await cancelled(running)
    assert here.told.up == [False, True] * 2
    assert [record.message for record in logged(caplog, "ext_proc")] == [
        "session store is away, own memory stands in for it: it was taken away",
        "session store is back",
    ] * 2


async def test_a_store_that_is_away_is_tried_once_a_second_however_many_requests_come() -> None:
    store = Unsteady()
    here = Filter(store)
    store.away = True
    await here.pins.start()
    running = asyncio.create_task(here.pins.run())
    async with asyncio.timeout(0.5):
        for _ in range(200):
            await here.pins.get("s")
            await asyncio.sleep(0)
    await cancelled(running)
    assert store.tries == 1


async def test_a_real_server_that_is_killed_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback_pins, "TRY_AGAIN_SECONDS", 0.05)
    told = Told()
    async with running_redis() as server:
        store = RedisPins(RedisAccess(server.url), PREFIX, timeout=5.0)
        pins = FallbackPins(store, MemoryPins(lambda: 0.0), told, asyncio.get_running_loop().time)
        await pins.start()
        running = asyncio.create_task(pins.run())
        await pins.set_first("s", FULL)
        assert told.failures == []
        await server.kill()
        assert await pins.get("s") == FULL
        await until(lambda: told.up == [False])
        await server.start()
        await until(lambda: told.up == [False, True])
        assert await pins.get("s") == FULL
        assert await store.get("s") == FULL
        await cancelled(running)


async def test_a_glitch_of_a_server_that_is_well_again_costs_no_second(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    async with running_redis() as server, Redis.from_url(server.url) as client:
        store = RedisPins(RedisAccess(server.url), PREFIX, timeout=5.0)
        monkeypatch.setattr(fallback_pins, "TRY_AGAIN_SECONDS", 60.0)
        pins = FallbackPins(store, MemoryPins(lambda: 0.0), told, itertools.count(step=60.0).__next__)
        await pins.start()
        running = asyncio.create_task(pins.run())
        await pins.set_first("s", FULL)
        await client.client_kill_filter(_type="normal", skipme=True)
        await until(lambda: told.up == [False, True])
        assert await pins.get("s") == FULL
        await cancelled(running)
