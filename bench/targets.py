"""What Headrace is to reach, as numbers, and how each is read from what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from peers.headrace import HEADRACE, HEADRACE_GRPC_AIO
from peers.litellm import LITELLM
from peers.plain_envoy import PLAIN_ENVOY
from peers.rust_routers import SGLANG_ROUTER, VLLM_ROUTER
from results import Result, Run, Times


@dataclass(frozen=True, slots=True)
class Target:
    """`value` reads it from a run of `scenario` in which these `contestants` took part."""

    what: str
    bound: float
    scenario: str
    contestants: tuple[str, ...]
    value: Callable[[Run], float | None]
    at_least: bool = True
    unit: str = ""

    def run(self, results: Mapping[str, Result]) -> Run | None:
        """The last that tells; None if there was none."""
        result = results.get(self.scenario)
        return result.run_of(*self.contestants) if result else None

    def met(self, measured: float) -> bool:
        return measured >= self.bound if self.at_least else measured <= self.bound


def _throughput(size: str, bound: float, other: str) -> Target:
    return Target(
        f"{size}: requests a second, times those of {other}",
        bound,
        f"most, {size}",
        (HEADRACE.name, other),
        lambda run: run.ratio(HEADRACE.name, other),
    )


def _latency(what: str, bound: float, scenario: str, times: Times, quantile: float) -> Target:
    return Target(
        what,
        bound,
        scenario,
        (HEADRACE.name, PLAIN_ENVOY.name),
        lambda run: run.added(HEADRACE.name, PLAIN_ENVOY.name, times, quantile),
        at_least=False,
        unit=" ms",
    )


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
        "most, 2 KB",
        (HEADRACE.name,),
        lambda run: run.median(HEADRACE.name, lambda measured: measured.cpu["filter"]),
        at_least=False,
        unit=" ms",
    ),
)
