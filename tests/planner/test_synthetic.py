"""Workloads that are drawn: distributions, arrivals, caps and the summaries that are shipped."""

from __future__ import annotations

import numpy as np
import pytest

from controlplane.errors import ConfigurationError
from planner.workload import arrivals
from planner.workload.caps import CapPolicy, capped
from planner.workload.cdf import read_cdf, split
from planner.workload.histogram import count
from planner.workload.shipped import NAMES, shipped
from planner.workload.workload import NO_CAP, Workload


def drawn(name: str, requests: int = 50_000) -> Workload:
    return shipped(name).sample(requests, 10.0, np.random.default_rng(1))


@pytest.mark.parametrize("name", NAMES)
def test_every_summary_is_drawn_with_its_source_and_licence(name: str) -> None:
    workload = drawn(name, 1000)

    assert len(workload) == 1000
    assert any(licence in workload.source for licence in ("CC-BY 4.0", "Apache-2.0"))
    assert (workload.output_cap == NO_CAP).all()


# Shares of the whole traces, counted.
@pytest.mark.parametrize(
    ("name", "bound", "share"),
    [
        ("azure-2023", 1024, 0.40447),
        ("azure-2023", 2048, 0.77985),
        ("azure-2023", 4096, 0.89821),
        ("azure-2023-code", 2048, 0.61821),
        ("azure-2023-conv", 2048, 0.85345),
        ("lmsys", 1536, 0.90886),
        ("agent-heavy", 8192, 0.74042),
    ],
)
def test_a_summary_keeps_the_share_of_short_requests(name: str, bound: int, share: float) -> None:
    assert float((drawn(name).total_tokens <= bound).mean()) == pytest.approx(share, abs=0.02)


def test_a_histogram_keeps_how_long_answers_are() -> None:
    # Means of the whole trace, measured.
    workload = drawn("azure-2023")

    assert workload.input_tokens.mean() == pytest.approx(1434, rel=0.02)
    assert workload.output_tokens.mean() == pytest.approx(153.8, rel=0.02)


def test_counting_a_sample_gives_its_histogram_back() -> None:
    workload = drawn("azure-2023-conv", 5000)
    histogram = count(workload)

    assert histogram.requests == 5000
    again, _ = histogram.sample(50_000, np.random.default_rng(2))
    assert np.median(again) == pytest.approx(np.median(workload.input_tokens), rel=0.05)


def test_poisson_arrivals_have_their_rate_and_a_variation_of_one() -> None:
    workload = drawn("lmsys")

    assert workload.requests_per_second == pytest.approx(10, rel=0.02)
    assert arrivals.interarrival_cv(workload) == pytest.approx(1, rel=0.02)


def test_gamma_arrivals_have_their_rate_and_their_variation() -> None:
    workload = drawn("lmsys")
    bursty = arrivals.arriving(workload, arrivals.gamma(len(workload), 10.0, 3.0, np.random.default_rng(3)))

    assert bursty.requests_per_second == pytest.approx(10, rel=0.05)
    assert arrivals.interarrival_cv(bursty) == pytest.approx(3, rel=0.05)


def test_the_busy_rate_of_poisson_arrivals_is_near_their_mean_and_that_of_bursts_above_it() -> None:
    workload = drawn("lmsys", 20_000)
    bursty = arrivals.arriving(workload, arrivals.gamma(len(workload), 10.0, 6.0, np.random.default_rng(3)))

    assert arrivals.busy_rate(workload) == pytest.approx(10, rel=0.1)
    assert arrivals.busy_rate(bursty) > 15


def test_scaling_keeps_bursts() -> None:
    workload = drawn("lmsys", 2000)
    faster = arrivals.at_rate(workload, 100.0)

    assert faster.requests_per_second == pytest.approx(100)
    assert arrivals.interarrival_cv(faster) == pytest.approx(arrivals.interarrival_cv(workload))


def test_caps_are_an_axis_and_answers_end_there() -> None:
    workload = drawn("azure-2023", 2000)

    assert (capped(workload, CapPolicy.ACTUAL).output_cap == workload.output_tokens).all()
    assert (capped(workload, CapPolicy.ABSENT).output_cap == NO_CAP).all()
    cut = capped(workload, CapPolicy.CONSTANT, 100)
    assert cut.output_tokens.max() == 100
    at_p99 = capped(workload, CapPolicy.P99)
    assert 0.98 < (workload.output_tokens <= at_p99.output_cap).mean() < 1


def test_a_published_distribution_is_read_and_interpolated() -> None:
    cdf = read_cdf('{"cdf": [[64, 0.1], [128, 0.5], [256, 1]]}', "c.json")

    assert cdf.share_up_to(96) == pytest.approx(0.3)
    totals = cdf.sample(20_000, np.random.default_rng(1))
    assert float((totals <= 128).mean()) == pytest.approx(0.5, abs=0.02)
    prompts, answers = split(totals, 0.8)
    assert (prompts + answers == totals).all()
    assert answers.min() >= 1


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "c.json:1: is no JSON"),
        ('{"a": 1}', "has no list of points"),
        ("[[64, 0.5], [32, 1]]", "point 2 is"),
        ("[[64, 0.5], [128, 0.9]]", "the last share is 0.9, and not 1"),
    ],
)
def test_a_wrong_distribution_is_told(text: str, fault: str) -> None:
    with pytest.raises(ConfigurationError, match=fault):
        read_cdf(text, "c.json")


def test_an_unknown_name_is_told_what_names_there_are() -> None:
    with pytest.raises(ConfigurationError, match="azure-2023, azure-2023-code"):
        shipped("azure")
