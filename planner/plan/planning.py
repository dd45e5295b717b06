"""Plans a fleet: searches, takes the simplest one that is about the cheapest, and computes what it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from controlplane.errors import HeadraceError
from controlplane.model import FormatTier
from planner.hardware.engine import EngineModel
from planner.plan import baselines
from planner.plan.fleet import PlannedFleet
from planner.plan.parts import Part, by_verdict, whole
from planner.plan.search import Asked, Search
from planner.plan.trial import Trials
from planner.workload.workload import Workload

# A fleet of more pools has to be cheaper by this share: each further pool is one more thing to run, and estimates are
# not as exact as that.
WORTHWHILE = 0.02
# Fleets of each kind that are tried in the simulator.
RIVALS = 3


class NoFleetError(HeadraceError):
    """No engine that can be chosen from serves the workload within the targets."""


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """What the closed form says of two classes that part at `bound`."""

    bound: int
    alpha: float
    rho: float
    saving: float


@dataclass(frozen=True, slots=True)
class Plan:
    """`fleet` is the one to take, `others` are the further ones that were found, the cheapest first. `honest` and
    `papers` are single pools, None where none meets the targets. `by_bound` are the cheapest fleets of two classes for
    each bound, all on full engines. The instances of all but these are as formulas say, or as tried if `is_tried`."""

    asked: Asked
    fleet: PlannedFleet
    others: tuple[PlannedFleet, ...]
    honest: PlannedFleet | None
    papers: PlannedFleet | None
    by_bound: tuple[tuple[int, PlannedFleet], ...]
    closed_form: ClosedForm | None
    is_tried: bool = False

    def saving(self, baseline: PlannedFleet | None) -> float | None:
        """The share of the baseline's cost that the fleet saves; None without one."""
        if baseline is None:
            return None
        kwh = self.asked.dollars_per_kwh
        return 1 - self.fleet.cost(kwh) / baseline.cost(kwh)


@dataclass(frozen=True, slots=True)
class Planner:
    """`tolerant` is the share of the requests that quantized engines may serve; None is what verdicts tell, and nothing
    where there are none."""

    asked: Asked
    workload: Workload
    classes: int
    tolerant: float | None = None

    def searches(self) -> Sequence[Search]:
        """Each fills as it is asked."""
        found = [Search(self.asked, whole(self.workload))]
        parts = by_verdict(self.workload, self.tolerant)
        if any(part.tier is FormatTier.QUANTIZED for part in parts) and self.asked.engines.get(FormatTier.QUANTIZED):
            found.append(Search(self.asked, parts))
        return found

    def plan(self, told: Callable[[int, int], None] = lambda done, of: None) -> Plan:
        """`told` hears how many classes of contexts were looked at, of how many. Raises NoFleetError."""
        searches = self.searches()
        steps, done = sum(search.classes for search in searches), 0

        def step() -> None:
            nonlocal done
            done += 1
            told(done, steps)

        for search in searches:
            search.told = step
        found = [
            fleet
            for search in searches
            for classes in range(1, self.classes + 1)
            if (fleet := search.best(classes)) is not None
        ]
        if not found:
            raise NoFleetError(self._why_none(searches[0].parts[0]))
        kwh = self.asked.dollars_per_kwh
        fleet = simplest(found, kwh)
        by_bound = tuple(searches[0].two_classes())
        everything = searches[0].parts[0]
        return Plan(
            asked=self.asked,
            fleet=fleet,
            others=tuple(sorted((each for each in found if each != fleet), key=lambda each: each.cost(kwh))),
            honest=searches[0].best(1),
            papers=baselines.of_papers(self.asked, everything),
            by_bound=by_bound,
            closed_form=_closed_form(by_bound, kwh),
        )

    def tried(self, plan: Plan, trials: Trials, told: Callable[[int, int], None] = lambda done, of: None) -> Plan:
        """The plan by what the simulator finds of the best few fleets, each with engines of several sizes: where
        requests come in bursts, few large instances may do with fewer GPUs than formulas say. The best fleets of two
        classes are among them though formulas may prefer one. Raises NoFleetError."""
        searches = self.searches()
        full, widest = searches[0], searches[-1]
        classes = len(plan.fleet.bounds) + 1
        alone = list(self._rivals(full, 1)[:RIVALS])
        shaped = [] if classes == 1 and widest is full else list(self._rivals(widest, classes)[:RIVALS])
        if classes == 1 < self.classes:
            shaped += self._rivals(widest, 2)[:RIVALS]
        of_papers = [plan.papers] if plan.papers is not None else []
        fits: list[PlannedFleet | None] = []
        for number, fleet in enumerate((*alone, *shaped, *of_papers)):
            fits.append(trials.fit(fleet))
            told(number + 1, len(alone) + len(shaped) + len(of_papers))
        kwh = self.asked.dollars_per_kwh
        singles = sorted((fit for fit in fits[: len(alone)] if fit is not None), key=lambda fit: fit.cost(kwh))
        several = [fit for fit in fits[len(alone) : len(alone) + len(shaped)] if fit is not None]
        if not singles and not several:
            raise NoFleetError(
                "no fleet that formulas found meets the targets when it is simulated; allow longer times"
            )
        fleet = simplest([*singles, *several], kwh)
        return replace(
            plan,
            fleet=fleet,
            others=tuple(
                sorted((each for each in (*singles, *several) if each != fleet), key=lambda each: each.cost(kwh))
            ),
            honest=singles[0] if singles else None,
            papers=fits[-1] if of_papers else None,
            is_tried=True,
        )

    def _rivals(self, search: Search, classes: int) -> Sequence[PlannedFleet]:
        """The cheapest fleet of so many classes of all engines, then of those of 2 GPUs and more, and so on, the
        cheapest first; those of equal engines once."""
        sizes = sorted({engine.gpus for engines in self.asked.engines.values() for engine in engines})
        found: dict[tuple[str, ...], PlannedFleet] = {}
        for size in sizes:
            engines = {
                tier: [engine for engine in engines if engine.gpus >= size]
                for tier, engines in self.asked.engines.items()
            }
            fleet = Search(replace(self.asked, engines=engines), search.parts).best(classes)
            if fleet is not None:
                found.setdefault(tuple(pool.size.engine.name for pool in fleet.pools), fleet)
        return sorted(found.values(), key=lambda fleet: fleet.cost(self.asked.dollars_per_kwh))

    def _why_none(self, everything: Part) -> str:
        engines: Sequence[EngineModel] = self.asked.engines[FormatTier.FULL]
        longest = max(int(everything.budgets[-1]), self.asked.context)
        largest = max((min(each.kv_tokens, each.max_context) for each in engines), default=0)
        if largest < longest:
            return (
                f"contexts of {longest} tokens are asked for, and the engines to choose from hold {largest} at most; "
                "offer more GPUs for each instance, larger ones, or fewer bits"
            )
        return (
            "no engine to choose from meets the targets even with one sequence; allow longer times (--ttft, --tpot), "
            "or offer faster GPUs (--gpu, --gpus)"
        )


def simplest(fleets: Sequence[PlannedFleet], dollars_per_kwh: float) -> PlannedFleet:
    """The one of fewest pools, unless one of more is cheaper by enough."""
    chosen, *further = sorted(fleets, key=lambda each: (len(each.pools), each.cost(dollars_per_kwh)))
    for fleet in further:
        if fleet.cost(dollars_per_kwh) < (1 - WORTHWHILE) * chosen.cost(dollars_per_kwh):
            chosen = fleet
    return chosen


def _closed_form(by_bound: Sequence[tuple[int, PlannedFleet]], dollars_per_kwh: float) -> ClosedForm | None:
    """Of the cheapest two classes."""
    if not by_bound:
        return None
    bound, fleet = min(by_bound, key=lambda each: each[1].cost(dollars_per_kwh))
    return ClosedForm(bound, *baselines.closed_form(fleet))
