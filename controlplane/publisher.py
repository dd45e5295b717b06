"""Turns the fleet's stored state into what others act on: the view, and with it the filters' routing table."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from controlplane.calibration_messages import calibrations_message
from controlplane.config.load import load_policy, policy_to_json
from controlplane.errors import ConfigurationError
from controlplane.fleet import form_fleet
from controlplane.learning.pressures import PressureWatch
from controlplane.learning.throughput import ThroughputLearner
from controlplane.messages import pool_message
from controlplane.model import Pool
from controlplane.policy.estimator import Calibrations, in_force
from controlplane.policy.settings import Policy
from controlplane.policy.table import compile_table
from controlplane.registry.state import FleetState
from controlplane.view import CurrentView, View
from headrace_protos.headrace.v1 import fleet_pb2

_log = logging.getLogger(__name__)

# Changes that come closer together than this are published as one.
COALESCE_SECONDS = 0.05
# Load reports age without any change in etcd, so the view is made anew at least this often.
REFRESH_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _PolicyInForce:
    """`document` is the last one seen in etcd, None for none; `policy` may be older when that one cannot be used.

    `json` is the policy as routing tables hold it.
    """

    document: bytes | None
    policy: Policy
    json: bytes


def _alone(state: FleetState) -> FleetState:
    return state


class Publisher:
    """`configured` is the policy of the configuration, which an operator's policy in etcd replaces.

    `on_view` gets each view before it is in force, may take its time, and keeps it from being so by raising. `on_fault`
    is told each time that a view could not be made or was refused; the last good one then stays. `clock` gives Unix
    seconds, `learned` what tokens are estimated by, `joined` a state with what is known besides etcd.
    """

    def __init__(
        self,
        configured: Policy,
        current: CurrentView,
        on_view: Callable[[View], Awaitable[None]],
        on_fault: Callable[[], None],
        clock: Callable[[], float],
        *,
        pressures: PressureWatch,
        learned: Callable[[], Calibrations] = Calibrations,
        joined: Callable[[FleetState], FleetState] = _alone,
    ) -> None:
        self._current = current
        self._on_view = on_view
        self._on_fault = on_fault
        self._clock = clock
        self._learned = learned
        self._joined = joined
        self._learner = ThroughputLearner()
        self._pressures = pressures
        self._latest: FleetState | None = None
        self._arrived = asyncio.Event()
        self._configured = _PolicyInForce(None, configured, policy_to_json(configured))
        self._policy = self._configured
        self.policy_fault: str | None = None
        self.view_fault: str | None = None

    async def run(self, states: AsyncIterator[FleetState]) -> None:
        """Publishes for as long as states come."""
        async with asyncio.TaskGroup() as tasks:
            publishing = tasks.create_task(self._publish_all())
            async for state in states:
                self._latest = state
                self._arrived.set()
            publishing.cancel()

    async def _publish_all(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(REFRESH_SECONDS):
                    await self._arrived.wait()
            self._arrived.clear()
            if self._latest is not None:
                await self._publish(self._latest)
            await asyncio.sleep(COALESCE_SECONDS)

    async def _publish(self, state: FleetState) -> None:
        """One node that this version cannot cope with must end neither the control plane nor the traffic."""
        try:
            view = self._view_of(state)
            await self._on_view(view)
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
            if fault != self.view_fault:
                _log.exception("the fleet cannot be published, the last view stays revision=%d", state.revision)
            self.view_fault = fault
            self._on_fault()
        else:
            if self.view_fault is not None:
                _log.info("the fleet is published again revision=%d", state.revision)
            self.view_fault = None
            self._current.put(view)

    def _view_of(self, state: FleetState) -> View:
        state = self._joined(state)
        self._policy = self._policy_of(state.policy)
        policy = self._policy.policy
        now = self._clock()
        learned = self._learner.observe(state.sessions.values(), state.loads, policy, now)
        fleet = form_fleet(state.sessions.values(), state.loads, policy, now, state.overrides, learned=learned)
        fleet = self._pressures.observe(fleet, policy.qos, now)
        calibrations = in_force(self._learned(), policy.estimation)
        message = _table_message(fleet.pools, self._policy.json, calibrations)
        return View(
            sessions=state.sessions,
            loads=state.loads,
            fleet=fleet,
            table=compile_table(message.version, fleet.pools, policy, calibrations),
            table_message=message,
            policy_overridden=self._policy.policy is not self._configured.policy,
            workers=state.workers,
        )

    def _policy_of(self, document: bytes | None) -> _PolicyInForce:
        """The policy in force. One in etcd that cannot be read, as of another version, is reported and not used."""
        if document is None:
            self.policy_fault = None
            return self._configured
        if document == self._policy.document:
            return self._policy
        try:
            policy = load_policy(document.decode(), "policy")
        except (ConfigurationError, UnicodeDecodeError) as error:
            self.policy_fault = str(error)
            _log.error("the policy in etcd cannot be used, the last one stays fault=%s", error)
            return replace(self._policy, document=document)
        self.policy_fault = None
        return _PolicyInForce(document, policy, policy_to_json(policy))


def _table_message(pools: Iterable[Pool], policy_json: bytes, calibrations: Calibrations) -> fleet_pb2.RoutingTable:
    table = fleet_pb2.RoutingTable(
        pools=[pool_message(pool) for pool in pools],
        policy_json=policy_json,
        calibrations=calibrations_message(calibrations),
    )
    table.version = hashlib.sha256(table.SerializeToString(deterministic=True)).hexdigest()[:16]
    return table
