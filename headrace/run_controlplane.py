"""One control-plane process: the registry, the publisher, and gRPC servers for nodes and people, and for Envoys."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from controlplane.agentless.listed import joined, listed_nodes
from controlplane.agentless.prometheus import PrometheusLoads
from controlplane.config.addresses import dialable, is_loopback
from controlplane.config.load import load_policy_beside
from controlplane.config.settings import AuthSettings, Settings
from controlplane.crediting import Crediting
from controlplane.errors import ConfigurationError
from controlplane.estimation.estimation import Estimation
from controlplane.estimation.keys import EstimationKeys
from controlplane.etcd.client import EtcdClient
from controlplane.fleet import pools_of
from controlplane.grpc_serving import Health, bind, new_server
from controlplane.http_serving import Handler, serving_http
from controlplane.leading import Leading
from controlplane.learning.pressures import PressureWatch, Rates
from controlplane.learning.suggesting import ThresholdWatch, totals_by_model
from controlplane.ledger.composition import CompositionWatch
from controlplane.ledger.decision_log import DecisionLog
from controlplane.ledger.decisions import Decisions
from controlplane.ledger.remedies import remedies
from controlplane.ledger.sessions import SessionHistory
from controlplane.ledger.sla import SlaWatch
from controlplane.ledger.store import LedgerStore
from controlplane.ledger.unrecorded import UnrecordedWatch
from controlplane.ledger.writer import LedgerWriter
from controlplane.metrics import ControlPlaneMetrics
from controlplane.model import NodeSession, NodeSpec
from controlplane.policy.settings import Policy
from controlplane.publisher import Publisher
from controlplane.recording import Recording
from controlplane.registry.following import FleetFollower
from controlplane.registry.keys import Keys
from controlplane.registry.presence import WorkerPresence
from controlplane.registry.state import FleetState
from controlplane.registry.store import NodeStore
from controlplane.services import access_log, admin, fleet, registry
from controlplane.services.access import BearerTokens
from controlplane.services.surface import Surface
from controlplane.status import Surroundings, summarise
from controlplane.view import CurrentView, View
from headrace.commands.options import read_text
from headrace.credentials import etcd_access, ledger_store, prometheus_access, read_tokens, server_tls
from headrace.envoys import XdsObserver, envoy_status
from headrace.following_keys import FollowedKeys
from headrace.probes import probes
from headrace.signals import stop_requested
from headrace.telemetry import new_metrics, telemetry
from headrace_protos.envoy.service.accesslog.v3 import als_pb2_grpc
from headrace_protos.headrace.v1 import admin_pb2_grpc, fleet_pb2, fleet_pb2_grpc, registry_pb2_grpc
from node_agent import backoff
from xds_server.server import DiscoveryService

_log = logging.getLogger(__name__)

STOP_SECONDS = 2.0
# What a filter may take to be back at a control plane that has started: its longest wait between two tries, and more.
FILTERS_BACK_SECONDS = 2.5
TICK_SECONDS = 1.0
# Between two lines of the log that say what a control plane waits for before it is ready.
FIRST_WAITING_TOLD_SECONDS = 2.0
LONGEST_WAITING_TOLD_SECONDS = 60.0
# What an agent may take to be back after a long outage: its longest wait between two tries, that before it registers
# anew, and something for a busy machine.
COME_BACK_SECONDS = backoff.LONGEST_SECONDS + registry.RE_REGISTER_WITHIN_SECONDS + 3.0
DISCOVERY_SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"


class ControlPlane:
    """The parts of one control plane and what flows between them."""

    def __init__(
        self, settings: Settings, client: EtcdClient, metrics: ControlPlaneMetrics, store: LedgerStore | None
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._started = time.monotonic()
        self._tokens = _bearer_tokens(settings.control_plane.auth)
        self._stopping = False
        self._current = CurrentView(None)
        self._discovery = DiscoveryService(XdsObserver(metrics), f"headrace-{settings.cluster}")
        self._leading = Leading(settings, FollowedKeys(settings.gateway.jwt).tokens, self._discovery, self._current)
        keys = Keys(f"/headrace/v1/{settings.cluster}/")
        self._store = NodeStore(
            client,
            keys,
            formats=lambda: self._policy.formats,
            lease_seconds=int(settings.control_plane.lease),
            quiescence=lambda: self._policy.sessions.quiescence,
            until_heard=self._until_heard,
            until_left=self._leading.until_left,
            known=self._known_sessions,
            ours=_ports(settings),
        )
        self._follower = FleetFollower(
            client,
            keys,
            grace=max(settings.control_plane.lease, COME_BACK_SECONDS),
            quiescence=lambda: self._policy.sessions.quiescence,
        )
        self._estimation = Estimation(
            client,
            EstimationKeys(f"/headrace/calibration/v1/{settings.cluster}/"),
            lambda: self._policy,
            lambda: self._current.value.table.models if self._current.value else (),
            metrics.taught,
        )
        self._listed = _listed_nodes(settings.control_plane.nodes_file)
        access = prometheus_access(settings.prometheus)
        self._prometheus = PrometheusLoads(access, self._nodes, time.time, metrics.prometheus_asked) if access else None
        self._publisher = Publisher(
            settings.policy,
            self._current,
            self._publish,
            metrics.view_failed,
            time.time,
            pressures=PressureWatch(self._violation_rates, settings.control_plane.heartbeat),
            learned=self._estimation.told,
            joined=self._join,
        )
        self._composition = CompositionWatch(time.monotonic)
        self._sla = SlaWatch(lambda: self._policy.sla, time.monotonic)
        self._thresholds = ThresholdWatch()
        self._sessions = SessionHistory(settings.gateway.route_timeout)
        recorder = secrets.randbits(31)
        self._ledger = None
        if store is not None:
            self._ledger = LedgerWriter(
                store,
                metrics,
                time.time,
                recorder=recorder,
                capacity=settings.ledger.queue,
                retention=settings.ledger.retention,
            )
        self._unrecorded = None
        if store is not None:
            longest = settings.gateway.route_timeout + settings.gateway.max_wait
            self._unrecorded = UnrecordedWatch(store, time.time, longest_request=longest)
        self._decisions = Decisions(
            settings.control_plane.recent_decisions, recorder, time.time, self._ledger, self._unrecorded
        )
        self._crediting = Crediting(self._current, time.time)
        self._recording = Recording(
            self._decisions,
            self._crediting,
            metrics,
            self._composition,
            self._sla,
            DecisionLog(settings.telemetry.log_decisions),
            self._estimation,
        )
        self._fleet = fleet.FleetServicer(
            self._current,
            self._crediting.rooms,
            self._decisions,
            self._status,
            time.time,
            heartbeat=settings.control_plane.heartbeat,
            calibration_of=self._estimation.show,
            made=self._ledger.told if self._ledger is not None else None,
        )
        self._presence = WorkerPresence(
            client, keys, self._fleet.filter_workers, lease_seconds=int(settings.control_plane.lease)
        )
        self._fleet_health = Health([registry.SERVICE, fleet.SERVICE, admin.SERVICE])
        self._envoy_health = Health([DISCOVERY_SERVICE, access_log.SERVICE])

    async def run(self, stop: asyncio.Event) -> None:
        """Serves until `stop` is set. Raises OSError when an address cannot be had."""
        control = self._settings.control_plane
        tls = server_tls(control.tls)
        fleet_server = new_server(
            [registry.SERVICE, fleet.SERVICE, admin.SERVICE],
            self._fleet_health,
            interceptors=[self._tokens],
        )
        registry_pb2_grpc.add_RegistryServicer_to_server(
            registry.RegistryServicer(
                self._store,
                self._metrics,
                self._pools_of,
                time.time,
                lease_seconds=control.lease,
                heartbeat_seconds=control.heartbeat,
            ),
            fleet_server,
        )
        fleet_pb2_grpc.add_FleetServicer_to_server(self._fleet, fleet_server)
        admin_pb2_grpc.add_AdminServicer_to_server(
            admin.AdminServicer(self._current, self._set_policy, self._store, self._estimation.controls, time.time),
            fleet_server,
        )
        envoy_server = new_server([DISCOVERY_SERVICE, access_log.SERVICE], self._envoy_health)
        self._discovery.add_to(envoy_server)
        als_pb2_grpc.add_AccessLogServiceServicer_to_server(
            access_log.AccessLogServicer(self._recording.request_finished, self._sessions), envoy_server
        )
        grpc_address = bind(fleet_server, control.grpc, tls)
        xds_address = bind(envoy_server, control.xds)
        await self._set_ready(False)
        await fleet_server.start()
        await envoy_server.start()
        _log.info("control plane serving grpc=%s xds=%s", grpc_address, xds_address)
        try:
            async with asyncio.TaskGroup() as tasks:
                working = [
                    tasks.create_task(self._follower.run()),
                    tasks.create_task(self._publisher.run(self._follower.states())),
                    tasks.create_task(self._crediting.run()),
                    tasks.create_task(self._presence.run()),
                    tasks.create_task(self._estimation.run()),
                    tasks.create_task(self._become_ready()),
                    tasks.create_task(self._watch_surroundings()),
                ]
                if self._prometheus is not None:
                    working.append(tasks.create_task(self._prometheus.run()))
                if self._ledger is not None:
                    working.append(tasks.create_task(self._ledger.run()))
                if self._unrecorded is not None:
                    working.append(tasks.create_task(self._unrecorded.run(self._metrics.ledger_short)))
                await stop.wait()
                for task in working:
                    task.cancel()
        finally:
            self._stopping = True
            await self._set_ready(False)
            await asyncio.gather(fleet_server.stop(STOP_SECONDS), envoy_server.stop(STOP_SECONDS))

    @property
    def shown(self) -> Mapping[str, Handler]:
        """What it shows over HTTP."""
        control = self._settings.control_plane
        trusts_strangers = is_loopback(control.metrics) or control.auth.insecure
        return Surface(self._decisions, self._status, self._tokens, time.time, trusts_strangers=trusts_strangers).routes

    def unready(self) -> str | None:
        """Why it cannot serve; None when it can, also by what it knows while etcd or the ledger is away."""
        if self._stopping:
            return "this control plane is stopping"
        if self._current.value is not None:
            return None
        return f"waiting for etcd: {self._follower.trouble or 'the fleet has not been read from it yet'}"

    async def _publish(self, view: View) -> None:
        self._sessions.observe(view.sessions.values(), time.time())
        await self._leading.tell(view)
        self._metrics.view_published(view.fleet, len(view.sessions))
        self._metrics.gains_expected(view.fleet, view.table.policy.gain)
        self._composition.view_published(view.fleet)
        self._sla.pools_published(pool.name for pool in view.fleet.pools)

    async def _until_heard(self) -> None:
        """Until filters had the time to come back to a control plane that has just started, and it has a view."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FILTERS_BACK_SECONDS):
                while self._current.value is None:
                    await self._current.next()
        await asyncio.sleep(self._started + FILTERS_BACK_SECONDS - time.monotonic())

    @property
    def _policy(self) -> Policy:
        """The policy in force; the configured one until the fleet has been read."""
        view = self._current.value
        return view.table.policy if view else self._settings.policy

    def _nodes(self) -> Iterable[NodeSpec]:
        view = self._current.value
        return (session.spec for session in view.sessions.values()) if view else ()

    def _join(self, state: FleetState) -> FleetState:
        """With what is known besides etcd."""
        return joined(state, self._listed, self._prometheus.loads if self._prometheus is not None else {})

    def _known_sessions(self) -> Iterable[NodeSession] | None:
        state = self._follower.state
        return state.sessions.values() if state else None

    def _violation_rates(self) -> Rates:
        return {key: found.rate for key, found in self._sla.rates(time.monotonic()).items()}

    def _pools_of(self, spec: NodeSpec) -> tuple[str, ...]:
        return pools_of(spec, self._policy)

    async def _set_policy(self, document: str | None) -> None:
        if document is None:
            await self._store.delete_policy()
        else:
            load_policy_beside(self._settings, document, "policy")
            await self._store.put_policy(document.encode())

    async def _become_ready(self) -> None:
        wait = FIRST_WAITING_TOLD_SECONDS
        while self._current.value is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._current.next()
                    break
            wait = min(2 * wait, LONGEST_WAITING_TOLD_SECONDS)
            _log.warning("not ready yet, %s", self.unready())
        await self._set_ready(True)

    async def _set_ready(self, ready: bool) -> None:
        for health in (self._fleet_health, self._envoy_health):
            await health.set_ready(ready)

    async def _watch_surroundings(self) -> None:
        while True:
            self._metrics.etcd_up(self._follower.trouble is None)
            self._metrics.envoys(len(self._discovery.states()))
            self._metrics.filter_workers(len(self._fleet.filter_workers.value))
            if self._ledger is not None:
                self._metrics.ledger_waiting(self._ledger.waiting)
            self._assess_composition()
            self._suggest_bounds()
            self._metrics.sla_measured(self._sla.rates(time.monotonic()))
            await asyncio.sleep(TICK_SECONDS)

    def _assess_composition(self) -> None:
        assessment = self._composition.assess(self._policy.composition)
        self._metrics.composition_assessed(assessment)
        view = self._current.value
        if not assessment.changed or view is None:
            return
        if assessment.is_trouble:
            _log.warning("fleet composition: %s", remedies(assessment.composition, view.fleet, view.table.policy))
        else:
            _log.info(
                "fleet composition: well again, %.0f%% of %d classified requests need the full tier",
                100 * assessment.composition.needing_full_share,
                assessment.composition.requests,
            )

    def _suggest_bounds(self) -> None:
        view, now = self._current.value, time.monotonic()
        if view is None or not self._thresholds.is_due(now):
            return
        totals = totals_by_model(self._estimation.merged())
        self._thresholds.observe(totals, view.fleet, view.table.policy, now)
        self._metrics.bounds_suggested(self._thresholds.current)

    def _status(self) -> fleet_pb2.GetStatusResponse:
        snapshot = self._discovery.snapshot
        return summarise(
            self._current.value,
            Surroundings(
                version=metadata.version("headrace"),
                uptime_seconds=time.monotonic() - self._started,
                etcd_trouble=self._follower.trouble,
                policy_fault=self._publisher.policy_fault,
                view_fault=self._publisher.view_fault,
                snapshot_version=snapshot.version if snapshot else "",
                envoys=tuple(envoy_status(state) for state in self._discovery.states()),
                filter_workers=tuple(sorted(self._fleet.filter_workers.value)),
                workers=self._fleet.workers,
                now=time.time(),
                assessment=self._composition.last,
                sla=self._sla.rates(time.monotonic()),
                ledger=self._ledger.status() if self._ledger is not None else None,
                unrecorded=self._unrecorded.latest if self._unrecorded is not None else None,
                bounds=self._thresholds.current,
                usage=tuple(self._estimation.usage()),
                prometheus=self._prometheus.status() if self._prometheus is not None else None,
            ),
        )


def _bearer_tokens(auth: AuthSettings) -> BearerTokens:
    return BearerTokens(
        node_tokens=read_tokens("control_plane.auth.node_tokens_file", auth.node_tokens_file),
        operator_tokens=read_tokens("control_plane.auth.operator_tokens_file", auth.operator_tokens_file),
    )


def _listed_nodes(file: str | None) -> tuple[NodeSession, ...]:
    return listed_nodes(read_text(Path(file)), file, time.time()) if file is not None else ()


def _ports(settings: Settings) -> tuple[str, ...]:
    """Addresses at which Headrace itself listens; those of all interfaces by the one of loopback."""
    control, ext_proc = settings.control_plane, settings.ext_proc
    listening = (settings.gateway.address, settings.envoy.admin, control.grpc, control.xds, control.metrics)
    return tuple(dialable(address) for address in (*listening, ext_proc.listen, ext_proc.health, ext_proc.metrics))


async def run_controlplane(settings: Settings) -> None:
    """Runs until SIGINT or SIGTERM. Raises ConfigurationError when it is not told where etcd is."""
    if not settings.etcd.endpoints:
        raise ConfigurationError(["etcd.endpoints: name one, or use `headrace up`, which runs an etcd of its own"])
    registry_of_metrics = new_metrics()
    metrics = ControlPlaneMetrics(registry_of_metrics)
    with telemetry(settings.telemetry, "controlplane"):
        async with stop_requested() as stop, EtcdClient(etcd_access(settings.etcd)) as client:
            plane = ControlPlane(settings, client, metrics, ledger_store(settings.ledger))
            routes = {**probes(registry_of_metrics, time.monotonic, plane.unready), **plane.shown}
            async with serving_http(settings.control_plane.metrics, routes):
                await plane.run(stop)
