"""Where requests wait for room, in order. Knows neither requests nor decisions: only who waits for which clusters.

Each request has a place, which holds the credit that it is sent with. One that finds none waits in the line; a credit
that comes in goes to the first of the line who waits for that cluster, before he has decided again. So nobody overtakes
another one who waits for the same cluster, and nobody holds up those who wait for another.

One who is held waits for the pressure to fall and has no claim on room; nobody waits behind him.

Who would wait longer than he may is refused before he has: he can go elsewhere at once, and whoever is let wait is
likely to be served while that still is of use.

When nothing limits a cluster any more, as when no control plane is heard for long, all who wait for it go on, in order.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from controlplane.model import QosTier, Reason
from controlplane.policy.choice import Free
from controlplane.policy.decide import anywhere
from controlplane.policy.qos import QosRules
from controlplane.policy.settings import WaitingRules
from ext_proc.credits import Credits, Spent
from ext_proc.pace import Pace, ahead_of
from ext_proc.turns import Claim, Turns

Extend = Callable[[float], Awaitable[None]]
"""Tells Envoy that the answer may take so many seconds more, where it would give up before."""

# Envoy gives up an answer after 4 s (message_timeout) unless it is told, once, that it takes longer. Until it is told
# it can send the request to another worker if this one dies, so that is put off.
EXTEND_AFTER_SECONDS = 2.5
EXTENSION_MARGIN_SECONDS = 2.0

ANYBODY = Claim()


class Observer(Protocol):
    """Told of those who wait, for metrics. `outcome` is `went_on`, `left` or the reason of a refusal."""

    def waiting(self, count: int) -> None: ...

    def wait_ended(self, outcome: str, seconds: float) -> None: ...


@dataclass(slots=True, eq=False)
class _Waiter:
    """`turn` is done when he may decide again; with a credit, which his place then holds, or to look at a new table."""

    place: Place
    number: int
    began: float
    claim: Claim
    clusters: tuple[str, ...]
    held: bool
    turn: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def is_gone(self) -> bool:
        return self.turn.done()


class Line:
    """`clock` gives monotonic seconds; nobody waits for longer than `max_wait`, whatever the rules say."""

    def __init__(self, credits_: Credits, observer: Observer, clock: Callable[[], float], *, max_wait: float) -> None:
        self._credits = credits_
        self._observer = observer
        self._clock = clock
        self._max_wait = max_wait
        self._rules = WaitingRules()
        self._turns = Turns()
        self._pace = Pace()
        self._waiters: set[_Waiter] = set()
        self._wanted: Counter[str] = Counter()
        self._numbers = 0
        self._open = False

    def __len__(self) -> int:
        return len(self._waiters)

    def configure(self, rules: WaitingRules, qos: QosRules) -> None:
        self._rules = rules
        self._turns.configure(qos)

    def place(self) -> Place:
        return Place(self)

    def serve(self) -> None:
        """Hands out what there is to those who wait; to be called whenever there may be more than before."""
        if not any(map(self._has_room, self._wanted)):
            return
        for waiter in self._in_order():
            cluster = next((cluster for cluster in waiter.clusters if self._has_room(cluster)), None)
            if cluster is not None:
                self._go(waiter)
                waiter.place.hold(cluster)
                self._turns.went(waiter)
                self._pace.went(waiter.claim.tier, cluster, self._clock())

    def look_again(self) -> None:
        """Has everyone who waits decide again, since there are other clusters than when he did."""
        for waiter in sorted(self._waiters, key=lambda waiter: waiter.number):
            if not waiter.is_gone:
                self._go(waiter)

    def let_go(self) -> None:
        """Has everyone who is held decide again, since pressure has changed."""
        for waiter in sorted(self._waiters, key=lambda waiter: waiter.number):
            if waiter.held and not waiter.is_gone:
                self._go(waiter)

    def open_for_good(self) -> None:
        """Lets everyone through from now on."""
        self._open = True
        self.serve()
        self.let_go()

    def _in_order(self) -> Iterator[_Waiter]:
        """Who of those that wait for room comes first. This is the only place that asks for it."""
        waiting = [waiter for waiter in self._waiters if not waiter.held and not waiter.is_gone]
        return self._turns.in_order(waiting, self._clock())

    def _go(self, waiter: _Waiter) -> None:
        if not waiter.held:
            for cluster in waiter.clusters:
                self._wanted[cluster] -= 1
                if not self._wanted[cluster]:
                    del self._wanted[cluster]
        waiter.turn.set_result(None)

    def _has_room(self, cluster: str) -> bool:
        return self._open or self._credits.is_left(cluster)

    @property
    def is_open(self) -> bool:
        return self._open

    # --- for places ------------------------------------------------------------------------------------------------

    def is_free(self, cluster: str) -> bool:
        """For one who does not wait: whether there is room that nobody waits for."""
        return cluster not in self._wanted and self._has_room(cluster)

    @property
    def is_free_everywhere(self) -> bool:
        """Whether `is_free` says yes of every cluster; no may be wrong."""
        return not self._wanted and (self._open or self._credits.are_left_everywhere)

    def is_full(self, tier: QosTier) -> bool:
        """Tiers that are governed have bounds of their own, so that no worse one takes up a better one's."""
        if self._turns.rules is None:
            return len(self._waiters) >= self._rules.most_waiting
        return sum(waiter.claim.tier is tier for waiter in self._waiters) >= self._turns.rules.of(tier).most_waiting

    def would_wait_too_long(self, claim: Claim, clusters: tuple[str, ...]) -> bool:
        """Whether one who joined now would be refused in the end. Where too little is known he is let try."""
        pace = self._pace.per_second(claim.tier, clusters, self._clock())
        if pace is None:
            return False
        alike = (
            waiter.claim.tenant
            for waiter in self._waiters
            if waiter.claim.tier is claim.tier
            and not waiter.held
            and not waiter.is_gone
            and not set(clusters).isdisjoint(waiter.clusters)
        )
        ahead = ahead_of(claim.tenant, alike, fair=self._turns.rules is not None)
        return ahead > pace * self.longest_seconds(claim.tier)

    def longest_seconds(self, tier: QosTier) -> float:
        rules = self._turns.rules
        longest = self._rules.longest_seconds if rules is None else rules.of(tier).longest_wait_seconds
        return min(longest, self._max_wait)

    def now(self) -> float:
        return self._clock()

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def spend(self, cluster: str) -> Spent:
        return self._credits.spend(cluster)

    def refund(self, spent: Spent) -> None:
        self._credits.refund(spent)
        self.serve()

    def ended(self, outcome: str, seconds: float) -> None:
        self._observer.wait_ended(outcome, seconds)

    @contextmanager
    def joined(self, waiter: _Waiter) -> Iterator[None]:
        self._waiters.add(waiter)
        if not waiter.held:
            self._wanted.update(waiter.clusters)
            self._pace.joined(waiter.claim.tier, waiter.clusters)
        self._observer.waiting(len(self._waiters))
        try:
            yield
        finally:
            self._waiters.discard(waiter)
            if not waiter.turn.done():
                self._go(waiter)
            if not waiter.held:
                self._pace.left(waiter.claim.tier, waiter.clusters)
            self._observer.waiting(len(self._waiters))


class Place:
    """One request's place, as a context: what it holds at an error, or when its client has left, goes to the next."""

    __slots__ = ("_began", "_extended", "_line", "_number", "_refused", "_spent", "waited_seconds")

    def __init__(self, line: Line) -> None:
        self._line = line
        self._spent: Spent | None = None
        self._number = 0
        self._began = 0.0
        self._extended = False
        self._refused: Reason | None = None
        self.waited_seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.give_back()
        if self._number or self._refused is not None:
            self._line.ended("left" if kind is not None else self._refused or "went_on", self.waited_seconds)

    @property
    def patience_seconds(self) -> float:
        """For how long it has waited, as far as that has a say in what is decided: long enough where nobody shall."""
        return math.inf if self._line.is_open else self.waited_seconds

    @property
    def free(self) -> Free:
        """Where this request may go now."""
        return anywhere if self._line.is_free_everywhere else self.is_free

    def is_free(self, cluster: str) -> bool:
        """Whether this request may go there now."""
        return (self._spent is not None and self._spent.cluster == cluster) or self._line.is_free(cluster)

    def hold(self, cluster: str) -> None:
        """Holds a credit of this cluster, and of no other."""
        if self._spent is None or self._spent.cluster != cluster:
            spent, self._spent = self._spent, self._line.spend(cluster)
            if spent is not None:
                self._line.refund(spent)

    def give_back(self) -> None:
        """Holds no credit."""
        if self._spent is not None:
            spent, self._spent = self._spent, None
            self._line.refund(spent)

    async def wait(
        self, clusters: tuple[str, ...], extend: Extend, claim: Claim = ANYBODY, *, held_seconds: float = 0.0
    ) -> Reason | None:
        """Waits for a credit of any of these clusters, which it then holds, or for other clusters; with `held_seconds`
        for no credit, but for so long, or until pressure changes.

        Returns None when it is time to decide again; else why the request must be refused. One that waits once more
        keeps its turn, and what is left of its time.
        """
        self.give_back()
        if not self._number:
            if self._line.is_full(claim.tier):
                self._refused = Reason.QUEUE_FULL
                return self._refused
            if not held_seconds and self._line.would_wait_too_long(claim, clusters):
                self._refused = Reason.WOULD_WAIT_TOO_LONG
                return self._refused
            self._number, self._began = self._line.next_number(), self._line.now()
        waiter = _Waiter(self, self._number, self._began, claim, clusters, held=held_seconds > 0)
        held_until = self._line.now() + held_seconds if waiter.held else None
        try:
            with self._line.joined(waiter):
                done = await self._until_done(waiter, extend, held_until)
                self._refused = None if done else Reason.WAIT_TOO_LONG
        finally:
            self.waited_seconds = self._line.now() - self._began
        return self._refused

    async def _until_done(self, waiter: _Waiter, extend: Extend, held_until: float | None) -> bool:
        while not waiter.is_gone:
            now = self._line.now()
            waited = now - self._began
            left = self._line.longest_seconds(waiter.claim.tier) - waited
            if left <= 0:
                return False
            if held_until is not None and now >= held_until:
                return True
            if self._extended or waited < EXTEND_AFTER_SECONDS:
                pause = left if self._extended else min(left, EXTEND_AFTER_SECONDS - waited)
                pause = pause if held_until is None else min(pause, held_until - now)
                await asyncio.wait((waiter.turn,), timeout=pause)
            else:
                self._extended = True
                await extend(left + EXTENSION_MARGIN_SECONDS)
        return True
