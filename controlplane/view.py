"""The fleet as this control plane sees it now: one immutable value, replaced whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.fleet import Fleet
from controlplane.latest import Latest
from controlplane.model import NodeLoad, NodeSession
from controlplane.policy.table import RoutingTable
from headrace_protos.headrace.v1 import fleet_pb2


@dataclass(frozen=True, slots=True)
class View:
    """`sessions` and `loads` by node id. `table_message` is `table` as filters receive it. `workers` are the filter
    workers that watch any control plane, as far as etcd knows."""

    sessions: Mapping[str, NodeSession]
    loads: Mapping[str, NodeLoad]
    fleet: Fleet
    table: RoutingTable
    table_message: fleet_pb2.RoutingTable
    policy_overridden: bool
    workers: frozenset[str] = frozenset()


CurrentView = Latest[View | None]
