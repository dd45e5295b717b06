"""The simulator's model as a plain event loop: `decide` is called for every request, each token is an event.

Slow and short. It knows no runs of iterations, no table of answers and no compiled code, so that what they give can be
held against it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from msgspec import structs

from controlplane.features import Features
from controlplane.model import Action, Decision, FormatTier, Pin, PoolLoad, QosTier, TierPressure
from controlplane.policy.decide import decide
from controlplane.policy.qos import Mode
from controlplane.policy.table import RoutingTable, with_pools
from planner.simulation.course import RATE_SECONDS, REPLACED_WITHIN_SECONDS
from planner.simulation.fleet import SimulatedFleet
from planner.simulation.pressures import PoolPressure
from planner.simulation.routes import Case, Routes
from planner.simulation.setup import first_state, picoseconds
from planner.simulation.state import (
    ENGINE_REFUSED,
    LOST,
    NEVER,
    QUEUE_FULL,
    REFUSED,
    SECOND,
    SERVED,
    WAITED_TOO_LONG,
)
from planner.workload.workload import Workload
from support.plain_engine import PlainEngine, PlainSequence

_BITS = 2**64 - 1


@dataclass(slots=True, eq=False)
class Waiter:
    """Who waits for room in one of the pools, the best first, or is held."""

    request: PlainSequence
    pools: tuple[int, ...]
    held: bool


class PlainFleet:
    def __init__(self, workload: Workload, fleet: SimulatedFleet, seed: int = 0) -> None:
        self.fleet, self.policy = fleet, fleet.policy
        self.routes = Routes(fleet)
        self.requests = _requests(workload, fleet, self.routes)
        self.engines = [
            [PlainEngine(pool, limit=pool.engine.max_sequences) for _ in range(pool.instances)] for pool in fleet.pools
        ]
        self.places = {pool.name(self.policy): place for place, pool in enumerate(fleet.pools)}
        self.governed = self.policy.qos.mode is Mode.ENABLED
        self.line: list[Waiter] = []
        self.pins: dict[int, tuple[FormatTier, int]] = {}
        self.loads: list[PoolLoad | None] = [None] * len(self.engines)
        self.pressures: list[tuple[TierPressure, ...]] = [()] * len(self.engines)
        self.watches = [PoolPressure(self.policy.qos, self.policy.sla, fleet.heartbeat_seconds) for _ in self.engines]
        self.missed = np.zeros((len(self.engines), len(QosTier), 2), np.int64)
        self.now = 0
        self.since_aged = 0
        self.decisions = 0
        self.dice = seed
        self.table = self._routing_table()

    def finish(self) -> list[PlainSequence]:
        arrivals = iter(self.requests)
        arriving = next(arrivals, None)
        failures = sorted(self.fleet.failures, key=lambda failure: failure.seconds)
        beat = picoseconds(self.fleet.heartbeat_seconds)
        while arriving is not None or any(not each.outcome and each.arrival <= self.now for each in self.requests):
            failure = picoseconds(failures[0].seconds) if failures else NEVER
            ending = min((e for e in self._every() if e.ends_at is not None), key=lambda e: e.ends_at, default=None)
            end = NEVER if ending is None or ending.ends_at is None else ending.ends_at
            timeout = min(map(self._deadline, self.line), default=NEVER)
            arrival = NEVER if arriving is None else arriving.arrival
            self.now = min(failure, end, beat, timeout, arrival)
            if self.now == failure:
                failed = failures.pop(0)
                self._fail(self.engines[failed.pool][failed.instance])
            elif self.now == end and ending is not None:
                for request in ending.end(self.now):
                    self._end(request, SERVED)
                self._serve()
                ending.begin(self.now)
            elif self.now == beat:
                beat += picoseconds(self.fleet.heartbeat_seconds)
                self._beat()
            elif self.now == timeout:
                self._lose_patience()
            elif arriving is not None:
                self._decide(arriving, self._is_free)
                arriving = next(arrivals, None)
        return self.requests

    # --- deciding --------------------------------------------------------------------------------------------------

    def _decide(self, request: PlainSequence, free: Callable[[int], bool]) -> None:
        pinned = self.pins.get(request.session)
        pin = Pin(pinned[0]) if pinned and self.now - pinned[1] <= self._pin_lasts else None
        ask = self.routes.ask(Case(request.tier * 3 + request.verdict, 0, 0, 0, 0))
        ask = structs.replace(
            ask,
            features=Features(token_ids=request.budget - 1),
            session=str(request.session) if request.session >= 0 else None,
        )
        waited = (self.now - request.began) / SECOND if request.began >= 0 else 0.0
        decision = decide(ask, self.table, pin, lambda name: free(self.places[name]), waited_seconds=waited)
        self.decisions += 1
        if decision.is_sent:
            self._send(request, decision)
        elif decision.action is Action.QUEUE:
            self._wait(request, decision)
        else:
            self._end(request, REFUSED)

    def _send(self, request: PlainSequence, decision: Decision) -> None:
        assert decision.pool is not None
        place = self.places[decision.pool.name]
        context = self.fleet.pools[place].engine.max_context
        if request.prompt >= context or (request.cap and request.prompt + request.cap > context):
            self._end(request, ENGINE_REFUSED)
            return
        request.output = min(request.output, context - request.prompt, decision.output_limit or request.output)
        request.pool = place
        if request.session >= 0 and not decision.asked_model:
            self.pins[request.session] = (decision.pool.tier, self.now)
        self._dispatch(request)

    def _dispatch(self, request: PlainSequence) -> None:
        one, other = self._draw(request.pool), self._draw(request.pool)
        engine = other if other.held < one.held else one
        engine.waiting.append(request)
        if engine.ends_at is None and not engine.is_ending:
            engine.begin(self.now)

    def _draw(self, pool: int) -> PlainEngine:
        while True:
            self.dice = (self.dice + 0x9E3779B97F4A7C15) & _BITS
            x = self.dice
            x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _BITS
            x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _BITS
            engine = self.engines[pool][((x ^ (x >> 31)) >> 2) % len(self.engines[pool])]
            if engine.alive:
                return engine

    # --- the filter's line -----------------------------------------------------------------------------------------

    def _wait(self, request: PlainSequence, decision: Decision) -> None:
        if request.began < 0:
            alike = [each for each in self.line if not self.governed or each.request.tier == request.tier]
            rules = self.policy.qos.of(tuple(QosTier)[request.tier])
            if len(alike) >= (rules.most_waiting if self.governed else self.policy.waiting.most_waiting):
                self._end(request, QUEUE_FULL)
                return
            request.began = self.now
        pools = tuple(self.places[name] for name in decision.waits_for)
        self.line.append(Waiter(request, pools, decision.held_seconds > 0))
        self.line.sort(key=lambda each: (each.request.began, each.request.number))

    def _serve(self) -> None:
        for place in range(len(self.engines)):
            while self._room(place) >= 1000 and (
                waiting := [each for each in self.line if not each.held and place in each.pools]
            ):
                waiter = self._next(waiting)
                room = next((pool for pool in waiter.pools if self._room(pool) >= 1000), place)
                self.line.remove(waiter)
                self._decide(waiter.request, lambda pool, room=room: pool == room or self._is_free(pool))  # type: ignore[misc]

    def _next(self, waiting: list[Waiter]) -> Waiter:
        if not self.governed:
            return waiting[0]
        first = min(waiting, key=lambda each: each.request.tier)
        if self.since_aged >= self.policy.qos.aged_turn - 1:
            patience = picoseconds(self.policy.qos.aged_after_seconds)
            for each in waiting:
                if each.request.tier > first.request.tier and self.now - each.request.began >= patience:
                    self.since_aged = 0
                    return each
        self.since_aged += 1
        return first

    def _lose_patience(self) -> None:
        for waiter in [each for each in self.line if self._deadline(each) <= self.now]:
            self.line.remove(waiter)
            if self.now - waiter.request.began >= self._longest(waiter.request):
                self._end(waiter.request, WAITED_TOO_LONG)
            else:
                self._decide(waiter.request, self._is_free)

    def _deadline(self, waiter: Waiter) -> int:
        longest = self._longest(waiter.request)
        held = picoseconds(self.policy.qos.aged_after_seconds)
        return waiter.request.began + (min(longest, held) if waiter.held else longest)

    def _longest(self, request: PlainSequence) -> int:
        rules = self.policy.qos.of(tuple(QosTier)[request.tier])
        return picoseconds(rules.longest_wait_seconds if self.governed else self.policy.waiting.longest_seconds)

    def _look_again(self, waiters: Iterable[Waiter]) -> None:
        going = list(waiters)
        self.line = [each for each in self.line if each not in going]
        for waiter in going:
            self._decide(waiter.request, self._is_free)

    def _is_free(self, place: int) -> bool:
        wanted = any(not each.held and place in each.pools for each in self.line)
        return self._room(place) >= 1000 and not wanted

    def _room(self, place: int) -> int:
        return sum(max(1000 * (e.limit - e.held) + e.kept, 0) for e in self.engines[place] if e.alive)

    # --- heartbeats, failures, ends --------------------------------------------------------------------------------

    def _beat(self) -> None:
        full = self.policy.selection.load.overloaded_kv_cache_use
        before = [[found.pressure for found in pressures] for pressures in self.pressures]
        for place, engines in enumerate(self.engines):
            for engine in engines:
                decay = math.exp(-self.fleet.heartbeat_seconds / RATE_SECONDS)
                engine.rate = engine.rate * decay + engine.finished / RATE_SECONDS
                engine.kept = int(engine.rate * REPLACED_WITHIN_SECONDS * 1000)
                engine.finished = 0
                sequences = engine.pool.engine.max_sequences
                kv_full = engine.used / engine.pool.engine.kv_blocks > full
                engine.limit = min(sequences, len(engine.running)) if kv_full else sequences
            alive = [engine for engine in engines if engine.alive]
            running, waiting = sum(len(e.running) for e in engines), sum(len(e.waiting) for e in engines)
            use = float(np.mean([e.used / e.pool.engine.kv_blocks for e in alive])) if alive else None
            self.loads[place] = PoolLoad(running, waiting, use) if alive else None
            if self.governed:
                per_node = waiting / len(alive) if alive else None
                self.pressures[place] = self.watches[place].sample(use, per_node, self.missed[place], self.now / SECOND)
        self.missed[:] = 0
        self.table = self._routing_table()
        self._serve_after_beat(before != [[found.pressure for found in pressures] for pressures in self.pressures])

    def _serve_after_beat(self, pressure_changed: bool) -> None:
        held = [each for each in self.line if each.held] if pressure_changed else []
        self.line = [each for each in self.line if each not in held]
        self._serve()
        for waiter in held:
            self._decide(waiter.request, self._is_free)

    def _routing_table(self) -> RoutingTable:
        pools = []
        for place, pool in enumerate(self.fleet.pools):
            ready = sum(engine.alive for engine in self.engines[place])
            pools.append(
                replace(
                    pool.as_routed(self.policy),
                    ready_nodes=ready,
                    max_sequences=ready * pool.engine.max_sequences,
                    load=self.loads[place],
                    pressures=self.pressures[place],
                )
            )
        return with_pools(self.routes.empty_table, pools)

    def _fail(self, engine: PlainEngine) -> None:
        if not engine.alive:
            return
        engine.alive, engine.ends_at = False, None
        going = [*engine.running, *engine.waiting]
        engine.running.clear()
        engine.waiting.clear()
        for request in going:
            request.computed = request.share = 0
            if request.first < 0 and any(other.alive for other in self.engines[request.pool]):
                self._dispatch(request)
            else:
                self._end(request, LOST)
        self.table = self._routing_table()
        self._look_again(self.line)

    def _end(self, request: PlainSequence, outcome: int) -> None:
        request.outcome, request.ended = outcome, self.now
        if outcome in (SERVED, LOST):
            missed = self.missed[request.pool, request.tier]
            missed[0] += 1
            missed[1] += outcome == LOST or self._is_late(request)

    def _is_late(self, request: PlainSequence) -> bool:
        target = self.policy.sla.of(tuple(QosTier)[request.tier])
        first, whole = request.first - request.arrival, request.ended - request.arrival
        if target.first_token_ms is not None and first > picoseconds(target.first_token_ms / 1000):
            return True
        if target.whole_ms is not None and whole > picoseconds(target.whole_ms / 1000):
            return True
        if target.output_token_ms is None:
            return False
        base = picoseconds((target.first_token_ms or 0.0) / 1000)
        return whole > base + picoseconds(target.output_token_ms / 1000) * request.output

    @property
    def _pin_lasts(self) -> int:
        return picoseconds(self.policy.sessions.ttl_seconds)

    def _every(self) -> Iterable[PlainEngine]:
        return (engine for engines in self.engines for engine in engines)


def _requests(workload: Workload, fleet: SimulatedFleet, routes: Routes) -> list[PlainSequence]:
    """As the simulator reads them."""
    state = first_state(workload, fleet, routes.contexts, 0)
    budgets = [*routes.contexts, routes.contexts[-1] + 1]
    return [
        PlainSequence(
            number=number,
            arrival=int(request.arrival),
            prompt=int(request.prompt),
            output=int(request.output),
            cap=int(request.cap),
            budget=budgets[request.need],
            tier=int(request.kind) // 3,
            verdict=int(request.kind) % 3,
            session=int(request.session),
        )
        for number, request in enumerate(state.requests)
    ]
