"""Turns the fleet's stored state into what others act on: the view, and with it the filters' routing table."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable

from controlplane.config.load import load_policy, policy_to_json
from controlplane.errors import ConfigurationError
from controlplane.fleet import form_fleet
from controlplane.messages import pool_message
from controlplane.model import Pool
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


class Publisher:
    """`configured` is the policy of the configuration, which an operator's policy in etcd replaces.

    `on_view` gets each view before it is in force; `clock` gives Unix seconds.
    """

    def __init__(
        self,
        configured: Policy,
        current: CurrentView,
        on_view: Callable[[View], None],
        clock: Callable[[], float],
    ) -> None:
        self._configured = configured
        self._current = current
        self._on_view = on_view
        self._clock = clock
        self._latest: FleetState | None = None
        self._arrived = asyncio.Event()
        self._policy: tuple[bytes | None, Policy] = (None, configured)
        self.policy_fault: str | None = None

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
            try:
                async with asyncio.timeout(REFRESH_SECONDS):
                    await self._arrived.wait()
            except TimeoutError:
                pass
            self._arrived.clear()
            if self._latest is not None:
                view = self._view_of(self._latest)
                self._on_view(view)
                self._current.replace(view)
            await asyncio.sleep(COALESCE_SECONDS)

    def _view_of(self, state: FleetState) -> View:
        policy = self._policy_of(state)
        fleet = form_fleet(state.sessions.values(), state.loads, policy, self._clock())
        message = _table_message(fleet.pools, policy)
        return View(
            sessions=state.sessions,
            loads=state.loads,
            fleet=fleet,
            table=compile_table(message.version, fleet.pools, policy),
            table_message=message,
            policy_overridden=state.policy is not None,
        )

    def _policy_of(self, state: FleetState) -> Policy:
        """The policy in force. One in etcd that cannot be read, as of another version, is reported and not used."""
        if state.policy is None:
            self._policy = (None, self._configured)
            self.policy_fault = None
        elif state.policy != self._policy[0]:
            try:
                self._policy = (state.policy, load_policy(state.policy.decode(), "policy"))
                self.policy_fault = None
            except (ConfigurationError, UnicodeDecodeError) as error:
                self._policy = (state.policy, self._policy[1])
                self.policy_fault = str(error)
                _log.error("the policy in etcd cannot be used, the last one stays fault=%s", error)
        return self._policy[1]


def _table_message(pools: Iterable[Pool], policy: Policy) -> fleet_pb2.RoutingTable:
    table = fleet_pb2.RoutingTable(
        pools=[pool_message(pool) for pool in pools],
        policy_json=policy_to_json(policy),
    )
    table.version = hashlib.sha256(table.SerializeToString(deterministic=True)).hexdigest()[:16]
    return table
