"""The line: who waits for what, in which order, for how long, and that no credit gets lost or spent twice."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.model import QosTier, Reason
from controlplane.policy.qos import Mode, QosRules
from controlplane.policy.settings import WaitingRules
from ext_proc import waiting
from ext_proc.credits import Credits, Share
from ext_proc.refill import QUIET_SECONDS
from ext_proc.turns import Claim
from ext_proc.waiting import Line
from support.filter import Decided, cancelled, new_line, not_extended
from support.waiting import until

A, B, C = "a", "b", "c"


@dataclass
class Room:
    """A line with credits, in which requests wait as tasks; `went` names those who went on, with their pool."""

    credits: Credits = field(default_factory=lambda: Credits(time.monotonic))
    seen: Decided = field(default_factory=Decided)
    went: list[tuple[str, str]] = field(default_factory=list)
    refused: list[tuple[str, Reason]] = field(default_factory=list)
    extended: list[float] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    line: Line = field(init=False)

    def __post_init__(self) -> None:
        self.line = new_line(self.credits, self.seen)

    def ship(self, **free: int | None) -> None:
        """Credits as of now, by pool."""
        self.credits.take([Share((pool,), count, 0.0) for pool, count in free.items()])
        self.line.serve()

    async def send(self, name: str, *pools: str) -> asyncio.Task[None]:
        """A request that may go to these pools, as far as it comes without waiting."""
        task = asyncio.create_task(self._go(name, pools))
        self.tasks.append(task)
        await asyncio.sleep(0)
        return task

    async def _go(self, name: str, pools: tuple[str, ...]) -> None:
        async def extend(seconds: float) -> None:
            self.extended.append(seconds)

        with self.line.place() as place:
            while (pool := next(filter(place.is_free, pools), None)) is None:
                reason = await place.wait(pools, extend)
                if reason is not None:
                    self.refused.append((name, reason))
                    return
            place.hold(pool)
            self.went.append((name, pool))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.went]

    def left(self) -> float:
        return self.credits.left(A)


@asynccontextmanager
async def room(**free: int | None) -> AsyncIterator[Room]:
    made = Room()
    made.ship(**free)
    try:
        yield made
    finally:
        for task in made.tasks:
            await cancelled(task)
        assert len(made.line) == 0


async def test_while_there_are_credits_nobody_waits() -> None:
    async with room(a=2) as made:
        await made.send("1", A)
        await made.send("2", A)
        assert made.names == ["1", "2"]
        assert made.left() == 0
        await made.send("3", A)
        assert len(made.line) == 1
        assert made.seen.counts == [1]


async def test_who_waits_goes_on_in_order_as_credits_come() -> None:
    async with room(a=0) as made:
        for name in "123":
            await made.send(name, A)
        assert made.names == []
        made.ship(a=2)
        await until(lambda: made.names == ["1", "2"])
        assert len(made.line) == 1
        made.ship(a=3)
        await until(lambda: made.names == ["1", "2", "3"])
        assert made.seen.outcomes == ["went_on"] * 3


async def test_a_newcomer_does_not_overtake_one_who_has_a_credit_and_has_not_gone_on_yet() -> None:
    async with room(a=0) as made:
        first = await made.send("first", A)
        made.ship(a=1)
        assert not first.done()
        await made.send("late", A)
        await until(lambda: made.names == ["first"])
        assert len(made.line) == 1


async def test_who_waits_for_one_pool_does_not_hold_up_others() -> None:
    async with room(a=0, b=0) as made:
        await made.send("for a", A)
        await made.send("for b", B)
        await made.send("for either", A, B)
        made.ship(a=0, b=2)
        await until(lambda: made.went == [("for b", B), ("for either", B)])
        made.ship(a=1, b=0)
        await until(lambda: made.names[-1] == "for a")


async def test_who_leaves_gives_his_place_and_his_credit_to_the_next() -> None:
    """Facts row: queueing (cancellation)."""
    async with room(a=0) as made:
        first = await made.send("first", A)
        second = await made.send("second", A)
        await made.send("third", A)
        await cancelled(first)
        assert len(made.line) == 2
        made.ship(a=1)
        second.cancel()  # with the credit already his
        await until(lambda: made.names == ["third"])
        assert made.seen.outcomes == ["left", "left", "went_on"]


async def test_who_waits_too_long_or_finds_too_many_waiting_is_refused() -> None:
    async with room(a=0) as made:
        made.line.configure(WaitingRules(longest_seconds=0.05, most_waiting=1), QosRules())
        await made.send("1", A)
        await made.send("2", A)
        assert made.refused == [("2", Reason.QUEUE_FULL)]
        await until(lambda: made.refused[1:] == [("1", Reason.WAIT_TOO_LONG)])
        assert made.seen.outcomes == ["queue_full", "wait_too_long"]


async def test_nobody_waits_longer_than_the_gateway_lets_him() -> None:
    made = Room()
    made.line = new_line(made.credits, made.seen, max_wait=0.05)
    made.line.configure(WaitingRules(longest_seconds=1000), QosRules())
    made.ship(a=0)
    await made.send("1", A)
    await until(lambda: made.refused == [("1", Reason.WAIT_TOO_LONG)])


async def test_envoy_is_told_once_and_only_when_it_takes_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "EXTEND_AFTER_SECONDS", 0.05)
    async with room(a=0) as made:
        await made.send("1", A)
        await until(lambda: made.extended)
        await made.send("2", A)
        made.ship(a=2)
        await until(lambda: made.names == ["1", "2"])
        (seconds,) = made.extended
        longest = WaitingRules().longest_seconds
        assert longest < seconds < longest + 2.0


async def test_when_nothing_is_known_any_more_all_go_on_in_order() -> None:
    async with room(a=0, b=0) as made:
        for name in "1234":
            await made.send(name, A if name in "13" else B)
        made.credits.take([])
        made.line.serve()
        await until(lambda: made.names == ["1", "2", "3", "4"])


async def test_a_worker_that_stops_lets_all_go_on_and_nobody_wait() -> None:
    async with room(a=0) as made:
        await made.send("1", A)
        made.line.open_for_good()
        await until(lambda: made.names == ["1"])
        await made.send("2", A)
        assert made.names == ["1", "2"]


async def test_who_looks_again_keeps_his_turn() -> None:
    async with room(a=0) as made:
        for name in "123":
            await made.send(name, A)
        made.line.look_again()
        await until(lambda: len(made.line) == 3)
        await made.send("4", A)
        made.ship(a=4)
        await until(lambda: made.names == ["1", "2", "3", "4"])


async def test_a_credit_that_is_not_used_goes_to_the_next() -> None:
    async with room(a=0, b=1) as made:
        with made.line.place() as place:
            waits = asyncio.ensure_future(place.wait((A,), not_extended))
            await asyncio.sleep(0)
            await made.send("next", A)
            made.ship(a=1, b=1)
            assert await waits is None
            assert made.names == []
            place.hold(B)  # where it goes after all
        await until(lambda: made.went == [("next", A)])
        assert (made.credits.left(A), made.credits.left(B)) == (0, 0)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from(((A,), (B,), (A, B), (B, A), (C,), (A, C)))),
        st.tuples(st.just("leave"), st.integers(0, 20)),
        st.tuples(st.just("ship"), st.tuples(st.integers(0, 3), st.integers(0, 3))),
        st.tuples(st.just("look"), st.none()),
        st.tuples(st.just("turn"), st.none()),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_no_more_is_spent_than_was_shipped_and_nobody_is_left_in_the_end(steps: list[tuple[str, object]]) -> None:
    """Facts row: queueing (a slot is released exactly once)."""
    asyncio.run(_play(steps))


async def _play(steps: list[tuple[str, object]]) -> None:
    """`a` and `b` have rooms of their own, and share one with `c`. A report says what is free besides what was sent."""
    made = Room()
    shipped = [0, 0]

    def ship(more: tuple[int, int]) -> None:
        shipped[0] += more[0]
        shipped[1] += more[1]
        age = time.monotonic() - began
        made.credits.take([Share((A,), shipped[0], age), Share((A, B, C), shipped[1], age)])
        made.line.serve()

    began = time.monotonic()
    ship((0, 0))
    for kind, what in steps:
        match kind, what:
            case "send", tuple():
                await made.send(str(len(made.tasks)), *what)
            case "leave", int():
                if made.tasks:
                    made.tasks[what % len(made.tasks)].cancel()
            case "ship", (int() as one, int() as two):
                ship((one, two))
            case "look", _:
                made.line.look_again()
            case _:
                await asyncio.sleep(0)
        assert len(made.went) <= sum(shipped)
    made.credits.take([])
    made.line.serve()
    await asyncio.gather(*made.tasks, return_exceptions=True)
    assert len(made.line) == 0
    assert not made.line._wanted
    assert made.credits.left(A) == math.inf


# --- QoS tiers -----------------------------------------------------------------------------------------------------

GOVERNED = QosRules(mode=Mode.ENABLED)


@asynccontextmanager
async def governed_room(rules: QosRules = GOVERNED, **free: int | None) -> AsyncIterator[Room]:
    async with room(**free) as made:
        made.line.configure(WaitingRules(), rules)
        yield made


async def join(made: Room, name: str, tier: QosTier, tenant: str = "", held: float = 0.0) -> asyncio.Task[None]:
    """A request of this tier that waits for A, or is held first."""

    async def go() -> None:
        with made.line.place() as place:
            reason = await place.wait((A,), not_extended, Claim(tier, tenant), held_seconds=held)
            while reason is None and not place.is_free(A):
                reason = await place.wait((A,), not_extended, Claim(tier, tenant))
            if reason is None:
                place.hold(A)
                made.went.append((name, A))
            else:
                made.refused.append((name, reason))

    task = asyncio.create_task(go())
    made.tasks.append(task)
    await asyncio.sleep(0)
    return task


async def test_the_better_tier_goes_first_whoever_came_first() -> None:
    async with governed_room(a=0) as made:
        for tier in reversed(QosTier):
            await join(made, tier, tier)
        for count in (1, 2, 3):
            made.ship(a=count)
            await until(lambda count=count: len(made.went) == count)  # type: ignore[misc]
        assert made.names == list(QosTier)


async def test_while_no_news_comes_the_better_tier_goes_first_at_the_pace_of_before() -> None:
    now = [1000.0]
    made = Room(credits=Credits(lambda: now[0]))
    made.line.configure(WaitingRules(), GOVERNED)
    for _ in range(20):
        now[0] += 1.0
        made.ship(a=1)
        made.credits.spend(A)  # one a second, as long as there is news
    for tier in reversed(QosTier):
        await join(made, tier, tier)
    for count in (1, 2, 3):
        made.line.serve()
        await asyncio.sleep(0)
        assert len(made.went) == count - 1
        now[0] += 1.0 if count > 1 else QUIET_SECONDS + 0.01
        made.line.serve()
        await until(lambda count=count: len(made.went) == count)  # type: ignore[misc]
    assert made.names == list(QosTier)


async def test_each_tier_has_bounds_of_its_own() -> None:
    """Facts row: queueing (bounded per tier)."""
    rules = replace(GOVERNED, best_effort=replace(GOVERNED.best_effort, most_waiting=1, longest_wait_seconds=0.05))
    async with governed_room(rules, a=0) as made:
        await join(made, "first", QosTier.BEST_EFFORT)
        await join(made, "second", QosTier.BEST_EFFORT)
        assert made.refused == [("second", Reason.QUEUE_FULL)]
        await join(made, "better", QosTier.STANDARD)
        await until(lambda: ("first", Reason.WAIT_TOO_LONG) in made.refused)
        assert len(made.line) == 1


async def test_nobody_waits_behind_one_who_is_held() -> None:
    async with governed_room(a=1) as made:
        await join(made, "held", QosTier.GUARANTEED, held=60.0)
        await made.send("other", A)
        assert made.names == ["other"]
        made.ship(a=5)
        assert made.names == ["other"]
        made.line.let_go()
        await until(lambda: made.names == ["other", "held"])


async def test_one_who_is_held_goes_on_when_he_has_aged() -> None:
    async with governed_room(a=1) as made:
        await join(made, "held", QosTier.STANDARD, held=0.05)
        assert made.names == []
        await until(lambda: made.names == ["held"])


async def test_one_who_is_held_and_leaves_takes_nothing_with_him() -> None:
    async with governed_room(a=1) as made:
        task = await join(made, "held", QosTier.STANDARD, held=60.0)
        await cancelled(task)
        assert (len(made.line), made.left()) == (0, 1)
        await made.send("next", A)
        assert made.names == ["next"]


async def test_a_worker_that_stops_holds_nobody() -> None:
    async with governed_room(a=0) as made:
        await join(made, "held", QosTier.STANDARD, held=60.0)
        with made.line.place() as place:
            assert place.patience_seconds == 0
        made.line.open_for_good()
        await until(lambda: made.names == ["held"])
        with made.line.place() as place:
            assert place.patience_seconds == math.inf


# --- who would wait too long ----------------------------------------------------------------------------------------


@asynccontextmanager
async def moving_room(rules: QosRules, waiting: int, turns: int) -> AsyncIterator[tuple[Room, list[float]]]:
    """A line of so many standard requests of one tenant, of which some have gone on, one each second by the clock."""
    now = [0.0]
    made = Room(Credits(lambda: now[0]))
    made.line = Line(made.credits, made.seen, lambda: now[0], max_wait=60.0)
    made.line.configure(WaitingRules(), rules)
    made.ship(a=0)
    for number in range(waiting):
        await join(made, str(number), QosTier.STANDARD, "many")
    for count in range(1, turns + 1):
        now[0] = float(count)
        made.ship(a=1)
        await until(lambda count=count: len(made.went) == count)  # type: ignore[misc]
    try:
        yield made, now
    finally:
        for task in made.tasks:
            await cancelled(task)


def waits_at_most(seconds: float) -> QosRules:
    return replace(GOVERNED, standard=replace(GOVERNED.standard, longest_wait_seconds=seconds))


async def test_who_would_wait_for_longer_than_he_may_is_refused_at_once() -> None:
    async with moving_room(waits_at_most(4.0), waiting=20, turns=10) as (made, _):  # ten are left, one goes each second
        await join(made, "late", QosTier.STANDARD, "many")
        assert made.refused == [("late", Reason.WOULD_WAIT_TOO_LONG)]
        assert made.seen.outcomes[-1] == "would_wait_too_long"


async def test_who_will_be_served_in_time_waits() -> None:
    async with moving_room(waits_at_most(12.0), waiting=20, turns=10) as (made, _):
        await join(made, "in time", QosTier.STANDARD, "many")
        assert made.refused == []
        assert len(made.line) == 11


async def test_one_tenants_long_line_turns_no_other_tenant_away() -> None:
    async with moving_room(waits_at_most(4.0), waiting=20, turns=10) as (made, _):
        await join(made, "of few", QosTier.STANDARD, "few")
        assert made.refused == []


async def test_a_better_tier_does_not_count_those_of_a_worse_one() -> None:
    async with moving_room(waits_at_most(4.0), waiting=20, turns=10) as (made, _):
        await join(made, "better", QosTier.GUARANTEED, "many")
        assert made.refused == []


async def test_after_few_turns_nobody_is_refused_for_how_fast_the_line_moves() -> None:
    async with moving_room(waits_at_most(4.0), waiting=20, turns=3) as (made, _):
        await join(made, "early", QosTier.STANDARD, "many")
        assert made.refused == []


async def test_when_better_tiers_take_all_turns_the_line_is_known_to_stand() -> None:
    async with moving_room(waits_at_most(4.0), waiting=13, turns=10) as (made, now):  # three are left
        now[0] = 40.0
        await join(made, "late", QosTier.STANDARD, "many")
        assert made.refused == [("late", Reason.WOULD_WAIT_TOO_LONG)]


async def test_without_governance_whoever_would_wait_too_long_is_refused_too() -> None:
    async with moving_room(QosRules(), waiting=50, turns=10) as (made, _):  # forty are left, 30 s they may wait
        await join(made, "late", QosTier.STANDARD, "few")
        assert made.refused == [("late", Reason.WOULD_WAIT_TOO_LONG)]


async def test_a_line_that_was_empty_begins_anew() -> None:
    async with moving_room(waits_at_most(4.0), waiting=10, turns=10) as (made, now):
        now[0] = 1000.0
        for name in "123456":
            await join(made, name, QosTier.STANDARD, "many")
        assert made.refused == []
