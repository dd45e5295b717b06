"""How long one who joins the line would wait, by how fast it moves (Little 1961: those ahead of him, by those who go on
in a second). No I/O, and no clock of its own.

What counts is the pace of his own QoS tier: better tiers that take the turns show in it, and so does ageing.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable

from controlplane.model import QosTier

# Of the turns of one tier at one cluster, so many last ones tell the pace, and fewer than the least tell nothing.
REMEMBERED = 32
LEAST = 8

_Line = tuple[QosTier, str]


class Pace:
    """Of each tier at each cluster. It is forgotten when nobody waits there any more: a line that is empty moves as
    fast as requests come, not as fast as room does. All times in seconds by one clock."""

    def __init__(self) -> None:
        self._waiting: Counter[_Line] = Counter()
        self._turns: defaultdict[_Line, deque[float]] = defaultdict(lambda: deque(maxlen=REMEMBERED))

    def joined(self, tier: QosTier, clusters: Iterable[str]) -> None:
        self._waiting.update((tier, cluster) for cluster in clusters)

    def left(self, tier: QosTier, clusters: Iterable[str]) -> None:
        for cluster in clusters:
            line = (tier, cluster)
            self._waiting[line] -= 1
            if self._waiting[line] <= 0:
                del self._waiting[line]
                self._turns.pop(line, None)

    def went(self, tier: QosTier, cluster: str, now: float) -> None:
        """One who waited goes on, to this cluster; he has not left yet."""
        self._turns[tier, cluster].append(now)

    def per_second(self, tier: QosTier, clusters: Iterable[str], now: float) -> float | None:
        """Turns of a tier at these clusters together, since the first that is remembered; None when too few are."""
        turns = [found for cluster in clusters if (found := self._turns.get((tier, cluster)))]
        if sum(map(len, turns)) < LEAST:
            return None
        return sum((len(times) - 1) / max(now - times[0], 1e-3) for times in turns)


def ahead_of(tenant: str, waiting: Iterable[str], *, fair: bool) -> int:
    """How many go before a request of this tenant that joins now, of those of its tier that wait for tenants by these
    names: all, or where tenants have turns alike, of each other one no more than it has in the line with the new one.
    """
    counts = Counter(waiting)
    if not fair:
        return counts.total()
    own = counts.pop(tenant, 0)
    return own + sum(min(count, own + 1) for count in counts.values())
