"""Twice as much as the engines can do, by tenants of three QoS tiers: ungoverned, with published limits, by ours.

    python bench/overload.py [--seconds 45] [--load 2.0] [--seed 1]

`headrace up` with real Envoy and etcd; two engines that batch as vLLM does (tests/support/batching.py), each a process
with an agent of its own. Of the tokens asked for 30% are of the guaranteed tier, 40% standard, 30% best effort; at
twice the capacity the guaranteed tier alone asks for 60% of it. First the same requests go to the engines themselves,
without Headrace, which says what they can do.

What became of each request is taken from its client. A request keeps its promise when it is answered within what
`policy.sla` says of its tier; who is turned away is told apart. Counted are requests that were due in so many seconds
after a warm-up, while others keep coming until these have ended; tokens are those of answers that ended in that time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from batching_fleet import MODEL, Setup, fleet
from open_loop import Came, Due, quantile, send

from controlplane.model import QosTier
from controlplane.policy.sla import SlaRules
from support.batching import Physics
from support.system import FREE_PORTS, running_system

BYTES_PER_TOKEN = 4
WARM_UP_SECONDS = 15.0
# For which a request may be under way, with the longest wait: so long others keep coming.
LONGEST_SECONDS = 60.0
# Engines that have as much more to do than they can are full all the time.
FULL = 1.3
SHARES = {QosTier.GUARANTEED: 0.3, QosTier.STANDARD: 0.4, QosTier.BEST_EFFORT: 0.3}
# A batch of 32 sequences of about 500 tokens takes 80% of the KV cache, so that its use says how full an engine is.
PHYSICS = Physics(max_sequences=32, blocks=1280, token_budget=4096)
SETUP = Setup(4096, PHYSICS, 2)
PROMPT_TOKENS = (200, 600)
# Of twenty answers one is long.
OUTPUT_TOKENS, LONG_OUTPUT_TOKENS, LONG_SHARE = (50, 200), (400, 600), 0.05

TENANTS = """
  tenants:
    header: x-tenant
    known:
      - {name: guaranteed, qos_tier: guaranteed}
      - {name: standard, qos_tier: standard}
      - {name: best_effort, qos_tier: best_effort}
"""
# The first limits of the published system, on KV-cache use alone.
PUBLISHED = """
  qos:
    mode: enabled
    guaranteed: {elevated_at: {kv_cache_use: 0.95, waiting_per_node: null, sla_violation_rate: null},
                 critical_at: {kv_cache_use: 1.0, waiting_per_node: null, sla_violation_rate: null}}
    standard: {elevated_at: {kv_cache_use: 0.70, waiting_per_node: null, sla_violation_rate: null},
               critical_at: {kv_cache_use: 0.90, waiting_per_node: null, sla_violation_rate: null}}
    best_effort: {elevated_at: {kv_cache_use: null, waiting_per_node: null, sla_violation_rate: null},
                  critical_at: {kv_cache_use: 0.60, waiting_per_node: null, sla_violation_rate: null}}
"""
# What docs/qos.md has of it.
TUNED = (Path(__file__).resolve().parents[1] / "docs" / "qos.tuned.yaml").read_text()
POLICIES = {"off": "", "published": PUBLISHED, "tuned": TUNED.partition("policy:\n")[2]}


def capacity_per_second() -> float:
    """Requests of the usual size that the engines finish, by their physics: each takes an iteration for every chunk of
    its prompt and every token after the first."""
    prompts = range(PROMPT_TOKENS[0], PROMPT_TOKENS[1] + 1)
    chunks = sum(-(-prompt // PHYSICS.chunk) for prompt in prompts) / len(prompts)
    output = (1 - LONG_SHARE) * sum(OUTPUT_TOKENS) / 2 + LONG_SHARE * sum(LONG_OUTPUT_TOKENS) / 2
    seconds = PHYSICS.fixed + PHYSICS.per_sequence * PHYSICS.max_sequences
    return SETUP.engines * PHYSICS.max_sequences / ((chunks + output - 1) * seconds)


def schedule(seconds: float, load: float, dice: random.Random) -> list[Due]:
    """Poisson arrivals."""
    at = 0.0
    due: list[Due] = []
    while True:
        at += dice.expovariate(load * capacity_per_second())
        if at >= seconds:
            return due
        (tier,) = dice.choices(list(SHARES), weights=list(SHARES.values()))
        due.append(Due(at, tier, _body(dice), {"x-tenant": tier, "x-headrace-debug": "1"}))


def _body(dice: random.Random) -> Mapping[str, Any]:
    words = "the quick brown fox jumps over the lazy dog and goes on to "
    output = LONG_OUTPUT_TOKENS if dice.random() < LONG_SHARE else OUTPUT_TOKENS
    size = dice.randint(*PROMPT_TOKENS) * BYTES_PER_TOKEN
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": (words * (size // len(words) + 1))[:size]}],
        "temperature": 0.5,
        "metadata": {"stop_after": dice.randint(*output)},
    }


def kept(each: Came) -> bool:
    """Whether the promise to its tier was kept."""
    target = SlaRules().of(QosTier(each.due.kind))
    if each.status != 200:
        return False
    first = (target.first_token_ms or float("inf")) / 1000
    per_token = (target.output_token_ms or float("inf")) / 1000
    return each.first <= first and each.whole <= first + per_token * each.output_tokens


def violations(came: Sequence[Came]) -> tuple[int, int]:
    """Of how many that were not turned away, whose promise was not kept: these, and all."""
    judged = [each for each in came if each.status != 429]
    return sum(not kept(each) for each in judged), len(judged)


def wanted(policy: str, came: Mapping[QosTier, Sequence[Came]], of_engines: float) -> Iterator[tuple[str, bool]]:
    """What is asked of a policy, and whether it is so. `of_engines` is what it served as promised, as a share."""
    violated, judged = violations(came[QosTier.GUARANTEED])
    if policy == "off":
        yield "guaranteed violated >= 30%", violated >= 0.3 * judged > 0
        return
    yield "guaranteed violated <= 2.0%", violated <= 0.02 * judged
    if policy == "tuned":
        yield "as promised >= 95% of what the engines can do", of_engines >= 0.95
        yield "every tier is served", all(any(each.status == 200 for each in of_tier) for of_tier in came.values())


def tier_row(came: Sequence[Came]) -> dict[str, Any]:
    answered = [each for each in came if each.status == 200]
    shed = [each for each in came if each.status == 429]
    waited = [seconds for each in answered if (seconds := _debug(each).get("waited_seconds", 0.0))]
    return {
        "asked": len(came),
        "violated": _share(*violations(came)),
        "shed": _share(len(shed), len(came)),
        "degraded": _share(sum("x-headrace-degraded-to" in each.headers for each in came), len(came)),
        "queued": _share(len(waited), len(came)),
        "failed": _failures(came),
        "TTFT p50/p99": _seconds([each.first for each in answered]),
        "whole p50/p99": _seconds([each.whole for each in answered]),
        "shed after p50/p99": _seconds([each.whole for each in shed]),
        "longest wait": f"{max(waited, default=0.0):.1f}",
    }


def _failures(came: Sequence[Came]) -> str:
    """How many of each status; 0 is an answer that broke off."""
    found = Counter(each.status for each in came if each.status not in {200, 429})
    return ", ".join(f"{count} x {status}" for status, count in sorted(found.items())) or "0"


def _debug(each: Came) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(each.headers.get("x-headrace-decision", "{}"))
    return found


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "-"


def _seconds(values: Sequence[float]) -> str:
    return "/".join(f"{quantile(values, share):.2f}" for share in (0.5, 0.99))


def tokens_per_second(came: Sequence[Came], begin: float, end: float) -> float:
    """Prompt and output tokens of the answers that ended in this time."""
    done = [each for each in came if each.status == 200 and begin <= each.due.at + each.whole < end]
    return sum(each.prompt_tokens + each.output_tokens for each in done) / (end - begin)


async def straight_to_engines(due: Sequence[Due], end: float) -> list[Came]:
    async with running_system() as system, fleet(system, [SETUP]) as urls:
        return await send(urls, due, counted_until=end)


async def through_headrace(policy: str, due: Sequence[Due], end: float) -> list[Came]:
    config = FREE_PORTS + "policy:" + TENANTS + policy
    async with running_system(config) as system, fleet(system, [SETUP]):
        return await send([system.gateway], due, counted_until=end)


def measured(running: Coroutine[Any, Any, list[Came]]) -> tuple[list[Came], str]:
    """What came, and how well the machine stood it, in one line."""
    before, began = _busy_seconds(), time.monotonic()
    came = asyncio.run(running)
    busy = (_busy_seconds() - before) / (time.monotonic() - began) / (os.cpu_count() or 1)
    late = quantile([each.late for each in came], 0.99)
    return came, f"the machine was {100 * busy:.0f}% busy, requests were sent late by {1000 * late:.0f} ms (p99)"


def _busy_seconds() -> float:
    """Of all processors together, in user and system mode (proc_stat(5))."""
    user, nice, system = map(int, Path("/proc/stat").read_text().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--load", type=float, default=2.0, help="what is asked for, as a multiple of the capacity")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policies", nargs="*", default=list(POLICIES), choices=list(POLICIES))
    given = parser.parse_args()
    begin, end = WARM_UP_SECONDS, WARM_UP_SECONDS + given.seconds
    due = schedule(end + LONGEST_SECONDS, given.load, random.Random(given.seed))
    asked = sum(begin <= each.at < end for each in due)
    print(f"{asked} requests in {given.seconds:g} s, {given.load:g} times {capacity_per_second():.1f} a second")
    came, well = measured(straight_to_engines(schedule(end, FULL, random.Random(given.seed)), end))
    most = tokens_per_second(came, begin, end)
    print(f"the engines by themselves: {most:.0f} tokens/s; {well}", flush=True)
    for name in given.policies:
        came, well = measured(through_headrace(POLICIES[name], due, end))
        counted = {tier: [each for each in came if each.due.at >= begin and each.due.kind == tier] for tier in QosTier}
        within = tokens_per_second([each for each in came if kept(each)], begin, end)
        served = tokens_per_second(came, begin, end)
        print(
            f"\n{name}: {served:.0f} tokens/s served, {within:.0f} of them as promised, "
            f"{100 * within / most:.0f}% of what the engines can do; {well}"
        )
        for tier, of_tier in counted.items():
            print(f"  {tier:12} " + ", ".join(f"{key} {value}" for key, value in tier_row(of_tier).items()))
        met = wanted(name, counted, within / most)
        print("  wanted: " + ", ".join(f"{what}: {'yes' if so else 'NO'}" for what, so in met), flush=True)


if __name__ == "__main__":
    main()
