"""What the ledger takes and how fast it answers, on SQLite and PostgreSQL.

    python bench/ledger.py [--rows 1000000] [--stores sqlite,postgresql]

First so many rows are written as fast as it goes; then each kind of filter is asked for in turn, three times; then
decisions arrive for some seconds at 5,000 a second, and then at far more than can be taken. CPU is this process's own,
from the recorded message on. PostgreSQL is the one of the tests, with its durability as by default.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace
from prometheus_client import CollectorRegistry

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from controlplane.ledger.decisions import Decisions
from controlplane.ledger.encoding import ended_of
from controlplane.ledger.postgresql_store import PostgresqlAccess, PostgresqlStore
from controlplane.ledger.query import DecisionQuery
from controlplane.ledger.row import Row, row_of
from controlplane.ledger.sqlite_store import SqliteStore
from controlplane.ledger.store import LedgerStore
from controlplane.ledger.writer import LedgerWriter
from controlplane.metrics import ControlPlaneMetrics
from headrace_protos.headrace.v1 import decision_pb2
from support.postgresql import PASSWORD, running_postgresql

BATCH = 1_000
SAMPLE = 4_000  # different decisions, over which the rows go round
SUSTAINED = 5_000  # decisions a second
SECONDS = 20.0
MICROSECONDS_APART = 2_000

MODELS = tuple(f"org/model-{n}-instruct" for n in range(8))
TENANTS = tuple(f"name:tenant-{n}" for n in range(200))
REASONS = {
    "sensitive": ("sensitive_needs_full",),
    "neutral": ("neutral_prefers_full",),
    "tolerant": ("tolerant_prefers_quantized",),
}


def decision(dice: random.Random, recorded: int) -> decision_pb2.RecordedDecision:
    """One as the filter makes them: with contributions, four pools that were looked at, and what would change it."""
    model = dice.choice(MODELS)
    tenant = TENANTS[min(int(dice.expovariate(0.05)), len(TENANTS) - 1)]
    verdict = dice.choice(("sensitive", "neutral", "neutral", "tolerant"))
    tier = "quantized" if verdict == "tolerant" else "full"
    pool = f"{model}/{tier}/{dice.choice(('short', 'short', 'long'))}/on_demand"
    status = dice.choices((200, 400, 429, 503, 0), (960, 10, 20, 5, 5))[0]
    reasons = list(REASONS[verdict])
    if dice.random() < 0.3:
        reasons.insert(0, "session_pinned")
    if dice.random() < 0.05:
        reasons.append("spilled_under_load")
    made = decision_pb2.RecordedDecision(
        request_id=f"{dice.getrandbits(128):032x}",
        recorder=7,
        decision=decision_pb2.Decision(
            action="pass" if status != 503 else "reject",
            endpoint="chat",
            model=model,
            pool=pool,
            tier=tier,
            reasons=reasons,
            tenant=tenant,
            session=f"id:{dice.randrange(200_000):032x}",
            stream=True,
            sensitivity=decision_pb2.Sensitivity(
                verdict=verdict,
                score=float(dice.randrange(-150, 200)),
                contributions=[
                    decision_pb2.Contribution(name="greedy", points=70, why="temperature is 0"),
                    decision_pb2.Contribution(
                        name="structured_words", points=48, why="python (code), json (data) in the first user turn"
                    ),
                    decision_pb2.Contribution(
                        name="long_output", points=25, why="more than 1000 output tokens are expected"
                    ),
                ],
            ),
            budget=decision_pb2.Budget(
                prompt_tokens=dice.randrange(50, 9000),
                output_tokens=1000,
                category="prose",
                ratio=3.6,
                output_from="default",
            ),
            alternatives=[
                decision_pb2.Alternative(
                    pool=f"{model}/{t}/{c}/on_demand",
                    scores={
                        "room": 1.0,
                        "tier": 1.0,
                        "context": 0.5,
                        "gain": 0.4,
                        "headroom": dice.random(),
                        "fidelity": 0.9,
                        "on_demand": 1.0,
                    },
                    total=25 * dice.random(),
                )
                for t in ("full", "quantized")
                for c in ("short", "long")
            ],
        ),
        outcome=decision_pb2.Outcome(
            status=status,
            upstream="10.0.0.7:8000",
            cluster=pool,
            duration_seconds=dice.expovariate(0.3),
            first_byte_seconds=0.2,
            prompt_tokens=dice.randrange(50, 9000),
            completion_tokens=dice.randrange(1, 2000),
            attempts=1,
            details="via_upstream",
            node_id=f"node-{dice.randrange(40)}",
            node_session_id=f"{dice.getrandbits(64):016x}",
        ),
    )
    made.recorded.FromMicroseconds(recorded)
    made.time.FromMicroseconds(recorded - 3_000_000)
    return made


def rows(count: int, dice: random.Random, until: int) -> Iterator[list[Row]]:
    """In batches, of which the last ends at `until`, in Unix microseconds."""
    sample = [decision(dice, 1) for _ in range(min(count, SAMPLE))]
    at = until - count * MICROSECONDS_APART
    for start in range(0, count, BATCH):
        batch = []
        for number in range(start, min(start + BATCH, count)):
            message = sample[number % len(sample)]
            message.request_id = f"{dice.getrandbits(128):032x}"
            message.decision.session = f"id:{dice.randrange(200_000):032x}"
            message.recorded.FromMicroseconds(at + number * MICROSECONDS_APART)
            batch.append(row_of(message))
        yield batch


def queries(last: Row, until: int) -> dict[str, DecisionQuery]:
    return {
        "nothing": DecisionQuery(),
        "model": DecisionQuery(model=MODELS[3]),
        "pool": DecisionQuery(pool=last.pool),
        "tier": DecisionQuery(tier="quantized"),
        "tenant": DecisionQuery(tenant=TENANTS[2]),
        "rare tenant": DecisionQuery(tenant=TENANTS[150]),
        "verdict": DecisionQuery(verdict="sensitive"),
        "reason": DecisionQuery(reason="spilled_under_load"),
        "status 503": DecisionQuery(status_from=503, status_to=503),
        "status 418, which none has": DecisionQuery(status_from=418, status_to=418),
        "errors": DecisionQuery(errors_only=True),
        "session": DecisionQuery(session=last.session),
        "request id": DecisionQuery(request_id=last.request_id),
        "an hour, long ago": DecisionQuery(until=until - 1_500_000_000, tier="full"),
        "reason and verdict that never meet": DecisionQuery(reason="sensitive_needs_full", verdict="tolerant"),
        "model and pool that never meet": DecisionQuery(model=MODELS[1], pool=f"{MODELS[2]}/full/short/on_demand"),
        "errors of a tenant": DecisionQuery(errors_only=True, tenant=TENANTS[40], verdict="tolerant"),
    }


async def measure(name: str, store: LedgerStore, count: int) -> None:
    now = int(time.time() * 1e6)
    written, cpu, wall = 0, 0.0, 0.0
    last: Row | None = None
    for batch in rows(count, random.Random(1), now):
        cpu_before, before = time.process_time(), time.perf_counter()
        await store.write(batch, [])
        cpu, wall = cpu + time.process_time() - cpu_before, wall + time.perf_counter() - before
        written += len(batch)
        last = batch[-1]
    assert last is not None
    print(f"{name}: {written} rows written, {written / wall:,.0f} a second, {cpu / written * 1e6:.0f} us CPU each")
    print(f"{'  milliseconds for the last 20':42} {'first':>8} {'best':>8} {'found':>6}")
    for label, query in queries(last, now).items():
        took = []
        for _ in range(3):
            before = time.perf_counter()
            found = await store.find(query, 20)
            took.append((time.perf_counter() - before) * 1e3)
        print(f"  {label:40} {took[0]:8.1f} {min(took):8.1f} {len(found):6}")
    for rate in (SUSTAINED, 10 * SUSTAINED):
        await arrive(store, rate)


async def arrive(store: LedgerStore, rate: int) -> None:
    """Decisions at a rate, through all that a control plane does with them but reading the access log."""
    writer = LedgerWriter(
        _Kept(store), ControlPlaneMetrics(CollectorRegistry()), time.time, recorder=3, capacity=50_000, retention=1e9
    )
    decisions = Decisions(10_000, 3, time.time, writer)
    task = asyncio.ensure_future(writer.run())
    dice = random.Random(2)
    sample = [ended_of(decision(dice, 1)) for _ in range(SAMPLE)]
    offered, lag = 0, 0.0
    cpu_before, before = time.process_time(), time.perf_counter()
    while (elapsed := time.perf_counter() - before) < SECONDS:
        due = min(int(elapsed * rate) - offered, rate // 20)
        for _ in range(due):
            decisions.record(replace(sample[offered % SAMPLE], request_id=f"{dice.getrandbits(128):032x}"))
            offered += 1
        slept = time.perf_counter()
        await asyncio.sleep(0.01)
        lag = max(lag, time.perf_counter() - slept - 0.01)
    waiting = writer.waiting
    task.cancel()
    await asyncio.wait([task])
    cpu, wall = time.process_time() - cpu_before, time.perf_counter() - before
    lost = {str(cause): count for cause, count in writer.lost.items()}
    print(
        f"  {offered / SECONDS:,.0f} a second for {SECONDS:.0f} s: {writer.written:,} written, {waiting:,} waited\n"
        f"    at the end, lost {lost}; {cpu / offered * 1e6:.0f} us CPU each, {cpu / wall:.0%} of a processor;\n"
        f"    the event loop was late by {lag * 1e3:.0f} ms at most"
    )


class _Kept:
    """The store, left open."""

    def __init__(self, store: LedgerStore) -> None:
        self.write, self.find, self.losses, self.expire = store.write, store.find, store.losses, store.expire
        self.shortfalls = store.shortfalls
        self.place = store.place

    async def close(self) -> None:
        pass


async def main(count: int, stores: list[str]) -> None:
    if "sqlite" in stores:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "ledger.sqlite"
            sqlite = SqliteStore(file)
            await measure("SQLite", sqlite, count)
            print(f"  the file has {file.stat().st_size / 2**20:,.0f} MiB")
            await sqlite.close()
    if "postgresql" in stores:
        with running_postgresql() as server:
            await server.until_up()
            postgresql = PostgresqlStore(PostgresqlAccess(await server.new_database(), PASSWORD))
            await measure("PostgreSQL", postgresql, count)
            await postgresql.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--stores", default="sqlite,postgresql")
    chosen = parser.parse_args()
    asyncio.run(main(chosen.rows, chosen.stores.split(",")))
