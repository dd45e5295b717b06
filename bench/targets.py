"""What Headrace is to reach, as numbers, and how each is read from what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from peers.headrace import HEADRACE, HEADRACE_GRPC_AIO
from peers.litellm import LITELLM
from peers.plain_envoy import PLAIN_ENVOY
from peers.rust_routers import SGLANG_ROUTER, VLLM_ROUTER
from results import Result, Times

Results = Mapping[str, Result]


@dataclass(frozen=True, slots=True)
class Target:
    """`value` reads what was measured; None where it was not."""

    what: str
    bound: float
    value: Callable[[Results], float | None]
    at_least: bool = True
    unit: str = ""

    def met(self, measured: float) -> bool:
        return measured >= self.bound if self.at_least else measured <= self.bound


def _ratio(scenario: str, other: str, results: Results) -> float | None:
    return results[scenario].ratio(HEADRACE.name, other) if scenario in results else None


def _added(scenario: str, times: Times, quantile: float, results: Results) -> float | None:
    if scenario not in results:
        return None
    return results[scenario].added(HEADRACE.name, PLAIN_ENVOY.name, times, quantile)


def _filter_milliseconds(scenario: str, results: Results) -> float | None:
    if scenario not in results:
        return None
    return results[scenario].median(HEADRACE.name, lambda measured: measured.cpu["filter"])


def _throughput(size: str, bound: float, other: str) -> Target:
    return Target(f"{size}: requests a second, times those of {other}", bound, partial(_ratio, f"most, {size}", other))


def _latency(what: str, bound: float, scenario: str, times: Times, quantile: float) -> Target:
    return Target(what, bound, partial(_added, scenario, times, quantile), at_least=False, unit=" ms")


TARGETS = (
    _throughput("2 KB", 0.33, PLAIN_ENVOY.name),
    _throughput("2 KB", 1.8, VLLM_ROUTER.name),
    _throughput("2 KB", 0.75, SGLANG_ROUTER.name),
    _throughput("2 KB", 3.5, HEADRACE_GRPC_AIO.name),
    _throughput("2 KB", 60.0, LITELLM.name),
    _throughput("50 KB", 0.28, PLAIN_ENVOY.name),
    _throughput("50 KB", 1.8, VLLM_ROUTER.name),
    _throughput("500 KB", 0.30, PLAIN_ENVOY.name),
    _throughput("500 KB", 1.5, VLLM_ROUTER.name),
    _latency("2 KB at 500/s: added at the median", 0.40, "2 KB at 500/s", "whole", 0.5),
    _latency("2 KB at 500/s: added at the 99th percentile", 1.2, "2 KB at 500/s", "whole", 0.99),
    _latency("streamed: added to the first token, median", 0.40, "2 KB streamed at 100/s", "first", 0.5),
    _latency("streamed: added between tokens, median", 0.05, "2 KB streamed at 100/s", "gaps", 0.5),
    Target(
        "2 KB: CPU of the filter for each request when busy",
        0.05,
        partial(_filter_milliseconds, "most, 2 KB"),
        at_least=False,
        unit=" ms",
    ),
)
