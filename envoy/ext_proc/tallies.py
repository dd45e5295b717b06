"""Counters and histograms for Prometheus that cost a request one look-up: what is counted is added up here, and put
into the library's form only when somebody asks. To be used by one thread; any may ask.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

Labels = tuple[str, ...]


class Tally(Collector):
    """A counter by labels, whose names are `labels`."""

    def __init__(self, name: str, documentation: str, labels: Labels, *, registry: CollectorRegistry) -> None:
        self._name = name
        self._documentation = documentation
        self._labels = labels
        self._counts: dict[Labels, int] = {}
        registry.register(self)

    def count(self, values: Labels) -> None:
        counts = self._counts
        counts[values] = counts.get(values, 0) + 1

    def forget(self, are_gone: Callable[[Labels], bool]) -> None:
        """Ends the series whose labels have these values."""
        for values in list(filter(are_gone, self._counts)):
            del self._counts[values]

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._documentation, labels=self._labels)
        for values, count in self._counts.copy().items():
            family.add_metric(values, count)
        yield family


class Spread(Collector):
    """A histogram; `bounds` grow, and a value counts for the first that it does not exceed."""

    def __init__(
        self, name: str, documentation: str, bounds: tuple[float, ...], *, registry: CollectorRegistry
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._bounds = bounds
        self._names = (*(str(float(bound)) for bound in bounds), "+Inf")
        self._counts = [0] * len(self._names)
        self._sum = 0.0
        registry.register(self)

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def collect(self) -> Iterator[HistogramMetricFamily]:
        counts, sum_ = self._counts.copy(), self._sum
        buckets = list(zip(self._names, accumulate(counts), strict=True))
        yield HistogramMetricFamily(self._name, self._documentation, buckets=buckets, sum_value=sum_)
