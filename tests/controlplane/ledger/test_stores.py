"""What every store of the ledger does; each test runs on a real SQLite file and on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, fields

import pytest

from controlplane.ledger.query import DecisionQuery
from controlplane.ledger.row import MOST_CHARACTERS, Row, row_of
from controlplane.ledger.store import LedgerStore, Loss, Shortfall, Tally
from support.ledger import BEGAN, DAY, HOUR, recorded, row

MANY = [
    row(BEGAN + 0, request_id="plain"),
    row(BEGAN + 1, request_id="model", model="qwen"),
    row(BEGAN + 2, request_id="pool", pool="other"),
    row(BEGAN + 3, request_id="tier", tier="quantized"),
    row(BEGAN + 4, request_id="tenant", tenant="name:other"),
    row(BEGAN + 5, request_id="verdict", verdict="tolerant"),
    row(BEGAN + 6, request_id="reason", reasons=("session_pinned", "neutral_prefers_full")),
    row(BEGAN + 7, request_id="session", session="id:1"),
    row(BEGAN + 8, request_id="refused", status=429),
    row(BEGAN + 9, request_id="failed", status=503),
    row(BEGAN + 10, request_id="left", status=0),
    row(BEGAN + 11, request_id="mistake", misroute="too_small"),
    row(BEGAN + DAY, request_id="next day"),
]
ALL_BUT = {each.request_id for each in MANY}


async def found(store: LedgerStore, limit: int = 100, **query: object) -> list[str]:
    """Their request ids."""
    rows = [row_of(_message(each.message)) for each in await store.find(DecisionQuery(**query), limit)]  # type: ignore[arg-type]
    return [each.request_id for each in rows]


def _message(encoded: bytes):  # type: ignore[no-untyped-def]
    from headrace_protos.headrace.v1 import decision_pb2

    return decision_pb2.RecordedDecision.FromString(encoded)


async def test_what_was_written_is_found_whole_and_the_last_first(store: LedgerStore) -> None:
    """Facts row: ledger."""
    await store.write(MANY, [])
    listed = await store.find(DecisionQuery(), 100)
    assert [each.message for each in listed] == [each.message for each in reversed(MANY)]
    assert [each[:2] for each in listed] == [each.key for each in reversed(MANY)]
    assert await found(store, 2) == ["next day", "mistake"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"model": "qwen"}, {"model"}),
        ({"pool": "other"}, {"pool"}),
        ({"tier": "quantized"}, {"tier"}),
        ({"tenant": "name:other"}, {"tenant"}),
        ({"verdict": "tolerant"}, {"verdict"}),
        ({"reason": "session_pinned"}, {"reason"}),
        ({"reason": "neutral_prefers_full"}, ALL_BUT),
        ({"reason": "neutral_prefers"}, set()),  # a reason is found whole only
        ({"misroute": "too_small"}, {"mistake"}),
        ({"misroute": "too_large"}, set()),
        ({"misroute": "too_small", "reason": "neutral_prefers_full"}, {"mistake"}),
        ({"misroute": "too_small", "reason": "session_pinned"}, set()),
        ({"session": "id:1"}, {"session"}),
        ({"request_id": "plain"}, {"plain"}),
        ({"status_from": 429, "status_to": 429}, {"refused"}),
        ({"status_from": 400}, {"refused", "failed"}),
        ({"status_from": 2**32 - 1}, set()),
        ({"errors_only": True}, {"refused", "failed", "left"}),
        ({"errors_only": True, "status_to": 450}, {"refused", "left"}),
        ({"since": BEGAN + 10}, {"left", "mistake", "next day"}),
        ({"until": BEGAN + 1}, {"plain"}),
        ({"since": BEGAN + 8, "until": BEGAN + 10}, {"refused", "failed"}),
        ({"model": "llama", "verdict": "tolerant"}, {"verdict"}),
        ({"model": "qwen", "verdict": "tolerant"}, set()),
        ({"model": "never seen"}, set()),
        ({"reason": "never_seen"}, set()),
    ],
)
async def test_filters_find_what_they_say(store: LedgerStore, query: dict[str, object], expected: set[str]) -> None:
    await store.write(MANY, [])
    assert set(await found(store, **query)) == expected
    assert {each.request_id for each in MANY if DecisionQuery(**query).matches(each)} == expected  # type: ignore[arg-type]


def test_every_filter_is_tried_above() -> None:
    marks = test_filters_find_what_they_say.pytestmark[0].args[1]  # type: ignore[attr-defined]
    assert {name for query, _ in marks for name in query} == {each.name for each in fields(DecisionQuery)}
    assert not any(asdict(DecisionQuery()).values())


async def test_filters_find_the_last_ones_also_far_back(store: LedgerStore) -> None:
    await store.write([row(BEGAN - HOUR + n, request_id=f"old {n}", tenant="name:old") for n in range(30)], [])
    for start in range(0, 12_000, 1_000):
        await store.write([row(BEGAN + start + n) for n in range(1_000)], [])
    assert await found(store, 3, tenant="name:old") == ["old 29", "old 28", "old 27"]


async def test_rows_that_are_written_again_stay_as_they_are(store: LedgerStore) -> None:
    await store.write(MANY[:6], [])
    await store.write(MANY, [])
    await store.write([MANY[0]._replace(model="changed", message=MANY[1].message)], [])
    assert await found(store) == [each.request_id for each in reversed(MANY)]
    assert await found(store, model="changed") == []


async def test_control_planes_that_record_in_the_same_microsecond_keep_both(store: LedgerStore) -> None:
    await store.write([row(BEGAN, recorder=2**32 - 1, request_id="b"), row(BEGAN, recorder=0, request_id="a")], [])
    assert await found(store) == ["b", "a"]


async def test_hostile_texts_and_numbers_are_written(store: LedgerStore) -> None:
    strange = "x\0y'\"\\%;--\u2028\U0001f4a5" + "z" * 10_000
    message = recorded(request_id=strange, model=strange, tenant=strange, session=strange, reasons=(strange,) * 100)
    message.outcome.status = 2**32 - 1
    message.outcome.attempts = 2**32 - 1
    message.outcome.prompt_tokens = 2**32 - 1
    message.decision.sensitivity.score = float("nan")
    message.time.FromSeconds(-60_000_000_000)
    made = row_of(message)
    await store.write([made], [])
    assert await store.find(DecisionQuery(tenant=made.tenant, session=made.session), 2)
    assert len(made.model) == MOST_CHARACTERS
    assert "\0" not in made.request_id


async def test_losses_are_kept(store: LedgerStore) -> None:
    loss = Loss(BEGAN, BEGAN + HOUR, 7, "queue_full", 12)
    await store.write([], [loss, loss._replace(cause="refused")])
    await store.write([row()], [])
    assert {each.cause: each for each in await store.losses(None, None)}["queue_full"] == loss
    assert await store.losses(BEGAN + 2 * HOUR, None) == []
    assert await store.losses(None, BEGAN) == []


async def test_what_is_too_old_goes_and_the_rest_stays(store: LedgerStore) -> None:
    old = [row(BEGAN - 40 * DAY + n, request_id=str(n), model=f"old {n % 7}") for n in range(5_000)]
    for start in range(0, len(old), 1_000):
        await store.write(old[start : start + 1_000], [Loss(old[0].recorded, old[0].recorded + 1, 1, "refused", start)])
    await store.write(MANY, [])
    slices = 1
    while await store.expire(BEGAN):
        slices += 1
        assert slices < 10
    assert await found(store) == [each.request_id for each in reversed(MANY)]
    assert await store.losses(None, None) == []
    await store.write([row(BEGAN + HOUR, request_id="again", model="old 1")], [])
    assert await found(store, model="old 1") == ["again"]


MINUTE = BEGAN // 60_000_000


async def test_what_was_made_and_is_not_written_is_known_whichever_control_plane_was_told(store: LedgerStore) -> None:
    one, other = Tally(MINUTE, "w", 1, made=10, written=4, lost=1), Tally(MINUTE, "w", 2, made=12, written=5, lost=0)
    next_minute = one._replace(minute=MINUTE + 1, made=3, written=3, lost=0)
    await store.write([row()], [], [one, other, next_minute, one._replace(worker="v")])
    assert await store.shortfalls(MINUTE, None) == [Shortfall(MINUTE, "v", 5), Shortfall(MINUTE, "w", 2)]
    assert await store.shortfalls(MINUTE + 1, None) == await store.shortfalls(0, MINUTE) == []
    await store.write([], [], [other._replace(written=7)])
    await store.write([], [], [other._replace(written=7)])  # as when nobody could say whether it had been
    assert await store.shortfalls(MINUTE, MINUTE + 1) == [Shortfall(MINUTE, "v", 5)]


async def test_tallies_go_with_the_decisions_that_they_count(store: LedgerStore) -> None:
    await store.write([], [], [Tally(MINUTE - 1, "w", 1, made=2, written=1, lost=0)])
    await store.write([], [], [Tally(MINUTE, "w", 1, made=2, written=1, lost=0)])
    while await store.expire(BEGAN):
        pass
    assert await store.shortfalls(0, None) == [Shortfall(MINUTE, "w", 1)]


async def test_reading_and_writing_at_once(store: LedgerStore) -> None:
    async def write(recorder: int) -> None:
        for start in range(0, 1_000, 100):
            await store.write([row(BEGAN + start + n, recorder=recorder) for n in range(100)], [])

    async def read() -> None:
        for _ in range(10):
            listed = await store.find(DecisionQuery(), 50)
            assert [each[:2] for each in listed] == sorted((each[:2] for each in listed), reverse=True)

    async with asyncio.TaskGroup() as tasks:
        for recorder in (1, 2):
            tasks.create_task(write(recorder))
        tasks.create_task(read())
    assert len(await store.find(DecisionQuery(), 10_000)) == 2_000


def test_a_row_is_as_wide_as_its_columns() -> None:
    assert len(row()) == len(Row._fields)
