"""What every store of debts does, in memory and in a real Redis or Valkey; and what a lost one means."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

from controlplane.errors import UnavailableError
from controlplane.policy.rates import Charge
from ext_proc import debts
from ext_proc.debts import DebtStore, MemoryDebts
from ext_proc.redis_connection import RedisAccess
from ext_proc.redis_debts import RedisDebts
from ext_proc.redis_link import RedisLink
from support.filter import cancelled
from support.redis_server import RunningRedis, running_redis

REQUEST = Charge("requests", 60, 1)
TOKENS = Charge("tokens", 6000, 1000)
# What may pass between two commands of a test on a busy machine, which pays off as much of a debt.
PASSING = 5.0


@dataclass(frozen=True, slots=True)
class Tried:
    """A store, and how a test has time pass for it."""

    store: DebtStore
    pass_time: Callable[[float], object]


@asynccontextmanager
async def linked(server: RunningRedis, *, timeout: float = 5.0) -> AsyncIterator[RedisLink]:
    link = RedisLink(RedisAccess(server.url), timeout=timeout)
    await link.connect(())
    holding = asyncio.create_task(link.hold())
    try:
        yield link
    finally:
        await cancelled(holding)


@pytest.fixture(params=["memory", "redis"])
async def tried(request: pytest.FixtureRequest) -> AsyncIterator[Tried]:
    async with AsyncExitStack() as stack:
        if request.param == "memory":
            now = [1000.0]

            def pass_memory(seconds: float) -> None:
                now[0] += seconds

            yield Tried(MemoryDebts(lambda: now[0]), pass_memory)
            return
        server = await stack.enter_async_context(running_redis())
        link = await stack.enter_async_context(linked(server))

        def pass_redis(seconds: float) -> None:
            """That a debt is paid off earlier, and that it is later now, is the same."""
            script = (
                "for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('SET', key, "
                "string.format('%.0f', redis.call('GET', key) - ARGV[1]), 'KEEPTTL') end return 'done'"
            )
            assert link.tell(b"EVAL", script.encode(), b"0", b"%d" % round(seconds * 1e6))

        yield Tried(RedisDebts(link, "test:rate:"), pass_redis)


async def charged(store: DebtStore, *charges: Charge, tenant: str = "name:acme") -> tuple[bool, tuple[float, ...]]:
    admission = await store.charge(tenant, charges)
    return admission.admitted, admission.debts


async def test_a_tenant_is_admitted_until_a_minutes_allowance_is_used(tried: Tried) -> None:
    for used in range(1, 7):
        admitted, [debt] = await charged(tried.store, TOKENS)
        assert admitted
        assert 10 * used - PASSING < debt <= 10 * used
    admitted, [debt] = await charged(tried.store, Charge("tokens", 6000, 2000))
    assert not admitted
    assert 60 - PASSING < debt <= 60
    # Nothing was charged then, and others have debts of their own.
    assert (await charged(tried.store, Charge("tokens", 6000, 0)))[1][0] <= 60
    assert (await charged(tried.store, TOKENS, tenant="name:other"))[0]
    assert (await charged(tried.store, REQUEST))[0]


async def test_time_pays_debts_off(tried: Tried) -> None:
    for _ in range(6):
        await charged(tried.store, TOKENS)
    tried.pass_time(25)
    assert [(await charged(tried.store, TOKENS))[0] for _ in range(2)] == [True, True]
    tried.pass_time(1000)
    admitted, [debt] = await charged(tried.store, TOKENS)
    assert admitted
    assert 10 - PASSING < debt <= 10


async def test_all_charges_are_made_or_none(tried: Tried) -> None:
    await charged(tried.store, Charge("tokens", 6000, 6000))
    for _ in range(3):
        admitted, debts_ = await charged(tried.store, REQUEST, TOKENS)
        assert not admitted
        assert debts_[0] == 0
    admitted, [debt] = await charged(tried.store, REQUEST)
    assert admitted
    assert debt <= 1


async def test_corrections_go_below_what_was_charged_and_beyond_what_is_allowed(tried: Tried) -> None:
    await charged(tried.store, Charge("tokens", 6000, 6000))
    assert tried.store.correct("name:acme", "tokens", -40.0)
    admitted, [debt] = await charged(tried.store, TOKENS)
    assert admitted
    assert 30 - PASSING < debt <= 30
    tried.store.correct("name:acme", "tokens", 90.0)
    admitted, [debt] = await charged(tried.store, Charge("tokens", 6000, 0))
    assert not admitted
    assert 120 - PASSING < debt <= 120
    tried.store.correct("name:acme", "tokens", -1e6)
    assert await charged(tried.store, Charge("tokens", 6000, 0)) == (True, (0.0,))


async def test_of_many_at_once_as_many_are_admitted_as_may_be(tried: Tried) -> None:
    slow = Charge("requests", 3, 1)
    found = await asyncio.gather(*(charged(tried.store, slow) for _ in range(20)))
    assert sum(admitted for admitted, _ in found) == 3


async def test_workers_that_share_a_store_allow_a_rate_once() -> None:
    """Facts row: shared state."""
    async with running_redis() as server, linked(server) as one, linked(server) as other:
        stores = [RedisDebts(link, "p:") for link in (one, other)]
        slow = Charge("requests", 3, 1)
        found = await asyncio.gather(*(charged(stores[n % 2], slow) for n in range(20)))
        assert sum(admitted for admitted, _ in found) == 3
        assert (await charged(RedisDebts(one, "another-fleet:"), slow))[0]


async def test_a_key_names_no_tenant_and_ends_with_its_debt() -> None:
    async with running_redis() as server, linked(server) as link:
        await charged(RedisDebts(link, "p:"), TOKENS)
        keys = await link.ask(b"EVAL", b"return table.concat(redis.call('KEYS', '*'), ' ')", b"0")
        assert isinstance(keys, bytes)
        assert b"acme" not in keys
        left = await link.ask(b"PTTL", keys)
        assert isinstance(left, bytes)
        assert 0 < int(left) <= 10_000


async def test_a_store_that_does_not_answer_is_unavailable() -> None:
    async with running_redis() as server, linked(server, timeout=0.05) as link:
        store = RedisDebts(link, "p:")
        server.freeze()
        with pytest.raises(UnavailableError):
            await charged(store, REQUEST)
        server.thaw()
    assert not store.correct("name:acme", "tokens", 1.0)
    with pytest.raises(UnavailableError):
        await charged(store, REQUEST)


async def test_a_user_that_may_run_no_scripts_keeps_its_connection_for_sessions() -> None:
    async with running_redis() as server, linked(server) as link:
        assert await link.ask(b"ACL", b"SETUSER", b"default", b"-eval") == b"OK"
        with pytest.raises(UnavailableError, match="rates are not kept"):
            await charged(RedisDebts(link, "p:"), REQUEST)
        assert await link.ask(b"SET", b"k", b"v") == b"OK"


async def test_memory_forgets_what_is_paid_off_and_the_oldest_of_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    store = MemoryDebts(lambda: now)
    for n in range(10):
        await charged(store, REQUEST, tenant=f"name:{n}")
    now = 10.0
    await charged(store, TOKENS)
    assert len(store) == 1
    monkeypatch.setattr(debts, "MOST_DEBTS", 5)
    for n in range(10):
        await charged(store, TOKENS, tenant=f"name:{n}")
    assert len(store) == 5
