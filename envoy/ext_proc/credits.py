"""How many more requests this worker may send where: its share of each room, less what it has sent since. No I/O.

Nothing known is no limit: of a cluster that no room names, of a room whose share is not known, and of one whose nodes
reported too long ago. A room that was short when the news of it stopped is known for a while longer, by its refill.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from msgspec import Struct

from controlplane.fleet import FRESH_SECONDS
from ext_proc.refill import Refill

# What was sent so shortly before the nodes reported may not have reached them yet, so that it counts as sent since.
ON_THE_WAY_SECONDS = 0.1
# Far more than one worker sends to one room between two reports.
MOST_SENT = 50_000


@dataclass(frozen=True, slots=True)
class Share:
    """This worker's share of the room of the nodes that are in just these clusters of Envoy, None when it is not known.

    It was free `age` seconds ago, or has become so since.
    """

    clusters: tuple[str, ...]
    free: int | None
    age: float


@dataclass(slots=True)
class _Room:
    clusters: tuple[str, ...]
    free: int | None = None
    reported: float = -math.inf
    sent: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_SENT))
    refill: Refill = field(default_factory=Refill)

    def take(self, share: Share, now: float) -> None:
        """A share that is not known is no news of a room that was short: its nodes have not reported to a control plane
        that has just started, or cannot while etcd is away."""
        if share.free is None:
            if not self.refill.is_known:
                self.free = None
            return
        used_up = self.free is not None and self.free - len(self.sent) < 1
        self.free = share.free
        self.reported = now - share.age
        while self.sent and self.sent[0] < self.reported - ON_THE_WAY_SECONDS:
            self.sent.popleft()
        self.refill.heard(now, used_up=used_up, left=self.free - len(self.sent))

    def left(self, now: float) -> float:
        if self.free is None:
            return math.inf
        balance = self.free - len(self.sent)
        if (left := self.refill.left(now, balance)) is not None:
            return left
        return balance if now - self.reported <= FRESH_SECONDS else math.inf

    def spend(self, at: float) -> None:
        self.sent.append(at)
        self.refill.spent(at)

    def refund(self, at: float, now: float) -> None:
        self.sent.remove(at)
        self.refill.spent(now, -1)


class Spent(Struct, frozen=True, gc=False):
    """A credit that was spent on a cluster, so that it can be given back."""

    cluster: str
    room: _Room | None
    at: float


class Credits:
    """`clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rooms: dict[tuple[str, ...], _Room] = {}
        self._by_cluster: dict[str, list[_Room]] = {}
        # All clusters that have no credit left, and such whose nodes reported too long ago to say.
        self._exhausted: set[str] = set()

    def take(self, shares: Iterable[Share]) -> None:
        """All shares, in place of those before."""
        now = self._clock()
        rooms: dict[tuple[str, ...], _Room] = {}
        self._by_cluster = {}
        for share in shares:
            room = rooms[share.clusters] = self._rooms.get(share.clusters) or _Room(share.clusters)
            room.take(share, now)
            for cluster in share.clusters:
                self._by_cluster.setdefault(cluster, []).append(room)
        self._rooms = rooms
        self._exhausted = {cluster for cluster in self._by_cluster if self._left(cluster, now) < 1}

    @property
    def are_left_everywhere(self) -> bool:
        """Whether every cluster has one, which costs no look at each; no may be wrong."""
        return not self._exhausted

    def is_left(self, cluster: str) -> bool:
        """Whether a cluster has one."""
        return cluster not in self._exhausted or self.left(cluster) >= 1

    def left(self, cluster: str) -> float:
        """Requests that may be sent to a cluster now; infinite where nothing limits it, negative if too many were."""
        return self._left(cluster, self._clock())

    def spend(self, cluster: str) -> Spent:
        """Counts a request to a cluster, whether there was a credit for it or not.

        Which of the cluster's rooms it takes up is Envoy's choice among nodes: that with the most left is likely.
        """
        now = self._clock()
        rooms = self._by_cluster.get(cluster)
        if rooms is None:
            return Spent(cluster, None, now)
        room = rooms[0] if len(rooms) == 1 else max(rooms, key=lambda room: room.left(now))
        room.spend(now)
        self._look_at(room, now)
        return Spent(cluster, room, now)

    def refund(self, spent: Spent) -> None:
        """The request was not sent after all."""
        if spent.room is not None and spent.at in spent.room.sent:
            now = self._clock()
            spent.room.refund(spent.at, now)
            self._look_at(spent.room, now)

    def _left(self, cluster: str, now: float) -> float:
        rooms = self._by_cluster.get(cluster)
        return sum(room.left(now) for room in rooms) if rooms else math.inf

    def _look_at(self, room: _Room, now: float) -> None:
        """Finds out which clusters are exhausted now, of those that the room is in."""
        for cluster in room.clusters:
            if self._left(cluster, now) < 1:
                self._exhausted.add(cluster)
            else:
                self._exhausted.discard(cluster)
