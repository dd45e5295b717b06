"""Which bounds between context classes would serve each model's requests with fewer engines, and how the engines had
better be divided among the classes, as time goes by.

Takes what requests needed in all and what the fleet's engines hold, and remembers what it thought before, so that a
suggestion neither flaps nor comes of a few requests. Changes nothing: a bound is of use only when engines are set up
by it, with a smaller context and more sequences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from controlplane.fleet import Fleet
from controlplane.learning.division import counted, divided
from controlplane.learning.histogram import Histogram
from controlplane.learning.statistics import Statistics
from controlplane.learning.thresholds import EngineShape, Suggestion, needs, saving, suggest
from controlplane.policy.settings import Policy

EVALUATION_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SuggestedBounds:
    """Of one model, in tokens, the last class's left out. `saving` is the share of the capacity that the suggested
    bounds save against one class of the largest context, `saving_in_force` what those in force do: upper bounds, as
    queueing and whole numbers of engines are not in them. `requests` is the weight of what it rests on.

    `engines` are ready now, by the classes in force; `suggested_engines`, by the suggested ones, would serve what the
    former do if all were busy alike."""

    model: str
    in_force: tuple[int, ...]
    suggested: tuple[int, ...]
    saving: float
    saving_in_force: float
    requests: float
    engines: tuple[int, ...] = ()
    suggested_engines: tuple[int, ...] = ()

    @property
    def is_better(self) -> bool:
        return self.suggested != self.in_force

    @property
    def saving_left(self) -> float:
        """The share of the engines of today that the suggested bounds would save further, at most."""
        return max(0.0, 1 - (1 - self.saving) / (1 - self.saving_in_force)) if self.saving_in_force < 1 else 0.0


class ThresholdWatch:
    """`current` is ordered by model: those with requests, and with engines whose KV cache is known."""

    def __init__(self) -> None:
        self._suggestions: dict[str, tuple[tuple[int, ...], Suggestion]] = {}
        self._divisions: dict[str, tuple[int, ...]] = {}
        self._evaluated_at: float | None = None
        self.current: tuple[SuggestedBounds, ...] = ()

    def is_due(self, now: float) -> bool:
        """Whether it is time to evaluate: once a minute, and anew as soon as there is something where nothing was."""
        return self._evaluated_at is None or now - self._evaluated_at >= EVALUATION_SECONDS

    def observe(self, totals: Mapping[str, Histogram], fleet: Fleet, policy: Policy, now: float) -> None:
        """Evaluates. `totals` hold the tokens that requests needed in all, by model; `now` is in seconds that never go
        back."""
        before, self._suggestions = self._suggestions, {}
        divisions, self._divisions = self._divisions, {}
        found = []
        for model, needed in sorted(totals.items()):
            contexts = [m.model.max_context for m in fleet.members if m.model.id == model]
            shape = engine_shape(fleet, model)
            if shape is None or needed.total <= 0:
                continue
            limit = max(contexts)
            in_force = bounds_in_force(policy, limit)
            known = before.get(model)
            # Other bounds than before: whoever set them has decided anew.
            last = known[1] if known is not None and known[0] == in_force else Suggestion(in_force)
            suggestion = suggest(last, needed, limit, shape, policy.thresholds)
            self._suggestions[model] = in_force, suggestion
            ready = [m.model.max_context for m in fleet.members if m.model.id == model and m.ready]
            saved = saving(needed, in_force, limit, shape)
            one_for_each = len(ready) / (1 - saved) if saved < 1 else 0.0
            wanted = [one_for_each * need for need in needs(needed, suggestion.bounds, limit, shape)]
            if ready and needed.total >= policy.thresholds.minimum_samples:
                self._divisions[model] = divided(wanted, divisions.get(model, ()))
            found.append(
                SuggestedBounds(
                    model=model,
                    in_force=in_force,
                    suggested=suggestion.bounds,
                    saving=suggestion.saving,
                    saving_in_force=saved,
                    requests=needed.total,
                    engines=counted(ready, in_force),
                    suggested_engines=self._divisions.get(model, ()),
                )
            )
        self.current = tuple(found)
        self._evaluated_at = now if found else None


def totals_by_model(statistics: Statistics) -> Mapping[str, Histogram]:
    """The tokens that requests needed in all, of all categories together."""
    found: dict[str, Histogram] = {}
    for model, of_model in statistics.models.items():
        for sums in of_model.categories.values():
            found.setdefault(model, Histogram()).merge(sums.accuracy.totals)
    return found


def bounds_in_force(policy: Policy, limit: int) -> tuple[int, ...]:
    """Those of the context classes that part the contexts up to `limit`."""
    bounds = [entry.max_context for entry in policy.context_classes]
    return tuple(bound for bound in bounds if bound is not None and bound < limit)


def engine_shape(fleet: Fleet, model: str) -> EngineShape | None:
    """A typical engine of the model: the median of the KV caches that are known, and the most sequences that any is
    set up for. None when no engine tells its KV cache."""
    served = [m.model for m in fleet.members if m.model.id == model]
    caches = [each.kv_cache_tokens for each in served if each.kv_cache_tokens > 0]
    if not caches:
        return None
    return EngineShape(kv_cache_tokens=int(median(caches)), max_sequences=max(each.max_sequences for each in served))
