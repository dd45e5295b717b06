"""The most recent decisions, in memory; the oldest give way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from headrace_protos.headrace.v1 import decision_pb2


class RecentDecisions:
    def __init__(self, capacity: int) -> None:
        self._recorded: deque[decision_pb2.RecordedDecision] = deque(maxlen=capacity)

    def __len__(self) -> int:
        return len(self._recorded)

    def add(self, recorded: decision_pb2.RecordedDecision) -> None:
        self._recorded.append(recorded)

    def newest(self, limit: int, *, model: str = "", pool: str = "") -> list[decision_pb2.RecordedDecision]:
        """At most `limit`, newest first, of this model and pool where they are named."""
        return list(islice(self._matching(model, pool), limit))

    def _matching(self, model: str, pool: str) -> Iterator[decision_pb2.RecordedDecision]:
        for recorded in reversed(self._recorded):
            if model and recorded.decision.model != model:
                continue
            if pool and recorded.decision.pool != pool:
                continue
            yield recorded
