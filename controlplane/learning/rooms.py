"""How many more requests nodes have room for: what their last load reports left free, and what has finished since.

A node's room is what its engine runs at once, less what it runs and what waits in its own queue, plus what it will
have finished by the time that more can reach it: that much is kept waiting in the engine, so that it never runs dry.
Requests that were sent since the report are not taken off here: those who send them know them.

An engine's limit holds for all its models together, so that the room belongs to the node and is counted once. Nodes
that are in the same clusters have one room together: those of its pools, as far as they serve all sessions, and while
nodes of a pool quiesce, that of all nodes of the pool.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from controlplane.fleet import Fleet, Member
from controlplane.model import Pool
from controlplane.policy.settings import LoadLimits

# From the end of a request until another one that takes its place has reached the engine: the access log is flushed
# each 0.1 s, credits are sent at most each 0.1 s, and what was sent in the last 0.1 s before a report counts twice.
REPLACED_WITHIN_SECONDS = 0.5
# How fast a node finishes requests is a mean over about so long.
RATE_SECONDS = 5.0
# Of one node between two of its reports; more than any engine finishes.
MOST_FINISHED = 10_000


@dataclass(frozen=True, slots=True)
class Room:
    """The room of all ready nodes that are in just these clusters of Envoy, whose names are in order.

    `free` is None when it is not known, which is no limit. The nodes reported from `first_report` on, in Unix seconds,
    on average at `mean_report`.
    """

    clusters: tuple[str, ...]
    free: int | None
    mean_report: float
    first_report: float


@dataclass(slots=True)
class _Finished:
    """What is known of one node: when requests have ended since its last report, and how many end per second."""

    ends: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_FINISHED))
    decayed: float = 0.0
    at: float = 0.0

    def add(self, at: float) -> None:
        """One that is told of late, as by an Envoy that could not tell, counts for what it would by now."""
        self.ends.append(at)
        latest = max(at, self.at)
        self.decayed = self._decayed_at(latest) + math.exp((at - latest) / RATE_SECONDS)
        self.at = latest

    def since(self, report: float) -> int:
        self.ends = deque((end for end in self.ends if end > report), maxlen=MOST_FINISHED)
        return len(self.ends)

    def per_second(self, now: float) -> float:
        return self._decayed_at(now) / RATE_SECONDS

    def _decayed_at(self, now: float) -> float:
        return self.decayed * math.exp(-max(now - self.at, 0.0) / RATE_SECONDS)


class RoomWatch:
    """Told of each request that has finished, it works out rooms as often as one likes. All times in Unix seconds."""

    def __init__(self) -> None:
        self._finished: dict[str, _Finished] = {}  # by address, of the nodes that there are

    def request_finished(self, address: str, at: float) -> None:
        """A request to the node at this address ended; one at no address of the fleet is none of its nodes'."""
        if address in self._finished:
            self._finished[address].add(at)

    def rooms(self, fleet: Fleet, limits: LoadLimits, now: float) -> tuple[Room, ...]:
        """The rooms of the fleet, in the order of their clusters."""
        opened = {pool.name: pool for pool in fleet.pools if pool.quiescing_nodes}
        nodes: defaultdict[str, list[Member]] = defaultdict(list)
        for member in fleet.members:
            if member.ready:
                nodes[member.session.session_id].append(member)
        alike: defaultdict[tuple[str, ...], list[Sequence[Member]]] = defaultdict(list)
        for members in nodes.values():
            alike[tuple(sorted({cluster for member in members for cluster in _clusters(member, opened)}))].append(
                members
            )
        addresses = {members[0].session.spec.address for members in nodes.values()}
        self._finished = {address: self._finished.get(address) or _Finished() for address in addresses}
        return tuple(self._room(clusters, alike[clusters], limits, now) for clusters in sorted(alike))

    def _room(
        self, clusters: tuple[str, ...], nodes: Iterable[Sequence[Member]], limits: LoadLimits, now: float
    ) -> Room:
        free = 0.0
        reports: list[float] = []
        for members in nodes:
            load = members[0].load
            if load is None or load.uncounted or load.sampled:
                return Room(clusters, None, now, now)
            finished = self._finished[members[0].session.spec.address]
            kept_busy = finished.per_second(now) * REPLACED_WITHIN_SECONDS
            sequences = max(member.model.max_sequences for member in members)
            if load.kv_cache_use is not None and load.kv_cache_use > limits.overloaded_kv_cache_use:
                sequences = min(sequences, load.running)  # its memory is full: what waits would not run sooner
            left = sequences + kept_busy - load.running - load.waiting + finished.since(load.reported_at)
            free += max(left, 0.0)  # what one node is behind does not fill another one
            reports.append(load.reported_at)
        return Room(clusters, math.floor(free), sum(reports) / len(reports), min(reports))


def _clusters(member: Member, opened: Mapping[str, Pool]) -> Iterator[str]:
    if member.settled:
        yield member.pool
    if pool := opened.get(member.pool):
        yield from pool.clusters[1:]


def free_of(cluster: str, rooms: Iterable[Room]) -> int | None:
    """What a cluster has room for; None when that is not known, or no node is in it."""
    found = [room.free for room in rooms if cluster in room.clusters]
    known = [free for free in found if free is not None]
    return sum(known) if known and len(known) == len(found) else None


def share_of(free: int, place: int, sharers: int, turn: int) -> int:
    """Of what is free, the share of the one at `place`, from 0, of so many sharers. What does not divide goes to others
    at each `turn`, so that a room for one request is nobody's for good. All shares together are what is free."""
    each, rest = divmod(free, sharers)
    return each + ((place - turn) % sharers < rest)
