"""The fleet as etcd holds it, as one immutable value, and how that value follows from listings and changes. No I/O.

Nodes keep their leases through control planes. After an outage, of etcd or of the control planes, etcd may tell that
nodes are gone which only could not renew their leases. They stay in the state for a grace period after the outage, in
which they can come back; a node that said it was leaving goes at once. A control plane that has just started finds such
nodes among those that etcd remembers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
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

    `workers` are the ids of the filter workers that watch any control plane. `policy` is the document that operators
    set, None when they set none. An override may be past its time.
    """

    sessions: Mapping[str, NodeSession] = field(default_factory=dict)
    loads: Mapping[str, NodeLoad] = field(default_factory=dict)
    overrides: Mapping[str, Override] = field(default_factory=dict)
    workers: frozenset[str] = frozenset()
    policy: bytes | None = None
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Remembered:
    """A node session that outlives its lease, and the revision of etcd at which it was written."""

    session: NodeSession
    mod_revision: int


class Mirror:
    """Follows what etcd tells. Apart from nodes in grace, the state follows from etcd's content alone.

    `grace` is in seconds; `now` in its methods is by the clock of the health's `failed_at`.
    """

    def __init__(self, keys: Keys, grace: float) -> None:
        self._keys = keys
        self._grace = grace
        self._sessions: dict[str, NodeSession] = {}
        self._loads: dict[str, LoadRecord] = {}
        self._remembered: dict[str, Remembered] = {}
        self._overrides: dict[str, Override] = {}
        self._workers: set[str] = set()
        self._policy: bytes | None = None
        self._revision = 0
        self._away_at: float | None = None
        self._in_grace: dict[str, tuple[NodeSession, NodeLoad | None]] = {}
        self.state = FleetState()

    def replace(self, listing: Listing, health: Health, now: float) -> None:
        """Takes a whole listing of the prefix. What happened before it was not seen: it ends an absence."""
        self.was_away(now)
        self._sessions, self._loads, self._remembered, self._overrides, self._policy = {}, {}, {}, {}, None
        self._workers = set()
        for record in listing.records:
            self._take(record)
        remembered = sorted(self._remembered.values(), key=lambda each: each.mod_revision)
        shown = [session for node_id, session in self.state.sessions.items() if node_id not in self._remembered]
        self._finish(listing.revision, [*shown, *(each.session for each in remembered)], health, now)

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
        shown = [session for node_id, session in self.state.sessions.items() if node_id not in leaving]
        self._finish(changes.revision, shown, health, now)

    def was_away(self, now: float) -> None:
        """Until now this process saw and did nothing, so that nodes could not renew their leases by it."""
        self._away_at = now

    @property
    def given_up(self) -> Mapping[str, int]:
        """Nodes that etcd remembers though they have left the state for good; for each the revision of its record."""
        return {
            node_id: remembered.mod_revision
            for node_id, remembered in self._remembered.items()
            if node_id not in self.state.sessions
        }

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
        elif node_id := _below(self._keys.remembered, record.key):
            session = decode_session(record)
            _set(self._remembered, node_id, Remembered(session, record.mod_revision) if session else None)
        elif pool := _below(self._keys.overrides, record.key):
            _set(self._overrides, pool, decode_override(record))
        elif worker_id := _below(self._keys.workers, record.key):
            self._workers.add(worker_id)

    def _drop(self, key: str) -> NodeSession | None:
        """Forgets a key; returns the node session that it held, if any."""
        if key == self._keys.policy:
            self._policy = None
        elif node_id := _below(self._keys.nodes, key):
            return self._sessions.pop(node_id, None)
        elif node_id := _below(self._keys.loads, key):
            self._loads.pop(node_id, None)
        elif node_id := _below(self._keys.remembered, key):
            self._remembered.pop(node_id, None)
        elif pool := _below(self._keys.overrides, key):
            self._overrides.pop(pool, None)
        elif worker_id := _below(self._keys.workers, key):
            self._workers.discard(worker_id)
        return None

    def _finish(self, revision: int, known: Iterable[NodeSession], health: Health, now: float) -> None:
        """`known` are sessions that may be in grace, one of a node; of two at one address the later one is."""
        before = self.state
        held = {session.spec.address for session in self._sessions.values()}
        absent = {
            session.spec.address: session
            for session in known
            if self._is_grace_time(health, now)
            and session.spec.node_id not in self._sessions
            and not session.draining
            and session.spec.address not in held
        }
        self._in_grace = {session.spec.node_id: (session, _load_of(session, before)) for session in absent.values()}
        self._revision = revision
        self.state = self._compose()

    def _is_grace_time(self, health: Health, now: float) -> bool:
        if health.trouble is not None:
            return True
        return any(at is not None and now < at + self._grace for at in (health.failed_at, self._away_at))

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
            workers=frozenset(self._workers),
            policy=self._policy,
            revision=self._revision,
        )


def _load_of(session: NodeSession, state: FleetState) -> NodeLoad | None:
    shown = state.sessions.get(session.spec.node_id)
    if shown is None or shown.session_id != session.session_id:
        return None
    return state.loads.get(session.spec.node_id)


def _below(prefix: str, key: str) -> str:
    return key[len(prefix) :] if key.startswith(prefix) else ""


def _set(values: dict[str, Value], key: str, value: Value | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value
