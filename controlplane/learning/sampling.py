"""Which of the requests that could be learned from are: all of them as long as they are few, else a sample.

Statistics do not get better by the thousandth like sample of a second. Of each model, category and tenant group the
first `BURST` are taken at once, and from then on `PER_SECOND`, saved up to as many again. So nobody's requests take the
place of another group's, and a group that is sampled still has far more samples than `tenant_weight` lets count, so
that its voice among the others is as loud as if all had been taken. Pure; the time is passed in.
"""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.features import Category
from controlplane.policy.estimator import group_of

PER_SECOND = 2.0
BURST = 500.0

_CATEGORIES = frozenset(Category)


@dataclass(slots=True)
class _Kind:
    """`left` may be taken at `at`; `passed_over` have not been since the last one that was."""

    left: float
    at: float
    passed_over: int = 0


class Sampling:
    """Of one replica. `model` is one of the fleet's, so that kinds are few whatever is sent."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str, int], _Kind] = {}

    def take(self, model: str, category: str, tenant: str, now: float) -> int:
        """How many requests of the kind this one stands for, itself and those passed over before it; 0 when it is
        passed over. `now` in Unix seconds."""
        key = (model, category if category in _CATEGORIES else "", group_of(tenant))
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(BURST, now)
        kind.left = min(BURST, kind.left + PER_SECOND * max(now - kind.at, 0.0))
        kind.at = now
        if kind.left < 1.0:
            kind.passed_over += 1
            return 0
        kind.left -= 1.0
        stands_for, kind.passed_over = kind.passed_over + 1, 0
        return stands_for
