"""The feed against control planes of the tests' own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
import pytest

from controlplane.config.load import policy_to_json
from controlplane.etcd.server import free_ports
from controlplane.grpc_calling import ControlPlaneTarget
from controlplane.latest import Latest
from controlplane.messages import pool_message
from controlplane.model import Pressure, QosTier, TierPressure
from controlplane.policy.settings import Policy
from controlplane.policy.table import RoutingTable
from ext_proc import feed
from ext_proc.credits import Share
from ext_proc.feed import Feed
from ext_proc.numbering import Numbering
from ext_proc.table_reader import TableReader
from headrace_protos.headrace.v1 import fleet_pb2, fleet_pb2_grpc
from support.asks import make_pool
from support.logs import logged
from support.waiting import until


def table_message(version: str, *pools: str, policy_json: bytes = b"") -> fleet_pb2.RoutingTable:
    return fleet_pb2.RoutingTable(
        version=version,
        pools=[pool_message(make_pool(tier)) for tier in pools or ("full",)],
        policy_json=policy_json or policy_to_json(Policy()),
    )


@dataclass
class ControlPlane(fleet_pb2_grpc.FleetServicer):
    """Sends each watcher the table in force, and then each new one; can break off with an error."""

    published: list[fleet_pb2.RoutingTable] = field(default_factory=list)
    watchers: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    reports: list[tuple[str, str]] = field(default_factory=list)
    made: list[tuple[str, dict[int, int]]] = field(default_factory=list)
    failures: int = 0
    address: str = ""
    server: grpc.aio.Server | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def publish(self, table: fleet_pb2.RoutingTable) -> None:
        self.published.append(table)
        self._wake()

    def fail(self) -> None:
        """Ends the streams that there are with an error."""
        self.failures += 1
        self._wake()

    def _wake(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    async def ReportWorker(  # noqa: N802
        self, request: fleet_pb2.ReportWorkerRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> fleet_pb2.ReportWorkerResponse:
        assert (request.worker.worker_id, request.worker.session_store) == ("w", "redis://store:6379")
        self.reports.append((self.address, request.worker.session_store_trouble))
        self.made.append((request.name, {each.minute: each.decisions for each in request.made}))
        return fleet_pb2.ReportWorkerResponse()

    async def WatchRoutingTable(  # noqa: N802
        self, request: fleet_pb2.WatchRoutingTableRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[fleet_pb2.WatchRoutingTableResponse]:
        self.watchers.append(request.worker_id)
        self.tokens += [str(value) for key, value in context.invocation_metadata() or () if key == "authorization"]
        failures = self.failures
        sent = max(0, len(self.published) - 1)
        while True:
            changed = self.changed
            while sent < len(self.published):
                sent += 1
                yield fleet_pb2.WatchRoutingTableResponse(table=self.published[sent - 1])
            await changed.wait()
            if self.failures != failures:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "told to fail")

    async def start(self, address: str = "127.0.0.1:0") -> None:
        self.server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        fleet_pb2_grpc.add_FleetServicer_to_server(self, self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port(address)}"
        await self.server.start()

    async def stop(self) -> None:
        assert self.server is not None
        await self.server.stop(None)


@dataclass
class Seen:
    """What the feed told."""

    tables: list[RoutingTable] = field(default_factory=list)
    credits: list[tuple[Share, ...]] = field(default_factory=list)
    numbering: Numbering = field(default_factory=lambda: Numbering(lambda: 600.0, "worker-name"))
    store_trouble: Latest[str | None] = field(default_factory=lambda: Latest[str | None](""))
    connected: bool = False
    unusable: int = 0
    alone: int = 0

    async def take(self, table: RoutingTable) -> None:
        self.tables.append(table)

    def feed_connected(self, connected: bool) -> None:
        self.connected = connected

    def table_unusable(self) -> None:
        self.unusable += 1

    def left_alone(self) -> None:
        self.alone += 1

    @property
    def versions(self) -> list[str]:
        return [table.version for table in self.tables]


@asynccontextmanager
async def running_feed(count: int = 1) -> AsyncIterator[tuple[Seen, list[ControlPlane]]]:
    """A feed of so many control planes, of which all are up."""
    seen = Seen()
    async with AsyncExitStack() as stack:
        planes = [ControlPlane() for _ in range(count)]
        for plane in planes:
            await plane.start()
            stack.push_async_callback(plane.stop)
        targets = [ControlPlaneTarget(plane.address, token="t") for plane in planes]
        async with asyncio.TaskGroup() as tasks:
            feeding = tasks.create_task(_new_feed(targets, seen).run())
            try:
                yield seen, planes
            finally:
                feeding.cancel()


def _new_feed(targets: list[ControlPlaneTarget], seen: Seen) -> Feed:
    return Feed(
        targets,
        "w",
        seen,
        numbering=seen.numbering,
        store=("redis://store:6379", seen.store_trouble),
        on_table=seen.take,
        on_credits=seen.credits.append,
        on_alone=seen.left_alone,
        dice=lambda: 0.0,
    )


async def test_the_first_table_and_each_next_one_arrive_in_order() -> None:
    async with running_feed() as (seen, [plane]):
        plane.publish(table_message("1", "full", "quantized"))
        await until(lambda: seen.versions == ["1"])
        plane.publish(table_message("2"))
        plane.publish(table_message("3"))
        await until(lambda: seen.versions == ["1", "2", "3"])
        assert seen.connected
        assert [pool.tier for pool in seen.tables[0].pools] == ["full", "quantized"]
        assert (plane.watchers, plane.tokens) == (["w"], ["Bearer t"])


async def test_it_reports_how_the_session_store_does_at_once_and_after_each_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "REPORT_SECONDS", 60.0)
    async with running_feed() as (seen, [plane]):
        plane.publish(table_message("1"))
        await until(lambda: plane.reports == [(plane.address, "")])
        seen.store_trouble.put("Connection refused")
        await until(lambda: len(plane.reports) == 2)
        plane.fail()  # the next watch reports anew, though nothing changed
        await until(lambda: len(plane.reports) == 3)
    assert [trouble for _, trouble in plane.reports] == ["", "Connection refused", "Connection refused"]


async def test_it_reports_again_and_again_how_many_decisions_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "REPORT_SECONDS", 0.02)
    async with running_feed() as (seen, [plane]):
        plane.publish(table_message("1"))
        await until(lambda: plane.made[-1:] == [("worker-name", {})])
        seen.numbering.next()
        seen.numbering.next()
        await until(lambda: plane.made[-1] == ("worker-name", {10: 2}))


async def test_that_no_control_plane_is_there_yet_is_told_once_and_calmly(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    async with asyncio.TaskGroup() as tasks:
        feeding = tasks.create_task(_new_feed([ControlPlaneTarget(address)] * 2, Seen()).run())
        await until(lambda: logged(caplog, "ext_proc.feed"))
        await asyncio.sleep(0.5)  # in which it tries several times
        feeding.cancel()
    assert [(r.levelname, r.getMessage()) for r in logged(caplog, "ext_proc.feed")] == [
        ("INFO", f"waiting for a control plane at {address}")
    ]


async def test_it_tells_once_that_no_control_plane_has_been_heard_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "ALONE_SECONDS", 0.1)
    async with running_feed() as (seen, [plane]):
        plane.publish(table_message("1"))
        await until(lambda: seen.connected)
        await plane.stop()
        await until(lambda: seen.alone == 1)
        await plane.start(plane.address)
        await until(lambda: seen.connected)
        assert seen.alone == 1
        await plane.stop()
        await until(lambda: seen.alone == 2)


async def test_a_control_plane_that_comes_back_in_time_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "ALONE_SECONDS", 3.0)
    async with running_feed() as (seen, [plane]):
        plane.publish(table_message("1"))
        await until(lambda: seen.connected)
        plane.fail()
        await until(lambda: len(plane.watchers) == 2 and seen.connected)
        assert seen.alone == 0


async def test_when_a_control_plane_fails_another_one_is_watched() -> None:
    async with running_feed(2) as (seen, [first, second]):
        first.publish(table_message("1"))
        await until(lambda: seen.versions == ["1"])
        second.publish(table_message("2"))
        first.fail()
        await until(lambda: seen.versions == ["1", "2"])
        await second.stop()
        first.publish(table_message("3"))
        await until(lambda: seen.versions == ["1", "2", "3"])


async def test_while_all_are_away_the_last_table_stays_and_tries_grow_rarer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        waits.append(seconds)
        await sleep(0)

    async with running_feed() as (seen, [plane]):
        plane.publish(table_message("1"))
        await until(lambda: seen.connected)
        monkeypatch.setattr("ext_proc.feed.asyncio.sleep", lambda seconds: noted(seconds) if seconds else sleep(0))
        await plane.stop()
        await until(lambda: len([wait for wait in waits if wait != 0.01]) >= 9)
        assert not seen.connected
        assert seen.versions == ["1"]
        monkeypatch.undo()
        back = ControlPlane()
        await back.start(plane.address)
        back.publish(table_message("2"))
        await until(lambda: seen.versions == ["1", "2"])
        await back.stop()
    tries = [wait for wait in waits if wait != 0.01]
    assert tries[:9] == [0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    assert "the last one stays" in caplog.text


async def test_a_table_with_a_policy_of_another_version_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    async with running_feed(2) as (seen, [newer, older]):
        newer.publish(table_message("1"))
        await until(lambda: seen.versions == ["1"])
        newer.publish(table_message("2", policy_json=b'{"no_such_setting": 1}'))
        older.publish(table_message("3"))
        await until(lambda: seen.versions == ["1", "3"])
        assert seen.unusable == 1
    [first, *_] = [record.message for record in logged(caplog, "ext_proc.feed")]
    assert "version=2" in first
    assert "no_such_setting" in first


async def test_the_same_fault_is_logged_once_and_not_asked_for_in_a_spin(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    async with running_feed() as (seen, [plane]):
        plane.publish(table_message("2", policy_json=b"[]"))
        await until(lambda: seen.unusable >= 4)
        assert len(plane.watchers) == seen.unusable  # each one is a new try, after a longer wait
        assert seen.tables == []
        assert not seen.connected
    assert len(logged(caplog, "ext_proc.feed")) == 1


@pytest.mark.parametrize(
    "message",
    [
        fleet_pb2.RoutingTable(version="1", policy_json=b"{"),
        fleet_pb2.RoutingTable(version="1", policy_json=b"\xff"),
        fleet_pb2.RoutingTable(version="1", policy_json=policy_to_json(Policy()), pools=[fleet_pb2.Pool(tier="huge")]),
    ],
)
def test_what_is_no_table_of_this_version_is_a_value_error(message: fleet_pb2.RoutingTable) -> None:
    with pytest.raises(ValueError, match=r"policy|huge"):
        TableReader().read(message)


def test_pressures_reach_the_filter_as_they_are() -> None:
    pressures = (
        TierPressure(QosTier.GUARANTEED),
        TierPressure(QosTier.STANDARD, Pressure.ELEVATED, 0.25, "sla_violation_rate", 0.15),
        TierPressure(QosTier.BEST_EFFORT, Pressure.CRITICAL, 1.0, "kv_cache_use", 0.0),
    )
    pool = replace(make_pool(), pressures=pressures, missing_signals=("waiting_per_node",))
    message = fleet_pb2.RoutingTable(pools=[pool_message(pool)], policy_json=policy_to_json(Policy()))
    assert TableReader().read(message).pools == (pool,)
