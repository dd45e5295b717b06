"""One course of events: sets up the state, runs it, and gives the compiled loop what it asks for."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from controlplane.model import PoolLoad, Pressure, TierPressure
from controlplane.policy.qos import Mode
from planner.simulation.fleet import FleetError, SimulatedFleet
from planner.simulation.loop import (
    DONE,
    FAILED,
    HEARTBEAT,
    fail,
    let_go,
    place_of,
    recount_rooms,
    run,
    settle,
)
from planner.simulation.pressures import PoolPressure
from planner.simulation.routes import PINS, Answer, Case, Routes
from planner.simulation.setup import MOST_SETS, first_state, picoseconds, records
from planner.simulation.state import ANSWER, HOLD, NEVER, NOBODY, SECOND, WAIT, Records, State
from planner.workload.workload import Workload

# The control plane's own: from the end of a request until the next one is there, so many are kept waiting in the
# engine, and over how long the rate of ends is a mean.
REPLACED_WITHIN_SECONDS = 0.5
RATE_SECONDS = 5.0


class Course:
    """Of one workload on one fleet, with one seed. `state` is its end once `finish` has returned."""

    def __init__(self, workload: Workload, fleet: SimulatedFleet, seed: int) -> None:
        self.fleet = fleet
        self.routes = Routes(fleet)
        self.state = first_state(workload, fleet, self.routes.contexts, seed)
        self.decisions = 0
        self._answers: dict[Answer, int] = {}
        self._sets: dict[tuple[int, ...], int] = {}
        self._failures = sorted(fleet.failures, key=lambda failure: failure.seconds)
        self._governed = fleet.policy.qos.mode is Mode.ENABLED
        self._pressed = [PoolPressure(fleet.policy.qos, fleet.policy.sla, fleet.heartbeat_seconds) for _ in fleet.pools]
        self._pressures: list[tuple[TierPressure, ...]] = [() for _ in fleet.pools]
        self._rates = np.zeros(fleet.instances)
        self._loads: list[PoolLoad | None] = [None for _ in fleet.pools]
        self._pools = [pool.as_routed(fleet.policy) for pool in fleet.pools]
        self._sequences = [pool.engine.max_sequences for pool in fleet.pools]
        # A view without attributes, whose fields are found much faster.
        self._instances = self.state.instances.view(np.ndarray)
        of_pool = self.state.pools[self.state.instances["pool"]]
        self._blocks_of, self._sequences_of = of_pool["blocks"].copy(), of_pool["sequences"].copy()
        ends = np.cumsum([pool.instances for pool in fleet.pools])
        self._instances_of = [
            slice(int(end) - pool.instances, int(end)) for end, pool in zip(ends, fleet.pools, strict=True)
        ]

    def finish(self) -> State:
        """Until every request has ended."""
        self._look_for_failures()
        self._see_fleet()
        recount_rooms(self.state)
        while (wants := run(self.state)) != DONE:
            if wants == HEARTBEAT:
                self._beat()
            elif wants == FAILED and self._failures:
                self._fail()
            elif wants == FAILED:
                raise FleetError("the fleet is too slow: requests are not answered before simulated time ends")
            else:
                self._answer(int(self._now.missing))
        return self.state

    @property
    def _now(self) -> Records:
        return self.state.clockwork[0]

    # --- decisions -------------------------------------------------------------------------------------------------

    def _answer(self, key: int) -> None:
        fleet, case = self.case_of(key)
        number = self._number(self.routes.answer(fleet, case))
        self.decisions += 1
        if 2 * self.decisions > self.state.keys.size:
            self._grow()
        place = place_of(self.state.keys, key)
        self.state.keys[place] = key
        self.state.found[place] = number

    def case_of(self, key: int) -> tuple[int, Case]:
        """What a key of the table stands for."""
        pools = len(self.fleet.pools)
        rest, free = key >> pools, key & (1 << pools) - 1
        rest, waited = divmod(rest, 3)
        rest, pin = divmod(rest, len(PINS))
        rest, need = divmod(rest, int(self._now.needs))
        fleet, kind = divmod(rest, int(self._now.kinds))
        return fleet, Case(kind, need, pin, waited, free)

    def _grow(self) -> None:
        keys = np.full(2 * self.state.keys.size, NOBODY)
        found = np.zeros(keys.size, np.int64)
        for key, answer in zip(self.state.keys, self.state.found, strict=True):
            if key != NOBODY:
                place = place_of(keys, key)
                keys[place], found[place] = key, answer
        self.state = self.state._replace(keys=keys, found=found)

    def _number(self, answer: Answer) -> int:
        if answer in self._answers:
            return self._answers[answer]
        number = self._answers[answer] = len(self._answers)
        if number == self.state.answers.size:
            answers = records(ANSWER, 2 * number)
            answers[:number] = self.state.answers
            self.state = self.state._replace(answers=answers)
        record = self.state.answers[number]
        record.action, record.pool, record.limit, record.binds = answer.action, answer.pool, answer.limit, answer.binds
        if answer.action in (WAIT, HOLD):
            record.waits = self._set(answer.waits)
        return number

    def _set(self, pools: tuple[int, ...]) -> int:
        if pools in self._sets:
            return self._sets[pools]
        number = self._sets[pools] = len(self._sets)
        if number == MOST_SETS:
            raise FleetError(f"requests wait for more than {MOST_SETS} sets of pools; simulate fewer pools")
        self.state.sets[number] = sum(1 << pool for pool in pools)
        self.state.orders[number, : len(pools)] = pools
        self._now.sets = number + 1
        return number

    # --- heartbeats ------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        state = self.state
        settle(state)
        instances = self._instances
        use = instances["used"] / self._blocks_of
        decay = math.exp(-self.fleet.heartbeat_seconds / RATE_SECONDS)
        self._rates = self._rates * decay + instances["finished"] / RATE_SECONDS
        instances["kept"] = self._rates * REPLACED_WITHIN_SECONDS * 1000
        instances["finished"] = 0
        # Where memory is full, what waits would not run sooner.
        full = use > self.fleet.policy.selection.load.overloaded_kv_cache_use
        room = self._sequences_of
        instances["limit"] = np.where(full, np.minimum(room, instances["running"]), room)
        recount_rooms(state)
        pressures = self._pressures
        self._pressures = self._see_loads(use)
        self._now.beat += self._now.beat_every
        self._see_fleet()
        if _levels(pressures) != _levels(self._pressures):
            let_go(state)

    def _see_loads(self, use: npt.NDArray[np.float64]) -> list[tuple[TierPressure, ...]]:
        """The pressures by the loads as they are now."""
        instances, now = self._instances, self._now
        calm = not self._rates.round(3).any()
        pressures = []
        for p, these in enumerate(self._instances_of):
            alive = instances["alive"][these] == 1
            ready = int(alive.sum())
            running, waiting = int(instances["running"][these].sum()), int(instances["queued"][these].sum())
            kv_cache_use = float(use[these][alive].mean()) if ready else None
            self._loads[p] = PoolLoad(running, waiting, kv_cache_use) if ready else None
            calm = calm and running == waiting == 0
            if self._governed:
                per_node = waiting / ready if ready else None
                pressed = self._pressed[p]
                seconds = float(now.clock / SECOND)
                pressures.append(pressed.sample(kv_cache_use, per_node, self.state.missed[p], seconds))
                calm = calm and pressed.is_calm
            else:
                pressures.append(())
        self.state.missed[:] = 0
        now.calm = calm
        return pressures

    def _see_fleet(self) -> None:
        """The routing table follows."""
        routed = []
        alive = self._instances["alive"]
        for p, pool in enumerate(self._pools):
            ready = int(alive[self._instances_of[p]].sum())
            routed.append(
                replace(
                    pool,
                    ready_nodes=ready,
                    max_sequences=self._sequences[p] * ready,
                    load=self._loads[p],
                    pressures=self._pressures[p],
                )
            )
        self._now.fleet, self._now.exact_fleet = self.routes.number(routed)

    # --- failures --------------------------------------------------------------------------------------------------

    def _look_for_failures(self) -> None:
        self._now.failure = picoseconds(self._failures[0].seconds) if self._failures else NEVER

    def _fail(self) -> None:
        failure = self._failures.pop(0)
        fail(self.state, int(self.state.pools[failure.pool].first) + failure.instance)
        self._look_for_failures()
        self._see_fleet()


def _levels(pressures: Iterable[tuple[TierPressure, ...]]) -> list[list[Pressure]]:
    return [[found.pressure for found in of_pool] for of_pool in pressures]
