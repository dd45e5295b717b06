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

    def count(self, values: Labels, by: int = 1) -> None:
        counts = self._counts
        counts[values] = counts.get(values, 0) + by

    def forget(self, are_gone: Callable[[Labels], bool]) -> None:
        """Ends the series whose labels have these values."""
        for values in list(filter(are_gone, self._counts)):
            del self._counts[values]

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._documentation, labels=self._labels)
        for values, count in self._counts.copy().items():
            family.add_metric(values, count)
        yield family


class _Series:
    """Of a histogram: how many values there were for each bound, and what they add up to."""

    __slots__ = ("counts", "sum")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * buckets
        self.sum = 0.0


class Spread(Collector):
    """A histogram, by labels if it has any; `bounds` grow, and a value counts for the first that it does not exceed."""

    def __init__(
        self,
        name: str,
        documentation: str,
        bounds: tuple[float, ...],
        labels: Labels = (),
        *,
        registry: CollectorRegistry,
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._bounds = bounds
        self._labels = labels
        self._names = (*(str(float(bound)) for bound in bounds), "+Inf")
        self._series: dict[Labels, _Series] = {} if labels else {(): _Series(len(self._names))}
        registry.register(self)

    def observe(self, value: float, values: Labels = ()) -> None:
        """`values` are those of the labels."""
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = _Series(len(self._names))
        series.counts[bisect_left(self._bounds, value)] += 1
        series.sum += value

    def forget(self, are_gone: Callable[[Labels], bool]) -> None:
        """As of a Tally."""
        for values in list(filter(are_gone, self._series)):
            del self._series[values]

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._documentation, labels=self._labels)
        for values, series in self._series.copy().items():
            buckets = list(zip(self._names, accumulate(series.counts), strict=True))
            family.add_metric(values, buckets, series.sum)
        yield family
