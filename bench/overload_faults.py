"""Parts are killed while the fleet is asked for twice what it can do: what goes on, what comes back, what is lost.

    python bench/overload_faults.py [--period 15] [--load 2.0] [--seed 1] [--kill PART ...]

The load and the tuned policy of bench/overload.py, through two filter workers, with sessions in Redis and the ledger in
PostgreSQL. At the beginning of each period one part gets SIGKILL; databases are away for a third of it, filter and
control plane are started again by `headrace up`. In the end all requests that got an answer are looked for by their ids
in the ledger, and of those that failed the ledger says how.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from batching_fleet import fleet
from open_loop import Came, Due, quantile, send
from overload import POLICIES, SETUP, TENANTS, WARM_UP_SECONDS, kept, schedule

from controlplane.config.settings import Settings
from controlplane.model import QosTier
from headrace_protos.headrace.v1 import fleet_pb2
from support.postgresql import PASSWORD, RunningPostgresql, running_postgresql
from support.redis_server import RunningRedis, running_redis
from support.system import FREE_PORTS, RunningSystem, running_system

SESSIONS = 500
RECOVERED_WITHIN_SECONDS = 60.0
LOOK_EVERY_SECONDS = 0.5
WRITTEN_WITHIN_SECONDS = 30.0


def config(redis: str, ledger: str, password_file: Path) -> str:
    workers = f'ext_proc: {{workers: 2, session_store: {{url: "{redis}"}}, '
    return f"""{FREE_PORTS.replace("ext_proc: {", workers)}
ledger: {{url: "{ledger}", password_file: "{password_file}"}}
policy:{TENANTS}{POLICIES["tuned"]}"""


@dataclass(frozen=True, slots=True)
class World:
    system: RunningSystem
    settings: Settings
    postgresql: RunningPostgresql
    redis: RunningRedis

    async def until_well(self) -> None:
        """Asks seldom: the sender of the load runs in this process too."""
        async with asyncio.timeout(RECOVERED_WITHIN_SECONDS):
            while not await self.is_well():
                await asyncio.sleep(LOOK_EVERY_SECONDS)

    async def is_well(self) -> bool:
        """Both workers answer and know sessions, all nodes are ready, and the ledger is written."""
        try:
            status = await self.system.fleet.GetStatus(fleet_pb2.GetStatusRequest())
            nodes = await self.system.nodes()
        except Exception:  # the control plane is away
            return False
        return (
            await self.system.filter_metrics("headrace_session_store_up", self.settings) == [1, 1]
            and sum(node.ready for node in nodes) == SETUP.engines
            and not status.ledger.trouble
        )


async def kill_postgresql(world: World, away_seconds: float) -> None:
    world.postgresql.kill()
    await asyncio.sleep(away_seconds)
    world.postgresql.start()


async def kill_redis(world: World, away_seconds: float) -> None:
    await world.redis.kill()
    await asyncio.sleep(away_seconds)
    await world.redis.start()


async def kill_filter(world: World, _: float) -> None:
    await world.system.kill("ext-proc")


async def kill_control_plane(world: World, _: float) -> None:
    await world.system.kill("controlplane")


Kill = Callable[[World, float], Awaitable[None]]
KILLS: dict[str, Kill] = {
    "postgresql": kill_postgresql,
    "redis": kill_redis,
    "ext-proc": kill_filter,
    "controlplane": kill_control_plane,
}


@dataclass(slots=True)
class Killing:
    """One part each `period`, in seconds. `killed` says when, by the time of the schedule, and `recovered` how long it
    then took until all was well."""

    period: float
    kills: Mapping[str, Kill]
    killed: dict[str, float] = field(default_factory=dict)
    recovered: dict[str, float] = field(default_factory=dict)

    @property
    def end(self) -> float:
        return WARM_UP_SECONDS + self.period * (1 + len(self.kills))

    def phase(self, at: float) -> str:
        """What was killed last before this time."""
        before = [name for name, killed in self.killed.items() if killed <= at]
        return before[-1] if before else "nothing" if at >= WARM_UP_SECONDS else "warm-up"

    async def kill_all(self, world: World) -> None:
        began = time.monotonic()
        for number, (name, kill) in enumerate(self.kills.items(), 1):
            await asyncio.sleep(began + WARM_UP_SECONDS + self.period * number - time.monotonic())
            self.killed[name] = time.monotonic() - began
            await kill(world, self.period / 3)
            await world.until_well()
            self.recovered[name] = time.monotonic() - began - self.killed[name]


def with_sessions(due: Iterable[Due], dice: random.Random) -> list[Due]:
    """Half of them are of sessions."""
    return [
        replace(each, headers={**each.headers, "x-session-id": f"session-{dice.randrange(SESSIONS)}"})
        if dice.random() < 0.5
        else each
        for each in due
    ]


async def not_in_ledger(world: World, database: str, came: Sequence[Came]) -> set[str]:
    """The ids of requests that were answered and are not in the ledger, once it has stopped growing."""
    ids = {found for each in came if (found := each.headers.get("x-request-id"))}

    async def missing() -> set[str]:
        async with world.postgresql.connection(database) as connection:
            rows = await connection.fetch("SELECT request_id FROM headrace_decision_detail")
        return ids - {row["request_id"] for row in rows}

    left, before = await missing(), None
    deadline = time.monotonic() + WRITTEN_WITHIN_SECONDS
    while left and left != before and time.monotonic() < deadline:
        await asyncio.sleep(3.0)
        before, left = left, await missing()
    return left


async def failures(world: World) -> Counter[str]:
    """How requests failed, by Envoy's own words."""
    listed = await world.system.fleet.ListDecisions(fleet_pb2.ListDecisionsRequest(status_from=500, limit=1000))
    return Counter(
        f"{each.outcome.status} {each.outcome.details} flags={','.join(each.outcome.flags)} "
        f"action={each.decision.action} pool={each.decision.pool} attempts={each.outcome.attempts}"
        for each in listed.decisions
    )


def row(came: Sequence[Came], ended: Sequence[Came]) -> str:
    """What became of those that were sent, and who failed of those that ended, in one time."""
    best = [each for each in came if each.due.kind == QosTier.GUARANTEED]
    judged = [each for each in best if each.status != 429]
    failed = Counter(f"{each.status} {each.due.kind}" for each in ended if each.status not in {200, 429})
    served = sum(each.status == 200 for each in came)
    return (
        f"{len(came)} asked, {served} served, failed {dict(failed) or 'none'}; guaranteed: "
        f"{sum(not kept(each) for each in judged)} of {len(judged)} violated, "
        f"TTFT p99 {quantile([each.first for each in judged], 0.99):.2f} s, "
        f"sent late by {1000 * quantile([each.late for each in came], 0.99):.0f} ms (p99)"
    )


async def run(due: Sequence[Due], killing: Killing) -> None:
    with running_postgresql() as postgresql:
        await postgresql.until_up()
        url = await postgresql.new_database()
        password = postgresql.folder / "headrace-password"
        password.write_text(PASSWORD)
        password.chmod(0o600)
        async with (
            running_redis() as redis,
            running_system(config(redis.url, url, password)) as system,
            fleet(system, [SETUP]),
        ):
            world = World(system, system.settings(), postgresql, redis)
            await world.until_well()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(killing.kill_all(world))
                sending = tasks.create_task(send([system.gateway], due, counted_until=killing.end))
            came = sending.result()
            report(came, killing)
            lost = await not_in_ledger(world, urlsplit(url).path[1:], came)
            phases = Counter(
                killing.phase(each.due.at + each.whole) for each in came if each.headers.get("x-request-id") in lost
            )
            print(f"not in the ledger: {len(lost)} of {len(came)}; by when they ended: {dict(phases)}")
            for how, count in (await failures(world)).most_common():
                print(f"{count} failed: {how}")
            status = await world.system.headrace("status")
            print(status.out)


def report(came: Sequence[Came], killing: Killing) -> None:
    """By what was killed last: when they were sent, or of those that failed, when they did. Who has waited in a worker
    for some seconds fails when it is killed, and was sent when something else had been."""
    for name in ("nothing", *killing.kills):
        counted = [each for each in came if killing.phase(each.due.at) == name]
        ended = [each for each in came if killing.phase(each.due.at + each.whole) == name]
        recovered = f"; all well after {killing.recovered[name]:.1f} s" if name in killing.recovered else ""
        print(f"{name} killed: {row(counted, ended)}{recovered}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--period", type=float, default=15.0, help="seconds from one kill to the next")
    parser.add_argument("--load", type=float, default=2.0, help="what is asked for, as a multiple of the capacity")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--kill", nargs="+", choices=list(KILLS), default=list(KILLS), metavar="PART", help="what to kill"
    )
    given = parser.parse_args()
    killing, dice = Killing(given.period, {name: KILLS[name] for name in given.kill}), random.Random(given.seed)
    due = with_sessions(schedule(killing.end + 40.0, given.load, dice), dice)
    asyncio.run(run(due, killing))


if __name__ == "__main__":
    main()
