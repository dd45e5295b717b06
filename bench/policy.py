"""What deciding costs in a fleet of 200 pools: the median time of each step for a chat of 2 KB and of 50 KB, on one
core; and what QoS governance adds to it, in each state of pressure.

    python bench/policy.py

`classifier.py` measures the classifier by itself, over several kinds of text.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product

from controlplane.decision_bytes import decision_bytes
from controlplane.model import (
    Ask,
    CapacityType,
    Decision,
    FormatTier,
    HttpRequest,
    Pool,
    Pressure,
    QosTier,
    TierPressure,
)
from controlplane.policy.ask import parse
from controlplane.policy.decide import decide
from controlplane.policy.govern import Governing, Standing, course, standing_of
from controlplane.policy.qos import Mode, QosRules
from controlplane.policy.settings import Policy
from controlplane.policy.table import compile_table
from ext_proc import wire
from ext_proc.credits import Credits
from ext_proc.debts import MemoryDebts
from ext_proc.keys import NO_KEYS
from ext_proc.limits import RateLimits
from ext_proc.pins import MemoryPins
from ext_proc.router import Router
from ext_proc.waiting import Line

SIZES = (2_000, 50_000)
MODELS = 50
SECONDS_EACH = 1.0

_PROSE = (
    "Please review the following report on the harbour and its trade. The council met on Tuesday to discuss the plans, "
    "and several members asked how the costs had been worked out, since the figures of the two years did not agree. "
)
_TASK = "Write a Python function that reads the table, and return the result as JSON."


class Unobserved:
    def decided(self, decision: Decision, seconds: float) -> None:
        pass

    def waiting(self, count: int) -> None:
        pass

    def wait_ended(self, outcome: str, seconds: float) -> None:
        pass

    def rate_checked(self, outcome: str) -> None:
        pass

    def rate_corrected(self, outcome: str) -> None:
        pass


def main() -> None:
    kinds = product(("llama", *(f"model-{number}" for number in range(1, MODELS))), FormatTier, ("short", "long"))
    pools = [_pool(*kind) for kind in kinds]
    table = compile_table("1", pools, Policy())
    observer = Unobserved()
    line = Line(Credits(time.monotonic), observer, time.monotonic, max_wait=30.0)
    rates = RateLimits(MemoryDebts(time.monotonic), observer)
    pins = MemoryPins(time.monotonic)
    router = Router(lambda: table, pins, line, observer, random.random, rates=rates, keys=NO_KEYS)
    columns: list[list[float]] = []
    for size in SIZES:
        request = _chat(size)
        ask = parse(request, table.policy)
        assert isinstance(ask, Ask)
        decision = decide(ask, table, None)
        steps: dict[str, Callable[[], object]] = {
            "parse": lambda request=request: parse(request, table.policy),  # type: ignore[misc]
            "classify": lambda ask=ask: table.classifier.classify(ask, 256),  # type: ignore[misc]
            "decide, with classify": lambda ask=ask: decide(ask, table, None),  # type: ignore[misc]
            "decision as bytes": lambda decision=decision: decision_bytes(decision),  # type: ignore[misc]
            "all, to Envoy's answer": lambda request=request: _answer(router, request),  # type: ignore[misc]
        }
        columns.append([_median_microseconds(step) for step in steps.values()])
        names = list(steps)
    print(f"{'microseconds':<26}" + "".join(f"{size // 1000:>7} KB" for size in SIZES))
    for name, *medians in zip(names, *columns, strict=True):
        print(f"{name:<26}" + "".join(f"{median:>10.1f}" for median in medians))
    _govern(pools, _chat(SIZES[0]))


def _govern(pools: list[Pool], request: HttpRequest) -> None:
    """The evaluation of the policy by itself, and a whole decision with it."""
    ask = parse(request, Policy())
    assert isinstance(ask, Ask)
    print(f"\n{'QoS, microseconds':<26}{'evaluate':>10}{'decide':>10}")
    for name, qos, pressure in (
        ("disabled", QosRules(), Pressure.NORMAL),
        ("normal: pass", QosRules(mode=Mode.ENABLED), Pressure.NORMAL),
        ("elevated: degrade", QosRules(mode=Mode.ENABLED), Pressure.ELEVATED),
        ("critical: reject", QosRules(mode=Mode.ENABLED), Pressure.CRITICAL),
    ):
        pressures = tuple(TierPressure(tier, pressure, 0.9, "kv_cache_use") for tier in QosTier)
        table = compile_table("1", [replace(pool, pressures=pressures) for pool in pools], Policy(qos=qos))
        # How a pool stands to a tier is worked out once for each routing table.
        standing = standing_of(table.pools[0], QosTier.STANDARD, qos)

        def evaluate(qos: QosRules = qos, standing: Standing = standing) -> object:
            return course(ask, standing, Governing(qos, QosTier.STANDARD, 0.0, 0.5))

        evaluated = _median_microseconds(evaluate) if qos.mode is Mode.ENABLED else 0.0
        decided = _median_microseconds(lambda table=table: decide(ask, table, None))  # type: ignore[misc]
        print(f"{name:<26}{evaluated:>10.1f}{decided:>10.1f}")


def _pool(model: str, tier: FormatTier, context: str) -> Pool:
    name = f"{model}/{tier}/{context}/on_demand"
    size = 8_192 if context == "short" else 131_072
    return Pool(name, model, tier, context, CapacityType.ON_DEMAND, size, 64, 2, 2, model, formats=("bf16",))


def _chat(size: int) -> HttpRequest:
    text = (_PROSE * (size // len(_PROSE) + 1))[: size - 200 - len(_TASK)] + _TASK
    messages = [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": text}]
    body = json.dumps({"model": "llama", "temperature": 0, "max_tokens": 1000, "messages": messages}).encode()
    return HttpRequest("POST", "/v1/chat/completions", {}, body)


def _answer(router: Router, request: HttpRequest) -> object:
    """Drives the router without an event loop: the memory store never waits."""
    try:
        router.answer(request, _extend).send(None)
    except StopIteration as stop:
        return wire.response(stop.value)
    raise AssertionError("the router waited")


async def _extend(_: float) -> None:
    raise AssertionError("the router waited")


def _median_microseconds(step: Callable[[], object]) -> float:
    end = time.perf_counter() + SECONDS_EACH
    taken: list[int] = []
    while time.perf_counter() < end:
        started = time.perf_counter_ns()
        step()
        taken.append(time.perf_counter_ns() - started)
    return statistics.median(taken) / 1000


if __name__ == "__main__":
    main()
