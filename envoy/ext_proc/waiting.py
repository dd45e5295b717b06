"""Where requests wait for room, in order. Knows neither requests nor decisions: only who waits for which clusters.

Each request has a place, which holds the credit that it is sent with. One that finds none waits in the line; a credit
that comes in goes to the first of the line who waits for that cluster, before he has decided again. So nobody overtakes
another one who waits for the same cluster, and nobody holds up those who wait for another.

When nothing limits a cluster any more, as when no control plane is heard, all who wait for it go on, in order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from controlplane.model import Reason
from controlplane.policy.settings import WaitingRules
from ext_proc.credits import Credits, Spent

Extend = Callable[[float], Awaitable[None]]
"""Tells Envoy that the answer may take so many seconds more, where it would give up before."""

# Envoy gives up an answer after 4 s (message_timeout) unless it is told, once, that it takes longer. Until it is told
# it can send the request to another worker if this one dies, so that is put off.
EXTEND_AFTER_SECONDS = 2.5
EXTENSION_MARGIN_SECONDS = 2.0


class Observer(Protocol):
    """Told of those who wait, for metrics. `outcome` is `went_on`, `left` or the reason of a refusal."""

    def waiting(self, count: int) -> None: ...

    def wait_ended(self, outcome: str, seconds: float) -> None: ...


@dataclass(slots=True, eq=False)
class _Waiter:
    """`turn` is done when he may decide again; with a credit, which his place then holds, or to look at a new table."""

    place: Place
    number: int
    clusters: tuple[str, ...]
    turn: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Line:
    """`clock` gives monotonic seconds; nobody waits for longer than `max_wait`, whatever the rules say."""

    def __init__(self, credits_: Credits, observer: Observer, clock: Callable[[], float], *, max_wait: float) -> None:
        self._credits = credits_
        self._observer = observer
        self._clock = clock
        self._max_wait = max_wait
        self._rules = WaitingRules()
        self._waiters: set[_Waiter] = set()
        self._wanted: Counter[str] = Counter()
        self._numbers = 0
        self._open = False

    def __len__(self) -> int:
        return len(self._waiters)

    def configure(self, rules: WaitingRules) -> None:
        self._rules = rules

    def place(self) -> Place:
        return Place(self)

    def serve(self) -> None:
        """Hands out what there is to those who wait; to be called whenever there may be more than before."""
        for waiter in self._in_order():
            if waiter.turn.done():
                continue
            cluster = next((cluster for cluster in waiter.clusters if self._has_room(cluster)), None)
            if cluster is not None:
                waiter.place.hold(cluster)
                self._go(waiter)

    def look_again(self) -> None:
        """Has everyone who waits decide again, since there are other clusters than when he did."""
        for waiter in self._in_order():
            if not waiter.turn.done():
                self._go(waiter)

    def open_for_good(self) -> None:
        """Lets everyone through from now on."""
        self._open = True
        self.serve()

    def _in_order(self) -> list[_Waiter]:
        """Who comes first. This is the only place that says so."""
        return sorted(self._waiters, key=lambda waiter: waiter.number)

    def _go(self, waiter: _Waiter) -> None:
        for cluster in waiter.clusters:
            self._wanted[cluster] -= 1
            if not self._wanted[cluster]:
                del self._wanted[cluster]
        waiter.turn.set_result(None)

    def _has_room(self, cluster: str) -> bool:
        return self._open or self._credits.left(cluster) >= 1

    # --- for places ------------------------------------------------------------------------------------------------

    def is_free(self, cluster: str) -> bool:
        """For one who does not wait: whether there is room that nobody waits for."""
        return self._has_room(cluster) and not self._wanted[cluster]

    @property
    def is_full(self) -> bool:
        return len(self._waiters) >= self._rules.most_waiting

    @property
    def longest_seconds(self) -> float:
        return min(self._rules.longest_seconds, self._max_wait)

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
        self._wanted.update(waiter.clusters)
        self._observer.waiting(len(self._waiters))
        try:
            yield
        finally:
            self._waiters.discard(waiter)
            if not waiter.turn.done():
                self._go(waiter)
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

    async def wait(self, clusters: tuple[str, ...], extend: Extend) -> Reason | None:
        """Waits for a credit of any of these clusters, which it then holds, or for other clusters.

        Returns None when it is time to decide again; else why the request must be refused. One that waits once more
        keeps its turn, and what is left of its time.
        """
        self.give_back()
        if not self._number:
            if self._line.is_full:
                self._refused = Reason.QUEUE_FULL
                return self._refused
            self._number, self._began = self._line.next_number(), self._line.now()
        waiter = _Waiter(self, self._number, clusters)
        try:
            with self._line.joined(waiter):
                self._refused = None if await self._until_done(waiter.turn, extend) else Reason.WAIT_TOO_LONG
        finally:
            self.waited_seconds = self._line.now() - self._began
        return self._refused

    async def _until_done(self, turn: asyncio.Future[None], extend: Extend) -> bool:
        while not turn.done():
            waited = self._line.now() - self._began
            left = self._line.longest_seconds - waited
            if left <= 0:
                return False
            if self._extended or waited < EXTEND_AFTER_SECONDS:
                pause = left if self._extended else min(left, EXTEND_AFTER_SECONDS - waited)
                await asyncio.wait((turn,), timeout=pause)
            else:
                self._extended = True
                await extend(left + EXTENSION_MARGIN_SECONDS)
        return True
