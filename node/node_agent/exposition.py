"""Reading the few samples that matter out of an engine's Prometheus metrics."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from prometheus_client.parser import text_string_to_metric_families

# What Prometheus' clients tell of the process that they run in.
PROCESS_START = "process_start_time_seconds"


class Samples:
    """Samples by name. An engine with several replicas or models has one sample for each of them under one name."""

    def __init__(self, samples: Mapping[str, Sequence[tuple[Mapping[str, str], float]]]) -> None:
        self._samples = samples

    def total(self, *names: str) -> float | None:
        """The sum under the first of `names` that the engine has."""
        values = self._values(names)
        return sum(values) if values else None

    def mean(self, *names: str) -> float | None:
        values = self._values(names)
        return sum(values) / len(values) if values else None

    def per_rank(self, name: str, rank: str) -> tuple[float, ...]:
        """One value for each value of the label `rank`, the greatest where other ranks report it once more."""
        greatest: dict[str, float] = {}
        for labels, value in self._samples.get(name, ()):
            if math.isfinite(value):
                key = labels.get(rank, "")
                greatest[key] = max(value, greatest.get(key, value))
        return tuple(greatest.values())

    def labels(self, name: str) -> tuple[Mapping[str, str], ...]:
        return tuple(labels for labels, _ in self._samples.get(name, ()))

    def _values(self, names: Sequence[str]) -> list[float]:
        for name in names:
            values = [value for _, value in self._samples.get(name, ()) if math.isfinite(value)]
            if values:
                return values
        return []


def process_start(samples: Samples) -> str:
    """When the engine's process started, which tells its runs apart; empty when it does not say.

    vLLM and SGLang load their weights once, when they start.
    """
    started = samples.total(PROCESS_START)
    return "" if started is None else f"started {started:.3f}"


def read_samples(text: str, names: Sequence[str]) -> Samples:
    """The samples called `names`. Lines of other metrics are not parsed: an engine has thousands of buckets.

    Text that is no exposition gives no samples.
    """
    wanted = tuple(names)
    lines = (line for line in text.splitlines() if line.startswith(wanted))
    found: dict[str, list[tuple[Mapping[str, str], float]]] = defaultdict(list)
    try:
        for family in text_string_to_metric_families("\n".join(lines) + "\n"):
            for sample in family.samples:
                found[sample.name].append((sample.labels, sample.value))
    except (ValueError, IndexError, KeyError):
        return Samples({})
    return Samples(found)


class Rates:
    """What counters did between one look and the next."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: dict[str, tuple[float, float]] = {}

    def per_second(self, name: str, value: float | None) -> float | None:
        """None at the first look, and after the counter went back, as it does when an engine restarts."""
        seconds, grown = self._grown(name, value)
        return grown / seconds if grown is not None and seconds > 0 else None

    def mean(self, name: str, total: float | None, count: float | None) -> float | None:
        """The mean of what was observed in between by a histogram's sum and count; None when nothing was."""
        _, more = self._grown(f"{name} sum", total)
        _, times = self._grown(f"{name} count", count)
        return more / times if more is not None and times else None

    def _grown(self, name: str, value: float | None) -> tuple[float, float | None]:
        now = self._clock()
        before = self._last.get(name)
        if value is None:
            self._last.pop(name, None)
            return 0.0, None
        self._last[name] = (now, value)
        if before is None or value < before[1]:
            return 0.0, None
        return now - before[0], value - before[1]
