"""A long run of sessions while nodes come back in other formats and die: no session may change its format tier.

    python bench/soak.py [SECONDS] [CLIENTS] [SEED]

`headrace up` with two filter workers and a session store, real Envoy and etcd; the engines are fake and batch as vLLM
does, each with an agent of its own as a process. What reached which engine is taken from the engines themselves, not
from what Headrace says. Prints what happened and how long it took; ends with status 1 if a promise was broken.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.engine import EngineShape, FakeEngine, Received, running_engine
from support.redis_server import running_redis
from support.system import RunningSystem, running_system
from support.waiting import until

MODEL = "soak-model"
NODES = 8
SEQUENCES = 8
QUIESCENCE_SECONDS = 60.0
LEASE_SECONDS = 6.0
EVENT_SECONDS = 8.0
THINK_SECONDS = 2.5

CONFIG = """
gateway: {{address: "127.0.0.1:0"}}
control_plane: {{grpc: "127.0.0.1:0", xds: "127.0.0.1:0", metrics: "127.0.0.1:0", lease: {lease}}}
ext_proc:
  listen: "127.0.0.1:0"
  health: "127.0.0.1:0"
  metrics: "127.0.0.1:0"
  workers: 2
  session_store: {{url: "{store}"}}
envoy: {{admin: "127.0.0.1:0", concurrency: 1}}
policy:
  sessions: {{quiescence: {{seconds: {quiescence}}}}}
"""

TIER_OF = {"bf16": "full", "fp16": "full", "int4-awq": "quantized", "int4-gptq": "quantized"}
ROOTS = {"int4-awq": f"org/{MODEL}-awq", "int4-gptq": f"org/{MODEL}-gptq-int4"}
TASKS = (
    ("Write a Python function that sorts a list.", 0.0),
    ("Tell me about rivers.", 0.5),
    ("Write a short story about a river.", 1.0),
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A session's request at an engine, in Unix seconds."""

    at: float
    session: str
    node: str
    format: str


@dataclass(slots=True)
class Log:
    """All that was seen."""

    arrivals: list[Arrival] = field(default_factory=list)
    told: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # tiers, as answers' headers say
    outcomes: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    registrations: dict[str, tuple[str, float]] = field(default_factory=dict)  # node and time, by node session
    cut_short: list[tuple[float, float]] = field(default_factory=list)  # when engines were killed
    longest_lag: float = 0.0  # how late this process itself was: what it sees is no more exact than that


class Arrivals(deque[Received]):
    """Takes the place of an engine's list of requests, and keeps only when whose came."""

    def __init__(self, log: Log, node: str, loaded: str) -> None:
        super().__init__(maxlen=1)
        self._log, self._node, self.loaded = log, node, loaded

    def append(self, received: Received) -> None:
        session = received.header("x-session-id")
        if session is not None:
            self._log.arrivals.append(Arrival(time.time(), session, self._node, self.loaded))


class Node:
    """An engine with its agent, which may be loaded with another format, restarted and killed."""

    def __init__(self, system: RunningSystem, log: Log, node_id: str, loaded: str) -> None:
        self.system, self.log, self.node_id, self.loaded = system, log, node_id, loaded
        self.busy = False
        self._port = 0
        self._engine_stack = AsyncExitStack()
        self._agent_stack = AsyncExitStack()
        self._engine: FakeEngine | None = None
        self._agent: asyncio.subprocess.Process | None = None

    @property
    def engine(self) -> FakeEngine:
        assert self._engine is not None
        return self._engine

    async def start(self) -> None:
        await self._start_engine()
        await self._start_agent()

    async def stop(self) -> None:
        await self._stop_agent()
        await self._stop_engine()

    async def load_another(self, loaded: str) -> None:
        """As an operator does it: the agent leaves, the engine is started anew, and so is the agent."""
        await self._stop_agent()
        await self._stop_engine()
        self.loaded = loaded
        await self.start()

    async def load_in_place(self, loaded: str) -> None:
        """The engine comes back in another format under the eyes of its agent."""
        self.log.cut_short.append((time.time(), time.time() + 5))
        await self._stop_engine()
        await asyncio.sleep(2.5)
        self.loaded = loaded
        await self._start_engine()

    async def restart_agent(self) -> None:
        await self._kill_agent()
        await self._start_agent()

    async def die(self, loaded: str) -> None:
        """Engine and agent end at once; the node comes back when its lease is over."""
        self.log.cut_short.append((time.time(), time.time() + LEASE_SECONDS + 5))
        await self._kill_agent()
        await self._stop_engine()
        await asyncio.sleep(LEASE_SECONDS + 2)
        self.loaded = loaded
        await self.start()

    async def _start_engine(self) -> None:
        shape = EngineShape(
            model=MODEL,
            root=ROOTS.get(self.loaded, f"org/{MODEL}"),
            max_num_seqs=SEQUENCES,
            decode_rate=40.0 if TIER_OF[self.loaded] == "full" else 70.0,
            time_scale=1.0,
        )
        self._engine = await self._engine_stack.enter_async_context(running_engine(shape, port=self._port))
        self._engine.requests = Arrivals(self.log, self.node_id, self.loaded)
        self._port = int(self._engine.url.rpartition(":")[2])

    async def _stop_engine(self) -> None:
        await self._engine_stack.aclose()

    async def _start_agent(self) -> None:
        flags = ["--max-sequences", str(SEQUENCES), "--drain-grace", "60"]
        if self.loaded not in ROOTS:  # vLLM tells only quantized formats
            flags += ["--format", self.loaded]
        self._agent = await self._agent_stack.enter_async_context(
            self.system.node(self.engine.url, self.node_id, *flags)
        )

    async def _stop_agent(self) -> None:
        await self._agent_stack.aclose()

    async def _kill_agent(self) -> None:
        assert self._agent is not None
        if self._agent.returncode is None:
            os.kill(self._agent.pid, signal.SIGKILL)
        await self._stop_agent()


async def main(seconds: float, sessions: int, seed: int) -> int:
    dice, log = random.Random(seed), Log()
    async with (
        running_redis() as store,
        running_system(CONFIG.format(lease=LEASE_SECONDS, store=store.url, quiescence=QUIESCENCE_SECONDS)) as system,
    ):
        async with running_fleet(system, log) as nodes, asyncio.TaskGroup() as tasks:
            limits = httpx.Limits(max_connections=sessions, max_keepalive_connections=sessions)
            async with httpx.AsyncClient(
                base_url=system.gateway, timeout=90.0, limits=limits, trust_env=False
            ) as client:
                stop = time.monotonic() + seconds
                living = [
                    tasks.create_task(live(client, log, stop, random.Random(dice.random()), index))
                    for index in range(sessions)
                ]
                troubling = tasks.create_task(make_trouble(system, log, nodes, stop, dice))
                watching = [
                    tasks.create_task(watch_registrations(system, log)),
                    tasks.create_task(watch_lag(log)),
                ]
                await asyncio.gather(*living, troubling)
                rest = await remainders(system, nodes)
                for task in watching:
                    task.cancel()
        return report(log, seconds, sessions, rest)


@asynccontextmanager
async def running_fleet(system: RunningSystem, log: Log) -> AsyncIterator[list[Node]]:
    formats = ("bf16", "int4-awq", "fp16", "int4-gptq")
    nodes = [Node(system, log, f"node-{index}", formats[index % len(formats)]) for index in range(NODES)]
    try:
        await asyncio.gather(*(node.start() for node in nodes))
        await until(lambda: _all_ready(system), 60)
        yield nodes
    finally:
        await asyncio.gather(*(node.stop() for node in nodes), return_exceptions=True)


async def _all_ready(system: RunningSystem) -> bool:
    return sum(node.ready for node in await system.nodes()) == NODES


# --- clients -------------------------------------------------------------------------------------------------------


async def live(client: httpx.AsyncClient, log: Log, stop: float, dice: random.Random, index: int) -> None:
    """One client: session after session, each of some turns with pauses between them."""
    await asyncio.sleep(dice.uniform(0, THINK_SECONDS))
    count = 0
    while time.monotonic() < stop:
        count += 1
        session, (text, temperature) = f"client-{index}-session-{count}", dice.choice(TASKS)
        for _ in range(dice.randint(3, 40)):
            if time.monotonic() >= stop:
                break
            body = {
                "model": MODEL,
                "messages": [{"role": "user", "content": text}],
                "temperature": temperature,
                "max_tokens": dice.randint(8, 40),
                "stream": dice.random() < 0.5,
            }
            await ask(client, log, session, body)
            await asyncio.sleep(dice.expovariate(1 / THINK_SECONDS))


async def ask(client: httpx.AsyncClient, log: Log, session: str, body: dict[str, Any]) -> None:
    started = time.perf_counter()
    try:
        answer = await client.post("/v1/chat/completions", json=body, headers={"x-session-id": session})
    except httpx.HTTPError as error:
        log.outcomes[f"{type(error).__name__}{_while_killed(log)}"] += 1
        return
    log.seconds.append(time.perf_counter() - started)
    if answer.status_code == 200:
        log.outcomes["200"] += 1
        log.told[session].append(answer.headers.get("x-headrace-format", "none"))
    else:
        reason = answer.headers.get("x-headrace-reason", "")
        log.outcomes[f"{answer.status_code} {reason}{_while_killed(log)}"] += 1


def _while_killed(log: Log) -> str:
    now = time.time()
    return " (an engine was killed)" if any(start <= now <= end for start, end in log.cut_short) else ""


# --- trouble -------------------------------------------------------------------------------------------------------


async def make_trouble(system: RunningSystem, log: Log, nodes: list[Node], stop: float, dice: random.Random) -> None:
    kinds = itertools.cycle(("other tier", "killed", "same tier", "in place", "other tier", "agent"))
    async with asyncio.TaskGroup() as tasks:
        while time.monotonic() + EVENT_SECONDS < stop:
            await asyncio.sleep(EVENT_SECONDS)
            node = await _spare(system, nodes, dice)
            if node is None:
                log.events["nothing: no node could be spared"] += 1
                continue
            node.busy = True
            tasks.create_task(_trouble(node, next(kinds), log, dice))


async def _trouble(node: Node, kind: str, log: Log, dice: random.Random) -> None:
    others = [each for each in TIER_OF if each != node.loaded]
    other_tier = [each for each in others if TIER_OF[each] != TIER_OF[node.loaded]]
    same_tier = [each for each in others if TIER_OF[each] == TIER_OF[node.loaded]]
    if kind == "in place" and node.loaded not in ROOTS:
        kind = "same tier"
    match kind:
        case "other tier":
            log.events["loaded in another tier"] += 1
            await node.load_another(dice.choice(other_tier))
        case "same tier":
            log.events["loaded in another format of its tier"] += 1
            await node.load_another(dice.choice(same_tier))
        case "in place":
            log.events["loaded in place in another format of its tier"] += 1
            await node.load_in_place(dice.choice(same_tier))
        case "agent":
            log.events["agent killed and started again"] += 1
            await node.restart_agent()
        case _:
            log.events["killed, and back in some format"] += 1
            await node.die(dice.choice(others))
    node.busy = False


async def _spare(system: RunningSystem, nodes: list[Node], dice: random.Random) -> Node | None:
    """A settled node whose tier has another settled one: no session may be left without a node that it can use."""
    settled = {each.spec.node_id for each in await system.nodes() if each.ready and not each.quiescing_seconds}
    free = [node for node in nodes if node.node_id in settled and not node.busy]
    dice.shuffle(free)
    by_tier = Counter(TIER_OF[node.loaded] for node in free)
    return next((node for node in free if by_tier[TIER_OF[node.loaded]] > 1), None)


async def watch_lag(log: Log) -> None:
    while True:
        due = time.monotonic() + 0.05
        await asyncio.sleep(0.05)
        log.longest_lag = max(log.longest_lag, time.monotonic() - due)


async def watch_registrations(system: RunningSystem, log: Log) -> None:
    while True:
        for node in await system.nodes():
            log.registrations[node.session_id] = (node.spec.node_id, node.registered_at.ToNanoseconds() / 1e9)
        await asyncio.sleep(0.5)


# --- what came of it -----------------------------------------------------------------------------------------------


async def remainders(system: RunningSystem, nodes: list[Node]) -> dict[str, float]:
    """What is still counted once all clients are done; each should be 0."""

    async def gone() -> bool:
        pools = await system.pools()
        return all(pool.load.running == 0 and pool.load.waiting == 0 for pool in pools)

    try:
        await until(gone, 15)
    except AssertionError:
        print("pools still tell of load:", [(pool.name, pool.load) for pool in await system.pools()])
    running = sum(node.engine.counters.running for node in nodes)
    waiting = sum(node.engine.counters.waiting for node in nodes)
    pools = await system.pools()
    return {
        "running in engines": running,
        "waiting in engines": waiting,
        "running by load reports": sum(pool.load.running for pool in pools),
        "waiting by load reports": sum(pool.load.waiting for pool in pools),
        "waiting in filters": await system.filter_metric("headrace_waiting_requests"),
    }


def report(log: Log, seconds: float, sessions: int, rest: dict[str, float]) -> int:
    formats: dict[str, set[str]] = defaultdict(set)
    for arrival in log.arrivals:
        formats[arrival.session].add(TIER_OF[arrival.format])
    switched = [session for session, tiers in formats.items() if len(tiers) > 1]
    told = [session for session, tiers in log.told.items() if len(set(tiers)) > 1]
    broken = quiescing_violations(log)
    print(f"{seconds:.0f} s, {sessions} clients, {len(formats)} sessions, {len(log.arrivals)} requests at engines")
    _print("what was done to nodes", log.events)
    _print("outcomes", log.outcomes)
    times = sorted(log.seconds) or [0.0]
    print(f"seconds a request: median {times[len(times) // 2]:.2f}, p99 {times[int(len(times) * 0.99)]:.2f}")
    print(f"this process was late by {log.longest_lag:.2f} s at most")
    promises = {
        "sessions whose requests reached engines of two tiers": len(switched),
        "sessions whose answers told of two tiers": len(told),
        "requests of old sessions at a quiescing node": len(broken),
        **rest,
    }
    for name, count in promises.items():
        print(f"{'ok ' if not count else 'BROKEN'} {name}: {count:g}")
    for arrival, registered in broken[:10]:
        since = arrival.at - registered
        print(f"  {arrival.session} reached {arrival.node} ({arrival.format}) {since:.3f} s after it registered anew")
    return 1 if any(promises.values()) else 0


def quiescing_violations(log: Log) -> list[tuple[Arrival, float]]:
    """Requests that reached a node within its quiescence though their session had begun before, and when that began.

    A session begins with its first request at an engine: while that waits, or is refused, it is bound to nothing.
    """
    began: dict[str, float] = {}
    for arrival in sorted(log.arrivals, key=lambda each: each.at):
        began.setdefault(arrival.session, arrival.at)
    registered: dict[str, list[float]] = defaultdict(list)
    for node, at in sorted(log.registrations.values(), key=lambda entry: entry[1]):
        registered[node].append(at)
    found = []
    for arrival in log.arrivals:
        anew = [at for at in registered[arrival.node][1:] if at <= arrival.at < at + QUIESCENCE_SECONDS]
        found += [(arrival, at) for at in anew[-1:] if began[arrival.session] < at]
    return found


def _print(title: str, counts: Counter[str]) -> None:
    print(f"{title}:")
    for name, count in sorted(counts.items(), key=lambda entry: -entry[1]):
        print(f"  {count:7} {name}")


if __name__ == "__main__":
    arguments = [float(argument) for argument in sys.argv[1:]]
    duration, clients, first = [*arguments, *(600.0, 200.0, 1.0)[len(arguments) :]]
    sys.exit(asyncio.run(main(duration, int(clients), int(first))))
