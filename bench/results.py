"""What was measured, read back: medians over the steady rounds; two contestants are compared within each round."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from environments import CACHE
from loading import QUANTILES, Measured
from pydantic import TypeAdapter
from rounds import Round, disturbed, steady
from scenarios import SCENARIOS, Scenario

FOLDER = CACHE / "results"

Times = Literal["whole", "first", "gaps"]


@dataclass(frozen=True, slots=True)
class Result:
    """The rounds of one scenario, and where and when they were."""

    scenario: Scenario
    machine: str
    day: str
    all_rounds: tuple[Round, ...]

    @property
    def rounds(self) -> Sequence[Round]:
        return steady(self.all_rounds)

    @property
    def note(self) -> str:
        """What is to be known of the rounds."""
        words = f"{len(self.rounds)} rounds"
        if unsteady := len(self.all_rounds) - len(self.rounds):
            words += f", {unsteady} more left out since the machine was slower or faster in them"
        if busy := disturbed(self.rounds):
            words += f"; in {busy} turns other programs were at work all the same"
        return words

    @property
    def contestants(self) -> list[str]:
        return sorted({each.contestant for round_ in self.rounds for each in round_.measured})

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


def at(measured: Measured, times: Times, quantile: float) -> float:
    values: tuple[float, ...] = getattr(measured, times)
    return values[QUANTILES.index(quantile)] if values else float("nan")


def keep(result: Result) -> None:
    """In place of what was kept of the scenario before."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / _file(result.scenario)).write_bytes(_FORM.dump_json(result))


def kept() -> Mapping[str, Result]:
    """The last result of each scenario that has one, by its name."""
    files = {scenario.name: FOLDER / _file(scenario) for scenario in SCENARIOS}
    return {name: _FORM.validate_json(file.read_bytes()) for name, file in files.items() if file.exists()}


def _file(scenario: Scenario) -> str:
    return re.sub(r"[^a-z0-9]+", "-", scenario.name.lower()) + ".json"


_FORM = TypeAdapter(Result)
