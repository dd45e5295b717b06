"""What was measured, kept and read back: medians over steady rounds; two contestants are compared within each round.

A scenario may be measured in several goes, each of some contestants. What a later go did not measure is told of an
earlier one; numbers of two goes are never compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from loading import QUANTILES, Measured
from pydantic import TypeAdapter
from rounds import Round, disturbed, steady
from scenarios import SCENARIOS, Scenario

FOLDER = Path(__file__).with_name("measured")

Times = Literal["whole", "first", "gaps"]


@dataclass(frozen=True, slots=True)
class Go:
    """When a measurement of one or more scenarios began, as YYYY-MM-DD HH:MM in UTC, and of what: the machine, and the
    commit of Headrace."""

    began: str
    commit: str
    machine: str


@dataclass(frozen=True, slots=True)
class Run:
    """The rounds of one scenario in one go."""

    scenario: Scenario
    go: Go
    all_rounds: tuple[Round, ...]

    @property
    def rounds(self) -> Sequence[Round]:
        return steady(self.all_rounds)

    @property
    def note(self) -> str:
        """What is to be known of the rounds."""
        words = f"{len(self.rounds)} rounds of {self.scenario.seconds:g} s"
        if unsteady := len(self.all_rounds) - len(self.rounds):
            words += f", {unsteady} more left out since the machine was slower or faster in them"
        if busy := disturbed(self.rounds):
            words += f"; in {busy} turns other programs were at work all the same"
        return words

    @property
    def contestants(self) -> frozenset[str]:
        return frozenset(each.contestant for round_ in self.rounds for each in round_.measured)

    def median(self, contestant: str, of: Callable[[Measured], float]) -> float | None:
        values = [of(each) for round_ in self.rounds for each in round_.measured if each.contestant == contestant]
        return statistics.median(values) if values else None

    def compared(self, contestant: str, other: str, of: Callable[[Measured, Measured], float]) -> float | None:
        """The median over the rounds of what `of` says of the two."""
        values = []
        for round_ in self.rounds:
            found = {each.contestant: each for each in round_.measured}
            if contestant in found and other in found:
                values.append(of(found[contestant], found[other]))
        return statistics.median(values) if values else None

    def rate(self, contestant: str) -> float | None:
        return self.median(contestant, lambda measured: measured.per_second)

    def ratio(self, contestant: str, other: str) -> float | None:
        return self.compared(contestant, other, lambda one, two: one.per_second / max(two.per_second, 1e-9))

    def added(self, contestant: str, other: str, times: Times, quantile: float) -> float | None:
        """Milliseconds."""
        return self.compared(contestant, other, lambda one, two: at(one, times, quantile) - at(two, times, quantile))

    def time(self, contestant: str, times: Times, quantile: float) -> float | None:
        """Milliseconds."""
        return self.median(contestant, lambda measured: at(measured, times, quantile))

    def failed(self, contestant: str) -> int:
        return sum(each.failed for round_ in self.rounds for each in round_.measured if each.contestant == contestant)

    def roles(self, contestant: str) -> list[str]:
        """What the contestant's processes do."""
        found = [each for round_ in self.rounds for each in round_.measured if each.contestant == contestant]
        return [role for role in found[0].cpu if role != "engines"] if found else []


@dataclass(frozen=True, slots=True)
class Result:
    """The runs of one scenario that still say something, the last one first; at least one."""

    runs: tuple[Run, ...]

    @property
    def scenario(self) -> Scenario:
        return self.runs[0].scenario

    @property
    def contestants(self) -> frozenset[str]:
        return frozenset[str]().union(*(run.contestants for run in self.runs))

    def run_of(self, *contestants: str) -> Run | None:
        """The last in which all these took part."""
        return next((run for run in self.runs if run.contestants.issuperset(contestants)), None)

    def followed_by(self, run: Run) -> Result:
        """Without those in which nobody took part that was not measured again."""
        return Result((run, *(each for each in self.runs if not run.contestants.issuperset(each.contestants))))


def at(measured: Measured, times: Times, quantile: float) -> float:
    values: tuple[float, ...] = getattr(measured, times)
    return values[QUANTILES.index(quantile)] if values else float("nan")


def keep(run: Run, folder: Path = FOLDER) -> bool:
    """Beside what was kept of the scenario before, or in its place; False, and not kept, if no round was steady."""
    if not run.rounds:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    before = _read(run.scenario, folder)
    result = before.followed_by(run) if before else Result((run,))
    _file(run.scenario, folder).write_bytes(_FORM.dump_json(result) + b"\n")
    return True


def kept(folder: Path = FOLDER) -> Mapping[str, Result]:
    """The result of each scenario that has one, by its name."""
    return {scenario.name: found for scenario in SCENARIOS if (found := _read(scenario, folder))}


def _read(scenario: Scenario, folder: Path) -> Result | None:
    file = _file(scenario, folder)
    return _FORM.validate_json(file.read_bytes()) if file.exists() else None


def _file(scenario: Scenario, folder: Path) -> Path:
    return folder / f"{scenario.key}.json"


_FORM = TypeAdapter(Result)
