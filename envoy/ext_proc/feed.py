"""Keeps the filter's routing table and credits up to date by one of the control planes; the last ones stay when all are
away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol

import grpc

from controlplane.fleet import FRESH_SECONDS
from controlplane.grpc_calling import ControlPlaneTarget
from controlplane.latest import Latest
from controlplane.policy.table import RoutingTable
from ext_proc.credits import Share
from ext_proc.numbering import Numbering
from ext_proc.table_reader import TableReader
from headrace_protos.headrace.v1 import fleet_pb2, fleet_pb2_grpc

_log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 0.05
# A control plane that has just started waits for as long before nodes register anew: filters must hear of it.
LONGEST_RETRY_SECONDS = 2.0
# For so long after its start a filter waits for the first answer of a control plane without calling that a trouble.
PATIENCE_SECONDS = 30.0
REPORT_SECONDS = 2.0
REPORT_TIMEOUT_SECONDS = 2.0
# Loads that are older than this say nothing about now, as in the control plane.
ALONE_SECONDS = FRESH_SECONDS


def shares(message: fleet_pb2.Credits) -> tuple[Share, ...]:
    return tuple(
        Share(tuple(room.clusters), room.free if room.HasField("free") else None, room.report_age_seconds)
        for room in message.rooms
    )


class Observer(Protocol):
    """Told how the feed fares, for metrics."""

    def feed_connected(self, connected: bool) -> None: ...

    def table_unusable(self) -> None: ...


class Feed:
    """Watches the routing table for as long as `run` runs: calls `on_table` with each new one, `on_credits`
    with this worker's shares, and `on_alone` when no control plane has been heard for ALONE_SECONDS.

    A table that cannot be read, as of another version of Headrace, is not taken: the last one stays in force, and
    another control plane is tried. Control planes are told of `store`: where sessions are, and why that cannot be
    reached; and by `numbering` how many decisions were made. `dice` gives numbers in [0, 1) for the jitter of
    reconnects.
    """

    def __init__(
        self,
        targets: Sequence[ControlPlaneTarget],
        worker_id: str,
        observer: Observer,
        *,
        numbering: Numbering,
        store: tuple[str, Latest[str | None]],
        on_table: Callable[[RoutingTable], Awaitable[None]],
        on_credits: Callable[[tuple[Share, ...]], None],
        on_alone: Callable[[], None],
        dice: Callable[[], float],
    ) -> None:
        self._targets = tuple(targets)
        self._worker_id = worker_id
        self._numbering = numbering
        self._store = store
        self._on_table = on_table
        self._on_credits = on_credits
        self._on_alone = on_alone
        self._observer = observer
        self._dice = dice
        self._alone: asyncio.TimerHandle | None = None
        self._fault = ""
        self._had_table = False
        self._told_waiting = False
        self._began = 0.0
        self._reader = TableReader()

    async def run(self) -> None:
        retry = FIRST_RETRY_SECONDS
        turn = 0
        self._began = asyncio.get_running_loop().time()
        try:
            while True:
                if await self._watch(self._targets[turn % len(self._targets)]):
                    retry = FIRST_RETRY_SECONDS
                turn += 1
                await asyncio.sleep(retry * (0.5 + self._dice() / 2))
                retry = min(retry * 2, LONGEST_RETRY_SECONDS)
        finally:
            self._heard()

    async def _watch(self, target: ControlPlaneTarget) -> bool:
        """Watch at one control plane until it fails, or sends what cannot be read; whether what it sent was good."""
        received = False
        reporting: asyncio.Task[None] | None = None
        try:
            async with target.open() as channel:
                stub = fleet_pb2_grpc.FleetStub(channel)
                request = fleet_pb2.WatchRoutingTableRequest(worker_id=self._worker_id, credits=True)
                async for update in stub.WatchRoutingTable(request, metadata=target.metadata):
                    self._heard()
                    if update.HasField("credits"):
                        self._on_credits(shares(update.credits))
                        continue
                    if not await self._take(update.table):
                        return False
                    if not received:
                        received = self._had_table = True
                        self._observer.feed_connected(True)
                        reporting = asyncio.create_task(self._report(stub, target))
                        _log.info("routing table received control_plane=%s version=%s", target, update.table.version)
        except grpc.aio.AioRpcError as error:
            self._tell(error, target)
        finally:
            if reporting is not None:
                reporting.cancel()
                await asyncio.gather(reporting, return_exceptions=True)
            self._observer.feed_connected(False)
            if self._alone is None:
                self._alone = asyncio.get_running_loop().call_later(ALONE_SECONDS, self._on_alone)
        return received

    async def _report(self, stub: fleet_pb2_grpc.FleetStub, target: ControlPlaneTarget) -> None:
        """Every REPORT_SECONDS, and when the store's state changes, for as long as the table is watched there."""
        place, troubles = self._store
        while True:
            trouble, made = troubles.value, self._numbering.to_tell()
            worker = fleet_pb2.WorkerStatus(
                worker_id=self._worker_id, session_store=place, session_store_trouble=trouble or ""
            )
            request = fleet_pb2.ReportWorkerRequest(
                worker=worker,
                name=self._numbering.name,
                made=[fleet_pb2.MadeDecisions(minute=minute, decisions=count) for minute, count in made.items()],
            )
            try:
                await stub.ReportWorker(request, metadata=target.metadata, timeout=REPORT_TIMEOUT_SECONDS)
                self._numbering.told(made)
            except grpc.aio.AioRpcError as error:
                if error.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNIMPLEMENTED}:
                    return  # it has gone, and so does the watch; or it is of an older version
                _log.debug("report not taken control_plane=%s code=%s", target, error.code().name)
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT_SECONDS):
                    while troubles.value == trouble:
                        await troubles.next()

    def _tell(self, error: grpc.aio.AioRpcError, target: ControlPlaneTarget) -> None:
        """All parts may be starting together: that there is no control plane yet is no trouble for a while."""
        if self._had_table:
            text = "routing table lost, the last one stays"
        elif (
            error.code() is grpc.StatusCode.UNAVAILABLE
            and asyncio.get_running_loop().time() < self._began + PATIENCE_SECONDS
        ):
            if not self._told_waiting:
                self._told_waiting = True
                _log.info("waiting for a control plane at %s", target)
            return
        else:
            text = "no routing table yet"
        _log.warning("%s control_plane=%s code=%s details=%s", text, target, error.code().name, error.details())

    def _heard(self) -> None:
        if self._alone is not None:
            self._alone.cancel()
            self._alone = None

    async def _take(self, message: fleet_pb2.RoutingTable) -> bool:
        """Pass a table on; whether it could be read."""
        try:
            table = self._reader.read(message)
        except ValueError as error:
            self._observer.table_unusable()
            if self._fault != str(error):
                self._fault = str(error)
                _log.error(
                    "routing table cannot be used, the last one stays version=%s fault=%s", message.version, error
                )
            return False
        self._fault = ""
        await self._on_table(table)
        return True
