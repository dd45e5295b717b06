"""Watches what the traffic consists of: which share of it needs the full tier, over a sliding window.

Counted are classified requests, answered or refused, to models that have quantized nodes; for any other model there is
nothing to choose. A request needs the full tier when its session is pinned to it, or when it is sensitive and its
session is not pinned to the quantized one. A neutral request only prefers the full tier and can spill, so it does not
count as needing it; but the pin that it leaves behind binds the later requests of its session, which then do.

No I/O, no logging; the clock is passed in.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from controlplane.fleet import Fleet
from controlplane.ledger.ended import Ended
from controlplane.model import FormatTier, Verdict
from controlplane.policy.settings import CompositionRules

# What happened within so many seconds leaves the window together.
SLOT_SECONDS = 5.0
# Scores of sensitive requests are kept in steps, so that a slot is bounded: verdicts times pins, and the steps.
SCORE_STEP = 10
HIGHEST_SCORE = 500

_VERDICTS = {str(verdict): verdict for verdict in Verdict}
_TIERS = {str(tier): tier for tier in FormatTier}


class _Kind(NamedTuple):
    """`score` is that of a sensitive request whose session binds it to no tier, rounded down to a step; else 0."""

    verdict: Verdict
    pinned: FormatTier | None
    score: int = 0


@dataclass(frozen=True, slots=True)
class Composition:
    """Requests of the last `window_seconds`, by verdict, and those that need the full tier.

    `pinned_to_full` are those among them that are not sensitive. `free_scores` tells of the sensitive ones that no pin
    binds how many have which score, in ascending steps of SCORE_STEP.
    """

    window_seconds: float
    sensitive: int = 0
    neutral: int = 0
    tolerant: int = 0
    needing_full: int = 0
    pinned_to_full: int = 0
    free_scores: tuple[tuple[int, int], ...] = ()

    @property
    def requests(self) -> int:
        return self.sensitive + self.neutral + self.tolerant

    @property
    def needing_full_share(self) -> float:
        return self.share(self.needing_full)

    def share(self, count: float) -> float:
        return count / self.requests if self.requests else 0.0


@dataclass(frozen=True, slots=True)
class Assessment:
    """`is_trouble` when too much needs the full tier; `changed` when that was not so at the assessment before."""

    composition: Composition
    is_trouble: bool
    changed: bool


class CompositionWatch:
    """`clock` gives seconds that never go back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._models: frozenset[str] = frozenset()
        self._slots: deque[tuple[float, Counter[_Kind]]] = deque()
        self._totals: Counter[_Kind] = Counter()
        self.last: Assessment | None = None

    def view_published(self, fleet: Fleet) -> None:
        self._models = frozenset(pool.model for pool in fleet.pools if pool.tier is FormatTier.QUANTIZED)

    def request_finished(self, ended: Ended) -> None:
        decision = ended.decision
        verdict = _VERDICTS.get(decision.verdict)
        if verdict is None or decision.model not in self._models:
            return
        pinned = _TIERS.get(decision.pinned)
        score = 0
        if verdict is Verdict.SENSITIVE and pinned is None:
            score = int(min(max(decision.score, 0.0), HIGHEST_SCORE)) // SCORE_STEP * SCORE_STEP
        kind = _Kind(verdict, pinned, score)
        start = self._clock() // SLOT_SECONDS * SLOT_SECONDS
        if not self._slots or self._slots[-1][0] != start:
            self._slots.append((start, Counter()))
        self._slots[-1][1][kind] += 1
        self._totals[kind] += 1

    def assess(self, rules: CompositionRules) -> Assessment:
        """How it stands now. Trouble begins above one share and ends below a smaller one, so that it does not flap."""
        self._let_go(self._clock() - rules.window_seconds)
        composition = _composition(self._totals, rules.window_seconds)
        was_trouble = self.last is not None and self.last.is_trouble
        if was_trouble:
            is_trouble = (
                composition.requests * 2 >= rules.minimum_requests
                and composition.needing_full_share >= rules.clear_below
            )
        else:
            is_trouble = (
                composition.requests >= rules.minimum_requests
                and composition.needing_full_share > rules.needs_full_above
            )
        self.last = Assessment(composition, is_trouble, is_trouble is not was_trouble)
        return self.last

    def _let_go(self, before: float) -> None:
        while self._slots and self._slots[0][0] + SLOT_SECONDS <= before:
            _, counts = self._slots.popleft()
            self._totals.subtract(counts)
        self._totals = +self._totals  # without the kinds that are gone


def _composition(totals: Counter[_Kind], window_seconds: float) -> Composition:
    verdicts: Counter[Verdict] = Counter()
    scores: Counter[int] = Counter()
    sensitive = pinned = 0
    for kind, count in totals.items():
        verdicts[kind.verdict] += count
        if kind.verdict is Verdict.SENSITIVE:
            if kind.pinned is not FormatTier.QUANTIZED:
                sensitive += count
            if kind.pinned is None:
                scores[kind.score] += count
        elif kind.pinned is FormatTier.FULL:
            pinned += count
    return Composition(
        window_seconds=window_seconds,
        sensitive=verdicts[Verdict.SENSITIVE],
        neutral=verdicts[Verdict.NEUTRAL],
        tolerant=verdicts[Verdict.TOLERANT],
        needing_full=sensitive + pinned,
        pinned_to_full=pinned,
        free_scores=tuple(sorted(scores.items())),
    )
