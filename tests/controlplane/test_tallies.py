"""What is added up here is shown as the library would show it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, Metric

from controlplane.tallies import Spread, Tally

BOUNDS = (0.00001, 0.5, 1, 131072)


def shown(registry: CollectorRegistry) -> list[tuple[str, str, set[tuple[str, str, float]]]]:
    """All but when a series began, which says nothing that a restart does not."""

    def samples(metric: Metric) -> set[tuple[str, str, float]]:
        return {
            (s.name, repr(sorted(s.labels.items())), s.value) for s in metric.samples if not s.name.endswith("_created")
        }

    return [(metric.name, metric.type, samples(metric)) for metric in registry.collect()]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "y", 'z"'])), max_size=20))
def test_a_tally_is_a_counter(events: list[tuple[str, str]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    tally = Tally("events", "Of tests.", ("one", "other"), registry=ours)
    counter = Counter("events", "Of tests.", ("one", "other"), registry=theirs)
    for values in events:
        tally.count(values)
        counter.labels(*values).inc()
    assert shown(ours) == shown(theirs)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1000)), max_size=20))
def test_a_tally_counts_by_as_much_as_it_is_told(events: list[tuple[str, int]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    tally = Tally("tokens", "Of tests.", ("pool",), registry=ours)
    counter = Counter("tokens", "Of tests.", ("pool",), registry=theirs)
    for pool, tokens in events:
        tally.count((pool,), tokens)
        counter.labels(pool).inc(tokens)
    assert shown(ours) == shown(theirs)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(BOUNDS) | st.floats(0, 1e6)), max_size=20))
def test_a_spread_by_labels_is_a_histogram_by_labels(events: list[tuple[str, float]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    spread = Spread("seconds", "Of tests.", BOUNDS, ("pool",), registry=ours)
    histogram = Histogram("seconds", "Of tests.", ("pool",), registry=theirs, buckets=BOUNDS)
    for pool, value in events:
        spread.observe(value, (pool,))
        histogram.labels(pool).observe(value)
    assert shown(ours) == shown(theirs)


@given(st.lists(st.sampled_from(BOUNDS) | st.floats(0, 1e6), max_size=20))
def test_a_spread_is_a_histogram(values: list[float]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    spread = Spread("seconds", "Of tests.", BOUNDS, registry=ours)
    histogram = Histogram("seconds", "Of tests.", registry=theirs, buckets=BOUNDS)
    for value in values:
        spread.observe(value)
        histogram.observe(value)
    assert shown(ours) == shown(theirs)


def test_a_series_that_is_forgotten_is_no_longer_shown() -> None:
    registry = CollectorRegistry()
    tally = Tally("events", "Of tests.", ("pool",), registry=registry)
    tally.count(("gone",))
    tally.count(("here",))
    spread = Spread("seconds", "Of tests.", BOUNDS, ("pool",), registry=registry)
    spread.observe(1.0, ("gone",))
    for each in (tally, spread):
        each.forget(lambda values: values[0] == "gone")
    assert registry.get_sample_value("seconds_count", {"pool": "gone"}) is None
    assert registry.get_sample_value("events_total", {"pool": "gone"}) is None
    assert registry.get_sample_value("events_total", {"pool": "here"}) == 1
