"""Nodes that a file lists in the place of an agent's registration. Without I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from controlplane.errors import ConfigurationError
from controlplane.model import NodeLoad, NodeSession
from controlplane.registry.fleet_file import load_fleet
from controlplane.registry.state import FleetState


def listed_nodes(text: str, name: str, now: float) -> tuple[NodeSession, ...]:
    """The nodes of the YAML of a file called `name`, as registered at `now`, in Unix seconds. The same description has
    the same session everywhere. Raises ConfigurationError with every fault."""
    written = load_fleet(text, name, now)
    if written.loads:
        faults = [f"{name}: {node}.load: a load is measured, not written down; remove it" for node in written.loads]
        raise ConfigurationError(faults)
    return tuple(
        replace(session, session_id=hashlib.sha256(repr(session.spec).encode()).hexdigest()[:32])
        for session in written.sessions
    )


def joined(state: FleetState, listed: Sequence[NodeSession], loads: Mapping[str, NodeLoad]) -> FleetState:
    """With the listed nodes, where no node of the same id or address has registered; and with these loads, by node id,
    of nodes that tell none themselves."""
    addresses = {session.spec.address for session in state.sessions.values()}
    more = {
        session.spec.node_id: session
        for session in listed
        if session.spec.node_id not in state.sessions and session.spec.address not in addresses
    }
    read = {node_id: _with_health(load, state.loads.get(node_id)) for node_id, load in loads.items()}
    told = {node_id: load for node_id, load in state.loads.items() if node_id not in read or _tells(load)}
    return replace(state, sessions={**more, **state.sessions}, loads={**read, **told})


def _tells(load: NodeLoad) -> bool:
    return not load.uncounted or load.kv_cache_use is not None


def _with_health(read: NodeLoad, own: NodeLoad | None) -> NodeLoad:
    return read if own is None else replace(read, healthy=own.healthy, streams_usage=own.streams_usage)
