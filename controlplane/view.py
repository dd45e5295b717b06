"""The fleet as this control plane sees it now: one immutable value, replaced whole, that others wait on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from controlplane.fleet import Fleet
from controlplane.model import NodeLoad, NodeSession
from controlplane.policy.table import RoutingTable
from headrace_protos.headrace.v1 import fleet_pb2


@dataclass(frozen=True, slots=True)
class View:
    """`sessions` and `loads` by node id. `table_message` is `table` as filters receive it."""

    sessions: Mapping[str, NodeSession]
    loads: Mapping[str, NodeLoad]
    fleet: Fleet
    table: RoutingTable
    table_message: fleet_pb2.RoutingTable
    policy_overridden: bool


class CurrentView:
    """Holds the view in force. A reader that is slow misses views in between, never the last one."""

    def __init__(self) -> None:
        self._view: View | None = None
        self._changed = asyncio.Event()

    @property
    def value(self) -> View | None:
        return self._view

    def replace(self, view: View) -> None:
        self._view = view
        self._changed.set()
        self._changed = asyncio.Event()

    async def changes(self) -> AsyncIterator[View]:
        """The view in force, then each later one."""
        seen: View | None = None
        while True:
            changed = self._changed
            if self._view is not None and self._view is not seen:
                seen = self._view
                yield seen
            else:
                await changed.wait()
