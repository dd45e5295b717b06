"""Decisions in memory and in the ledger are one sequence, without gap or repetition."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry

from controlplane.ledger.decisions import MOST_WAITING, Decisions, Follower
from controlplane.ledger.encoding import ended_of
from controlplane.ledger.query import DecisionQuery
from controlplane.ledger.sqlite_store import SqliteStore
from controlplane.ledger.writer import LedgerWriter
from controlplane.metrics import ControlPlaneMetrics
from headrace_protos.headrace.v1 import decision_pb2
from support.ledger import BEGAN, at_work, recorded
from support.waiting import until

ANY = DecisionQuery()


def ids(messages: list[bytes]) -> list[str]:
    return [decision_pb2.RecordedDecision.FromString(each).request_id for each in messages]


async def newest(decisions: Decisions, limit: int = 100, query: DecisionQuery = ANY) -> list[str]:
    return ids([found.message for found in (await decisions.newest(query, limit)).found])


def in_memory(capacity: int = 10) -> Decisions:
    return Decisions(capacity, 1, lambda: BEGAN / 1e6)


async def test_in_memory_the_newest_come_first_and_the_oldest_give_way() -> None:
    decisions = in_memory(3)
    for number in range(5):
        decisions.record(ended_of(recorded(request_id=str(number))))
    assert len(decisions) == 3
    assert await newest(decisions) == ["4", "3", "2"]
    assert await newest(decisions, 2) == ["4", "3"]
    assert await newest(decisions, 0) == []


async def test_the_limit_counts_those_that_match() -> None:
    decisions = in_memory()
    decisions.record(ended_of(recorded(request_id="a", pool="one")))
    decisions.record(ended_of(recorded(request_id="b", pool="two")))
    decisions.record(ended_of(recorded(request_id="c", model="qwen", pool="three")))
    assert await newest(decisions, 1, DecisionQuery(model="llama")) == ["b"]
    assert await newest(decisions, 5, DecisionQuery(pool="one")) == ["a"]
    assert await newest(decisions, 5, DecisionQuery(model="qwen", pool="one")) == []


async def test_each_decision_gets_a_place_of_its_own_though_the_clock_stands_or_goes_back() -> None:
    times = iter([2.0, 2.0, 1.0, 3.0])
    decisions = Decisions(10, 7, lambda: next(times))
    for _ in range(4):
        decisions.record(ended_of(recorded()))
    found = (await decisions.newest(DecisionQuery(), 10)).found
    assert [each.recorded for each in found] == [3_000_000, 2_000_002, 2_000_001, 2_000_000]
    for each in found:
        message = decision_pb2.RecordedDecision.FromString(each.message)
        assert (message.recorded.ToMicroseconds(), message.recorder) == (each.recorded, 7)


@asynccontextmanager
async def with_ledger(file: Path, capacity: int = 10) -> AsyncIterator[tuple[Decisions, LedgerWriter]]:
    metrics = ControlPlaneMetrics(CollectorRegistry())
    writer = LedgerWriter(SqliteStore(file), metrics, lambda: BEGAN / 1e6, recorder=1, capacity=100_000, retention=1e6)
    async with at_work(writer):
        yield Decisions(capacity, 1, lambda: BEGAN / 1e6, writer), writer


async def test_at_every_moment_all_are_listed_once(tmp_path: Path) -> None:
    async with with_ledger(tmp_path / "ledger.sqlite") as (decisions, writer):
        count = 0
        while writer.written < 1_000:
            for _ in range(7):
                decisions.record(ended_of(recorded(request_id=str(count))))
                count += 1
            expected = [str(n) for n in reversed(range(count))][:10_000]
            assert await newest(decisions, 10_000) == expected


async def test_without_the_store_those_in_memory_are_listed_and_it_is_said(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    async with with_ledger(blocked / "ledger.sqlite", capacity=2) as (decisions, writer):
        for number in range(5):
            decisions.record(ended_of(recorded(request_id=str(number))))
        await until(lambda: writer.trouble is not None)
        listing = await decisions.newest(ANY, 10)
        assert listing.trouble
        assert ids([found.message for found in listing.found]) == ["4", "3", "2", "1", "0"]


async def test_what_was_recorded_outlives_the_process(tmp_path: Path) -> None:
    file = tmp_path / "ledger.sqlite"
    async with with_ledger(file) as (decisions, _):
        decisions.record(ended_of(recorded(request_id="before")))
    async with with_ledger(file) as (decisions, _):
        assert await newest(decisions) == ["before"]


async def test_a_follower_gets_what_matches_and_is_told_what_it_missed() -> None:
    decisions = in_memory()
    with decisions.following(DecisionQuery(model="llama")) as follower:
        decisions.record(ended_of(recorded(request_id="a")))
        decisions.record(ended_of(recorded(request_id="b", model="qwen")))
        assert await batch(follower) == (["a"], 0)
        for number in range(MOST_WAITING + 3):
            decisions.record(ended_of(recorded(request_id=str(number))))
        first, missed = await batch(follower)
        assert (first[0], missed) == ("3", 3)
    decisions.record(ended_of(recorded(request_id="later")))
    assert len(follower.waiting) == MOST_WAITING - len(first)


async def batch(follower: Follower) -> tuple[list[str], int]:
    async for rows, missed in follower.batches():
        return ids([row.message for row in rows]), missed
    raise AssertionError
