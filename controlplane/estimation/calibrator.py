"""Learns from the access log, and keeps the calibrations that routing tables carry up to date.

They are told anew only when they have moved by more than a little, and not more often than every few seconds: each
change goes to all filters.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container, Mapping
from types import MappingProxyType

from controlplane.calibration_messages import calibrations as read_calibrations
from controlplane.estimation.lessons import Lesson, Tally, observation_of, taught_nothing
from controlplane.estimation.replicas import Replicas
from controlplane.features import Category
from controlplane.latest import Latest
from controlplane.learning.calibration import calibrate, has_moved
from controlplane.learning.sampling import Sampling
from controlplane.learning.statistics import Statistics, fold
from controlplane.ledger.encoding import message_of
from controlplane.ledger.ended import Ended
from controlplane.policy.estimator import Calibration, Calibrations, in_force
from controlplane.policy.settings import EstimationRules, Policy

LOOK_SECONDS = 1.0
TELL_SECONDS = 2.0
# Of one processor, for each model.
MOST_SHARE = 0.05
# What has not changed is calibrated anew so often, since what is old weighs less and less.
UNCHANGED_SECONDS = 300.0

OfModel = Mapping[Category, Calibration]
_NOTHING: OfModel = MappingProxyType({})


class Calibrator:
    """`policy` gives the one in force, `served` the models of the fleet. `on_lesson` is told of each answered request
    what it taught and whether it was streamed. `clock` gives Unix seconds."""

    def __init__(
        self,
        replicas: Replicas,
        policy: Callable[[], Policy],
        served: Callable[[], Container[str]],
        on_lesson: Callable[[Lesson, bool], None],
        clock: Callable[[], float],
    ) -> None:
        self._replicas = replicas
        self._policy = policy
        self._served = served
        self._on_lesson = on_lesson
        self._clock = clock
        self.tally = Tally()
        self.told = Latest[Calibrations](Calibrations())
        """What filters are to estimate by, but for priors, which are the policy's."""
        self.merged: dict[str, Statistics] = {}
        """The statistics of all control planes by model, as of the last calibration."""
        self._sampling = Sampling()
        self._learned: dict[str, OfModel] = {}
        self._seen: dict[str, tuple[int, EstimationRules]] = {}
        self._next: dict[str, float] = {}
        self._told_at = -TELL_SECONDS

    def learn(self, ended: Ended) -> None:
        """From one entry of the access log."""
        decision = ended.decision
        if not decision.pool:  # no engine was asked
            return
        lesson = taught_nothing(ended, self._served()) or self._learn(ended)
        streamed = decision.stream
        self.tally.count(lesson, streamed=streamed)
        self._on_lesson(lesson, streamed)

    def _learn(self, ended: Ended) -> Lesson:
        decision, now = ended.decision, self._clock()
        stands_for = self._sampling.take(decision.model, decision.category, decision.tenant, now)
        if not stands_for:
            return Lesson.NOT_NEEDED
        policy = self._policy()
        was_plausible = fold(
            self._replicas.own_of(decision.model),
            observation_of(message_of(ended)),
            in_force(self.told.value, policy.estimation),
            policy.estimation,
            thresholds=[bound.max_context for bound in policy.context_classes if bound.max_context is not None],
            now=now,
            stands_for=stands_for,
        )
        return Lesson.LEARNED if was_plausible else Lesson.IMPLAUSIBLE

    async def run(self) -> None:
        """Calibrates for as long as it runs."""
        while True:
            for model in self._replicas.models:
                await self._calibrate_if_due(model)
            self._tell()
            await asyncio.sleep(LOOK_SECONDS)

    async def _calibrate_if_due(self, model: str) -> None:
        rules = self._policy().estimation
        seen, now = (self._replicas.changes[model], rules), time.monotonic()
        due = self._next.get(model, 0.0)
        if now < due or (seen == self._seen.get(model) and now < due + UNCHANGED_SECONDS):
            return
        merged = self._replicas.merged(model)
        # Kept off the event loop: it takes up to some 0.1 s.
        found = await asyncio.to_thread(calibrate, merged, rules)
        self.merged[model] = merged
        self._learned[model] = {category: each for (_, category), each in found.learned.items() if each.samples}
        self._seen[model] = seen
        after = time.monotonic()
        self._next[model] = after + max(LOOK_SECONDS, (after - now) / MOST_SHARE)

    def _tell(self) -> None:
        """What is pinned stays as it was pinned, whatever is learned."""
        if time.monotonic() < self._told_at + TELL_SECONDS:
            return
        told = self.told.value
        pinned = self._pinned()
        now: dict[tuple[str, Category], Calibration] = {}
        for model in {*self._learned, *pinned}:
            for category, calibration in pinned.get(model, self._learned.get(model, _NOTHING)).items():
                before = told.learned.get((model, category))
                moved = before is None or (calibration != before if model in pinned else has_moved(before, calibration))
                now[model, category] = calibration if before is None or moved else before
        if now != told.learned or pinned.keys() != told.pinned:
            self._told_at = time.monotonic()
            self.told.put(Calibrations(MappingProxyType(now), pinned=frozenset(pinned)))

    def _pinned(self) -> dict[str, OfModel]:
        pinned: dict[str, OfModel] = {}
        for model, control in self._replicas.controls.items():
            if control.HasField("pinned_at"):
                try:
                    kept = read_calibrations(control.pinned, self._policy().estimation).learned
                except ValueError:  # written by a version that estimates otherwise
                    kept = {}
                pinned[model] = {category: each for (_, category), each in kept.items()}
        return pinned
