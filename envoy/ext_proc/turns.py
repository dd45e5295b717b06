"""Whose turn it is among those who wait. Knows no clusters and no room; the line asks for the order, and says who went.

Without QoS governance they come in the order in which they began to wait. With it the better QoS tier comes first, and
within a tier tenants have turns alike, by tokens: each has a virtual time that grows with what was let go on for it,
and the one who is least far comes next (start-time fair queueing, Goyal et al. 1996). So that no tier starves, after so
many turns the next one is that of whoever has waited longest, if he has waited long.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from controlplane.model import QosTier
from controlplane.policy.qos import Mode, QosRules

# Of tenants whose virtual time is remembered; those who are least ahead are forgotten.
MOST_TENANTS = 4096

_RANKS = {tier: rank for rank, tier in enumerate(QosTier)}


class Claim(Struct, frozen=True, gc=False):
    """Who waits, and for how much: the tokens that the request is expected to need."""

    tier: QosTier = QosTier.STANDARD
    tenant: str = ""
    tokens: int = 1


class Waits(Protocol):
    """One who waits, the `number`th to begin, at `began` by the line's clock. Who `is_gone` waits no more."""

    @property
    def number(self) -> int: ...

    @property
    def claim(self) -> Claim: ...

    @property
    def began(self) -> float: ...

    @property
    def is_gone(self) -> bool: ...


W = TypeVar("W", bound=Waits)


class Turns:
    """What there is to remember of who went, for the order of those who wait."""

    def __init__(self) -> None:
        self._rules = QosRules()
        self._times: dict[QosTier, _VirtualTime] = {tier: _VirtualTime() for tier in QosTier}
        self._since_aged = 0
        self._out_of_turn: Waits | None = None

    def configure(self, rules: QosRules) -> None:
        self._rules = rules

    @property
    def rules(self) -> QosRules | None:
        """Those that govern, None where none do."""
        return self._rules if self._rules.mode is Mode.ENABLED else None

    def in_order(self, waiting: Iterable[W], now: float) -> Iterator[W]:
        """All who wait, each as his turn comes. Who is next depends on who of those before has gone: `went` is to be
        called for them meanwhile."""
        first_come = sorted(waiting, key=lambda each: each.number)
        if self.rules is None:
            yield from first_come
            return
        aged = deque(each for each in first_come if now - each.began >= self._rules.aged_after_seconds)
        passed: set[int] = set()
        for each in self._by_tier(first_come):
            while aged and self._since_aged >= self._rules.aged_turn - 1:
                oldest = aged.popleft()
                if not oldest.is_gone and _RANKS[oldest.claim.tier] > _RANKS[each.claim.tier]:
                    passed.add(oldest.number)
                    self._out_of_turn = oldest
                    yield oldest
                    self._out_of_turn = None
            if not each.is_gone and each.number not in passed:
                yield each

    def went(self, waiter: Waits) -> None:
        """One who waited goes on."""
        self._since_aged = 0 if waiter is self._out_of_turn else self._since_aged + 1
        if self.rules is not None:
            self._times[waiter.claim.tier].charge(waiter.claim)

    def _by_tier(self, first_come: Sequence[W]) -> Iterator[W]:
        tiers: defaultdict[QosTier, defaultdict[str, deque[W]]] = defaultdict(lambda: defaultdict(deque))
        for each in first_come:
            tiers[each.claim.tier][each.claim.tenant].append(each)
        for tier in QosTier:
            yield from self._fair(tiers[tier], self._times[tier])

    def _fair(self, tenants: defaultdict[str, deque[W]], time: _VirtualTime) -> Iterator[W]:
        heads = [(time.of(tenant), line[0].number, tenant) for tenant, line in tenants.items()]
        heapq.heapify(heads)
        while heads:
            _, _, tenant = heapq.heappop(heads)
            line = tenants[tenant]
            yield line.popleft()
            if line:
                heapq.heappush(heads, (time.of(tenant), line[0].number, tenant))


class _VirtualTime:
    """How far each tenant of a tier is, in tokens; nobody is behind `_now`, the start of the last turn."""

    def __init__(self) -> None:
        self._now = 0.0
        self._ends: dict[str, float] = {}

    def of(self, tenant: str) -> float:
        return max(self._now, self._ends.get(tenant, 0.0))

    def charge(self, claim: Claim) -> None:
        start = self.of(claim.tenant)
        self._now = max(self._now, start)
        self._ends[claim.tenant] = start + max(claim.tokens, 1)
        if len(self._ends) > MOST_TENANTS:
            ahead = [(end, tenant) for tenant, end in self._ends.items() if end > self._now]
            self._ends = {tenant: end for end, tenant in heapq.nlargest(MOST_TENANTS // 2, ahead)}
