"""The fleet as etcd holds it, as one immutable value, and how that value follows from listings and changes. No I/O.

After an outage, etcd may tell that nodes are gone which only could not renew their leases. They stay in the state for a
grace period after etcd answers again, in which they can come back; a node that said it was leaving goes at once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from controlplane.etcd.connection import Health
from controlplane.etcd.records import Changes, Delete, Listing, Put, Record
from controlplane.model import NodeLoad, NodeSession, Override
from controlplane.registry.codec import LoadRecord, decode_load, decode_override, decode_session
from controlplane.registry.keys import Keys

logger = logging.getLogger(__name__)

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class FleetState:
    """Node sessions and their last loads by node id, overrides by pool name, as of etcd's `revision`.

    `policy` is the document that operators set, None when they set none. An override may be past its time.
    """

    sessions: Mapping[str, NodeSession] = field(default_factory=dict)
    loads: Mapping[str, NodeLoad] = field(default_factory=dict)
    overrides: Mapping[str, Override] = field(default_factory=dict)
    policy: bytes | None = None
    revision: int = 0


class Mirror:
    """Follows what etcd tells. Apart from nodes in grace, the state follows from etcd's content alone.

    `grace` is in seconds; `now` in its methods is by the clock of the health's `failed_at`.
    """

    def __init__(self, keys: Keys, grace: float) -> None:
        self._keys = keys
        self._grace = grace
        self._sessions: dict[str, NodeSession] = {}
        self._loads: dict[str, LoadRecord] = {}
        self._overrides: dict[str, Override] = {}
        self._policy: bytes | None = None
        self._revision = 0
        self._in_grace: dict[str, tuple[NodeSession, NodeLoad | None]] = {}
        self.state = FleetState()

    def replace(self, listing: Listing, health: Health, now: float) -> None:
        """Takes a whole listing of the prefix."""
        self._sessions, self._loads, self._overrides, self._policy = {}, {}, {}, None
        for record in listing.records:
            self._take(record)
        self._finish(listing.revision, frozenset(), health, now)

    def apply(self, changes: Changes, health: Health, now: float) -> None:
        """Takes the changes that follow on what it has."""
        leaving: set[str] = set()
        for event in changes.events:
            match event:
                case Put(record):
                    self._take(record)
                case Delete(key):
                    gone = self._drop(key)
                    if gone is not None and gone.draining:
                        leaving.add(gone.spec.node_id)
        self._finish(changes.revision, leaving, health, now)

    def end_grace(self, health: Health, now: float) -> bool:
        """Lets go of the nodes that did not come back in time; False when there are none."""
        if not self._in_grace or self._is_grace_time(health, now):
            return False
        logger.info("nodes did not come back after the outage: %s", ", ".join(sorted(self._in_grace)))
        self._in_grace = {}
        self.state = self._compose()
        return True

    def _take(self, record: Record) -> None:
        if record.key == self._keys.policy:
            self._policy = record.value
        elif node_id := _below(self._keys.nodes, record.key):
            _set(self._sessions, node_id, decode_session(record))
        elif node_id := _below(self._keys.loads, record.key):
            _set(self._loads, node_id, decode_load(record))
        elif pool := _below(self._keys.overrides, record.key):
            _set(self._overrides, pool, decode_override(record))

    def _drop(self, key: str) -> NodeSession | None:
        """Forgets a key; returns the node session that it held, if any."""
        if key == self._keys.policy:
            self._policy = None
        elif node_id := _below(self._keys.nodes, key):
            return self._sessions.pop(node_id, None)
        elif node_id := _below(self._keys.loads, key):
            self._loads.pop(node_id, None)
        elif pool := _below(self._keys.overrides, key):
            self._overrides.pop(pool, None)
        return None

    def _finish(self, revision: int, leaving: frozenset[str] | set[str], health: Health, now: float) -> None:
        before = self.state
        held = {session.spec.address for session in self._sessions.values()}
        self._in_grace = {
            node_id: (session, before.loads.get(node_id))
            for node_id, session in before.sessions.items()
            if self._is_grace_time(health, now)
            and node_id not in self._sessions
            and node_id not in leaving
            and not session.draining
            and session.spec.address not in held
        }
        self._revision = revision
        self.state = self._compose()

    def _is_grace_time(self, health: Health, now: float) -> bool:
        if health.trouble is not None:
            return True
        return health.failed_at is not None and now < health.failed_at + self._grace

    def _compose(self) -> FleetState:
        sessions = {node_id: session for node_id, (session, _) in self._in_grace.items()} | self._sessions
        loads = {node_id: load for node_id, (_, load) in self._in_grace.items() if load is not None}
        for node_id, record in self._loads.items():
            if node_id in self._sessions and self._sessions[node_id].session_id == record.session_id:
                loads[node_id] = record.load
        return FleetState(
            sessions=MappingProxyType(sessions),
            loads=MappingProxyType(loads),
            overrides=MappingProxyType(dict(self._overrides)),
            policy=self._policy,
            revision=self._revision,
        )


def _below(prefix: str, key: str) -> str:
    return key[len(prefix) :] if key.startswith(prefix) else ""


def _set(values: dict[str, Value], key: str, value: Value | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value
