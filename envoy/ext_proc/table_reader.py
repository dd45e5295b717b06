"""Makes routing tables of the messages that a control plane sends, one after the other."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from controlplane import messages
from controlplane.calibration_messages import calibrations
from controlplane.config.load import policy_from_json
from controlplane.errors import ConfigurationError
from controlplane.model import Pool
from controlplane.policy.table import RoutingTable, compile_table, with_pools
from headrace_protos.headrace.v1 import fleet_pb2


class TableReader:
    """A fleet of hundreds of nodes brings twenty tables a second, of which each differs from the last in a few pools'
    loads. So a pool is read only if its bytes are new, and what is reckoned of a pool under a policy stays with it."""

    def __init__(self) -> None:
        # Of tables that follow each other hardly any has another policy, and one may list thousands of tenants.
        self._policy_of = lru_cache(maxsize=1)(policy_from_json)
        self._pools: dict[bytes, Pool] = {}
        self._last: RoutingTable | None = None

    def read(self, message: fleet_pb2.RoutingTable) -> RoutingTable:
        """Raises ValueError when the table is not one that this version understands; the next one may be."""
        try:
            policy = self._policy_of(message.policy_json)
        except ConfigurationError as error:
            raise ValueError(f"policy: {error}") from error
        learned = calibrations(message.calibrations, policy.estimation)
        pools = self._read_pools(message)
        if self._last is not None and self._last.policy is policy:
            self._last = with_pools(replace(self._last, version=message.version, calibrations=learned), pools)
        else:
            self._last = compile_table(message.version, pools, policy, learned)
        return self._last

    def _read_pools(self, message: fleet_pb2.RoutingTable) -> list[Pool]:
        known, self._pools = self._pools, {}
        for each in message.pools:
            coded = each.SerializeToString(deterministic=True)
            self._pools[coded] = known.get(coded) or messages.pool(each)
        return list(self._pools.values())
