"""Registry, Fleet and Admin over gRPC, on a real etcd, with a follower and a publisher behind them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
import pytest

from controlplane.crediting import Crediting
from controlplane.estimation.estimation import Estimation
from controlplane.estimation.keys import EstimationKeys
from controlplane.etcd.client import EtcdClient
from controlplane.fleet import pools_of
from controlplane.learning.pressures import PressureWatch
from controlplane.ledger.decisions import Decisions
from controlplane.model import NodeSpec
from controlplane.policy.settings import Policy
from controlplane.publisher import Publisher
from controlplane.registry.following import FleetFollower
from controlplane.registry.keys import Keys
from controlplane.registry.store import NodeStore
from controlplane.services.admin import AdminServicer
from controlplane.services.fleet import FleetServicer
from controlplane.services.registry import RegistryServicer
from controlplane.view import CurrentView, View
from headrace_protos.headrace.v1 import admin_pb2_grpc, fleet_pb2, fleet_pb2_grpc, registry_pb2_grpc
from support.etcd import RunningEtcd, running_etcd
from support.grpc_server import serving

LEASE_SECONDS = 5


class Counted:
    """An observer that counts what it is told."""

    def __init__(self) -> None:
        self.registrations: Counter[str] = Counter()
        self.heartbeats: Counter[str] = Counter()
        self.lessons: Counter[tuple[str, bool]] = Counter()

    def registered(self, result: str) -> None:
        self.registrations[result] += 1

    def heartbeat(self, result: str) -> None:
        self.heartbeats[result] += 1

    def taught(self, result: str, streamed: bool) -> None:
        self.lessons[result, streamed] += 1


@dataclass(frozen=True, slots=True)
class Services:
    """The stubs of a control plane's services, and what stands behind them."""

    registry: registry_pb2_grpc.RegistryStub
    fleet: fleet_pb2_grpc.FleetStub
    admin: admin_pb2_grpc.AdminStub
    fleet_servicer: FleetServicer
    current: CurrentView
    decisions: Decisions
    estimation: Estimation
    counted: Counted
    etcd: RunningEtcd
    made: list[tuple[str, int, int]]


@asynccontextmanager
async def running_services() -> AsyncIterator[Services]:
    async with running_etcd() as etcd, etcd.client() as client, _services(etcd, client) as started:
        yield started


@asynccontextmanager
async def _services(etcd: RunningEtcd, client: EtcdClient) -> AsyncIterator[Services]:
    policy = Policy()
    made: list[tuple[str, int, int]] = []
    keys = Keys("/headrace/v1/test/")
    store = NodeStore(client, keys, formats=lambda: policy.formats, lease_seconds=LEASE_SECONDS)
    follower = FleetFollower(client, keys, grace=LEASE_SECONDS)
    current, decisions, counted = CurrentView(None), Decisions(100, 1, time.time), Counted()

    async def publish(_: View) -> None:
        """There are no Envoys to tell."""

    estimation = Estimation(
        client,
        EstimationKeys("/headrace/calibration/v1/test/"),
        lambda: current.value.table.policy if current.value else policy,
        lambda: current.value.table.models if current.value else (),
        counted.taught,
    )
    publisher = Publisher(
        policy,
        current,
        publish,
        lambda: None,
        time.time,
        pressures=PressureWatch(dict, 1.0),
        learned=estimation.told,
    )

    def pools(spec: NodeSpec) -> tuple[str, ...]:
        return pools_of(spec, policy)

    async def keep_policy(document: str | None) -> None:
        await (store.delete_policy() if document is None else store.put_policy(document.encode()))

    crediting = Crediting(current, time.time)
    fleet = FleetServicer(
        current,
        crediting.rooms,
        decisions,
        lambda: fleet_pb2.GetStatusResponse(version="1"),
        time.time,
        heartbeat=1.0,
        calibration_of=estimation.show,
        made=lambda worker, minute, decisions: made.append((worker, minute, decisions)),
    )
    registry = RegistryServicer(store, counted, pools, time.time, lease_seconds=LEASE_SECONDS, heartbeat_seconds=1.0)
    admin = AdminServicer(current, keep_policy, store, estimation.controls, time.time)
    working = [
        asyncio.ensure_future(follower.run()),
        asyncio.ensure_future(publisher.run(follower.states())),
        asyncio.ensure_future(crediting.run()),
        asyncio.ensure_future(estimation.run()),
    ]
    first = asyncio.ensure_future(current.next())
    try:
        async with serving(
            lambda server: registry_pb2_grpc.add_RegistryServicer_to_server(registry, server),
            lambda server: fleet_pb2_grpc.add_FleetServicer_to_server(fleet, server),
            lambda server: admin_pb2_grpc.add_AdminServicer_to_server(admin, server),
        ) as channel:
            await first
            yield Services(
                registry=registry_pb2_grpc.RegistryStub(channel),
                fleet=fleet_pb2_grpc.FleetStub(channel),
                admin=admin_pb2_grpc.AdminStub(channel),
                fleet_servicer=fleet,
                current=current,
                decisions=decisions,
                estimation=estimation,
                counted=counted,
                etcd=etcd,
                made=made,
            )
    finally:
        for task in (*working, first):
            task.cancel()
        await asyncio.wait((*working, first))


async def status_of(call: object) -> tuple[grpc.StatusCode, str]:
    """How a call that must fail is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call  # type: ignore[misc]
    return refused.value.code(), refused.value.details() or ""
