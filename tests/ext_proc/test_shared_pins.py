"""What every store of pins does, the memory and Redis; and what stands in for a store that is away."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from controlplane.model import FormatTier
from controlplane.policy.settings import SessionRules
from ext_proc.fallback_pins import TRY_AGAIN_SECONDS, FallbackPins
from ext_proc.pins import MemoryPins, PinStore
from ext_proc.redis_pins import RedisAccess, RedisPins
from support.redis_server import RunningRedis, running_redis

FULL, QUANTIZED = FormatTier.FULL, FormatTier.QUANTIZED
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
async def connected(server: RunningRedis, prefix: str = PREFIX, **access: Any) -> AsyncIterator[RedisPins]:
    pins = RedisPins(RedisAccess(server.url, **{"timeout": 5.0, **access}), prefix)
    try:
        yield pins
    finally:
        await pins.close()


# --- the contract --------------------------------------------------------------------------------------------------


async def test_a_session_that_was_never_seen_has_no_pin(stores: tuple[PinStore, PinStore]) -> None:
    assert await stores[0].get("s") is None


async def test_the_first_writer_wins_and_both_filters_see_it(stores: tuple[PinStore, PinStore]) -> None:
    first, second = stores
    assert await first.set_first("s", FULL) is FULL
    assert await second.set_first("s", QUANTIZED) is FULL
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
    assert await first.get("s") is QUANTIZED


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
        [key] = await client.keys()
        assert 90_000 < await client.pttl(key) <= 100_000
        await client.pexpire(key, 5_000)
        await pins.get("s")
        assert await client.pttl(key) > 90_000


async def test_redis_holds_no_id_and_keeps_fleets_apart() -> None:
    async with running_redis() as server, Redis.from_url(server.url) as client:
        async with connected(server) as pins, connected(server, "headrace:other:pin:") as others:
            await pins.set_first("model\nkey:digest\nsecret-session", FULL)
            assert await others.get("model\nkey:digest\nsecret-session") is None
        [key] = await client.keys()
        assert key.startswith(PREFIX.encode())
        assert b"secret" not in key
        assert await client.get(key) == b"full"


async def test_what_this_version_cannot_read_is_no_pin() -> None:
    async with running_redis() as server, connected(server) as pins, Redis.from_url(server.url) as client:
        await pins.set_first("s", FULL)
        [key] = await client.keys()
        await client.set(key, b"\xff of another version")
        assert await pins.get("s") is None


async def test_a_server_that_hangs_costs_a_request_the_timeout_and_no_more() -> None:
    async with running_redis() as server, connected(server, timeout=0.05) as pins:
        await pins.set_first("s", FULL)
        server.freeze()
        with pytest.raises((TimeoutError, RedisError)):
            await pins.get("s")
        server.thaw()


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(RedisAccess("redis://h", password="secret"))


# --- a store that is away ------------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Told:
    def __init__(self) -> None:
        self.failures: list[str] = []
        self.up: list[bool] = []

    def session_store_failed(self, operation: str) -> None:
        self.failures.append(operation)

    def session_store_up(self, up: bool) -> None:
        self.up.append(up)


class Unsteady(MemoryPins):
    """The shared store; while `away` it fails, and counts how often it is asked."""

    away = False
    asked = 0

    async def get(self, session: str) -> FormatTier | None:
        self._fail_if_away()
        return await super().get(session)

    async def set_first(self, session: str, tier: FormatTier) -> FormatTier:
        self._fail_if_away()
        return await super().set_first(session, tier)

    async def replace(self, session: str, tier: FormatTier) -> None:
        self._fail_if_away()
        await super().replace(session, tier)

    def _fail_if_away(self) -> None:
        self.asked += 1
        if self.away:
            raise ConnectionError("refused, for the session secret-id")


class Filter:
    """One filter's view of a shared store."""

    def __init__(self, store: Unsteady, clock: Clock) -> None:
        self.told = Told()
        self.pins = FallbackPins(store, MemoryPins(clock), self.told, clock)


async def test_while_the_store_is_away_sessions_that_a_filter_has_served_keep_their_tier() -> None:
    clock, store = Clock(), Unsteady(lambda: 0.0)
    here, elsewhere = Filter(store, clock), Filter(store, clock)
    await here.pins.set_first("here", FULL)
    await elsewhere.pins.set_first("elsewhere", FULL)
    assert await here.pins.get("elsewhere") is FULL  # seen once
    store.away = True
    assert (await here.pins.get("here"), await here.pins.get("elsewhere")) == (FULL, FULL)
    assert await here.pins.set_first("here", QUANTIZED) is FULL
    assert await here.pins.get("new") is None


async def test_sessions_that_began_without_the_store_are_taken_back_to_it() -> None:
    clock, store = Clock(), Unsteady(lambda: 0.0)
    here, elsewhere = Filter(store, clock), Filter(store, clock)
    store.away = True
    assert await here.pins.set_first("s", QUANTIZED) is QUANTIZED
    store.away = False
    clock.now += TRY_AGAIN_SECONDS
    assert await here.pins.get("s") is QUANTIZED
    assert await elsewhere.pins.get("s") is QUANTIZED


async def test_a_store_that_came_back_empty_learns_again_what_filters_know() -> None:
    clock, store = Clock(), Unsteady(lambda: 0.0)
    here = Filter(store, clock)
    await here.pins.set_first("s", FULL)
    store._pins.clear()
    assert await here.pins.get("s") is FULL
    assert await store.get("s") is FULL


async def test_of_filters_that_decided_differently_without_the_store_all_obey_the_first_that_tells_it() -> None:
    clock, store = Clock(), Unsteady(lambda: 0.0)
    one, other = Filter(store, clock), Filter(store, clock)
    store.away = True
    await one.pins.set_first("s", FULL)
    await other.pins.set_first("s", QUANTIZED)
    store.away = False
    clock.now += TRY_AGAIN_SECONDS
    assert [await one.pins.get("s"), await other.pins.get("s"), await other.pins.get("s")] == [FULL, FULL, FULL]


async def test_a_store_that_is_away_is_tried_by_one_request_a_second() -> None:
    clock, store = Clock(), Unsteady(lambda: 0.0)
    here = Filter(store, clock)
    store.away = True
    for _ in range(10):
        await here.pins.get("s")
    assert store.asked == 1
    clock.now += TRY_AGAIN_SECONDS
    for _ in range(10):
        await here.pins.get("s")
    assert store.asked == 2
    assert here.told.failures == ["get"] * 20


async def test_an_outage_is_told_at_its_beginning_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock, store = Clock(), Unsteady(lambda: 0.0)
    here = Filter(store, clock)
    store.away = True
    for _ in range(5):
        await here.pins.replace("secret-id", FULL)
        clock.now += TRY_AGAIN_SECONDS
    store.away = False
    await here.pins.get("secret-id")
    assert [record.message for record in caplog.records] == [
        "session store fails, own memory stands in for it error=ConnectionError",
        "session store is back",
    ]
    assert here.told.up == [True, False, False, False, False, False, True]


async def test_a_real_server_that_is_killed_and_comes_back() -> None:
    clock = Clock()
    async with running_redis() as server, connected(server, timeout=1.0) as store:
        told = Told()
        pins = FallbackPins(store, MemoryPins(clock), told, clock)
        await pins.set_first("s", FULL)
        await server.kill()
        assert await pins.get("s") is FULL
        assert told.up[-1] is False
        await server.start()
        clock.now += TRY_AGAIN_SECONDS
        assert await pins.get("s") is FULL
        assert told.up[-1] is True
        assert await store.get("s") is FULL
