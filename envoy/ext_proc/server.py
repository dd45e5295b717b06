"""One filter process: the feed of routing tables, the router and the transport, put together."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from controlplane.grpc_calling import ControlPlaneTarget
from controlplane.grpc_serving import bind, new_server
from controlplane.latest import Latest
from controlplane.model import Pressure
from controlplane.policy.table import RoutingTable, settled_after, without_loads
from ext_proc.credits import Credits, Share
from ext_proc.debts import DebtStore, MemoryDebts
from ext_proc.fallback_pins import FallbackPins, SharedStore
from ext_proc.feed import Feed
from ext_proc.keys import NO_KEYS, Keys
from ext_proc.limits import RateLimits
from ext_proc.metrics import FilterMetrics
from ext_proc.numbering import Numbering
from ext_proc.pins import MemoryPins
from ext_proc.router import Router
from ext_proc.transport import NewTransport
from ext_proc.waiting import Line

_log = logging.getLogger(__name__)

STOP_SECONDS = 5.0
# How often those who wait are let go on while no news comes that would do it.
TICK_SECONDS = 0.2


class FilterServer:
    """Serves until `stop` is set. Ready once the first routing table has arrived, it stays so with the last one.

    At `listen` Envoy asks for decisions; `health` serves nothing but health, so that whoever looks after processes need
    not reach the other. Without `session_store`, which is at `store_place`, this process keeps its sessions for itself,
    and without `debts` what tenants have used of their rates.
    """

    def __init__(
        self,
        listen: str,
        control_planes: Sequence[ControlPlaneTarget],
        worker_id: str,
        metrics: FilterMetrics,
        dice: Callable[[], float],
        *,
        health: str,
        max_body_bytes: int,
        max_wait: float,
        session_store: SharedStore | None = None,
        store_place: str = "",
        debts: DebtStore | None = None,
        keys: Keys = NO_KEYS,
        transport: NewTransport,
    ) -> None:
        self._table: RoutingTable | None = None
        self._taken_at = 0.0
        self._alone = False
        self._stopping = False
        self._metrics = metrics
        self._own_pins = MemoryPins(clock=time.monotonic)
        self._shared_pins = (
            FallbackPins(session_store, self._own_pins, metrics, time.monotonic) if session_store else None
        )
        self._pins = self._shared_pins or self._own_pins
        self._credits = Credits(time.monotonic)
        self._line = Line(self._credits, metrics, time.monotonic, max_wait=max_wait)
        rates = RateLimits(debts or MemoryDebts(time.monotonic), metrics)
        router = Router(lambda: self._table, self._pins, self._line, metrics, dice, rates=rates, keys=keys)
        numbering = Numbering(time.time)
        self._transport = transport(
            listen, numbering.numbered(router.answer), rates.used, max_body_bytes=max_body_bytes
        )
        self._health_server = new_server([], self._transport.health)
        self.health_address = bind(self._health_server, health)
        self._feed = Feed(
            control_planes,
            worker_id,
            metrics,
            numbering=numbering,
            store=(store_place, self._shared_pins.trouble if self._shared_pins else Latest[str | None]("")),
            on_table=self._take,
            on_credits=self._take_credits,
            on_alone=self._forget_loads,
            dice=dice,
        )

    def unready(self) -> str | None:
        """Why it cannot decide; None when it can."""
        if self._stopping:
            return "this filter is stopping"
        return None if self._table is not None else "no control plane has sent a routing table yet"

    async def run(self, stop: asyncio.Event) -> None:
        """Raises ConfigurationError when the session store's server can never serve."""
        await self._transport.health.set_ready(False)
        if self._shared_pins is not None:
            await self._shared_pins.start()
        await self._health_server.start()
        await self._transport.start()
        _log.info("filter serving address=%s health=%s", self._transport.address, self.health_address)
        try:
            async with asyncio.TaskGroup() as tasks:
                working = [tasks.create_task(self._feed.run()), tasks.create_task(self._tick())]
                if self._shared_pins is not None:
                    working.append(tasks.create_task(self._shared_pins.run()))
                await stop.wait()
                for task in working:
                    task.cancel()
        finally:
            self._stopping = True
            # Nobody brings credits any more: who waits goes on, and waits in the engine.
            self._line.open_for_good()
            await self._transport.stop(STOP_SECONDS)
            await self._health_server.stop(None)

    async def _take(self, table: RoutingTable) -> None:
        former, self._table = self._table, table
        self._taken_at, self._alone = time.monotonic(), False
        self._pins.configure(table.policy.sessions)
        self._line.configure(table.policy.waiting, table.policy.qos)
        if former is not None and _ready(former) != _ready(table):
            self._line.look_again()
        elif former is not None and _pressures(former) != _pressures(table):
            self._line.let_go()
        self._metrics.table_received(table.pools, time.time())
        if former is None:
            await self._transport.health.set_ready(True)

    def _take_credits(self, shares: tuple[Share, ...]) -> None:
        self._credits.take(shares)
        self._line.serve()

    def _forget_loads(self) -> None:
        if self._table is not None:
            _log.warning("no control plane is heard: deciding without the pools' loads, which are too old")
            self._table = without_loads(self._table)
        self._alone = True
        self._line.serve()
        self._line.let_go()

    async def _tick(self) -> None:
        while True:
            self._metrics.count_sessions(len(self._own_pins))
            if self._alone and self._table is not None:
                self._table = settled_after(self._table, time.monotonic() - self._taken_at)
            self._line.serve()  # while no news comes rooms refill, and those that are too old limit nobody
            await asyncio.sleep(TICK_SECONDS)


def _ready(table: RoutingTable) -> set[tuple[str, ...]]:
    return {pool.clusters for pool in table.pools if pool.ready_nodes}


def _pressures(table: RoutingTable) -> list[tuple[str, list[Pressure]]]:
    return [(pool.name, [found.pressure for found in pool.pressures]) for pool in table.pools]
