"""Twice as much as the engines can do, by tenants of three QoS tiers: ungoverned, with published limits, by ours.

    python bench/overload.py [--seconds 90] [--load 2.0] [--seed 1]

`headrace up` with real Envoy and etcd; two engines that batch as vLLM does (tests/support/batching.py), each a process
with an agent of its own. Of the tokens asked for 30% are of the guaranteed tier, 40% standard, 30% best effort; at
twice the capacity the guaranteed tier alone asks for 60% of it. What became of each request is taken from its client. A
request keeps its promise when it is answered within what `policy.sla` says of its tier; who is turned away is told
apart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
WARM_UP_SHARE = 0.25
SHARES = {QosTier.GUARANTEED: 0.3, QosTier.STANDARD: 0.4, QosTier.BEST_EFFORT: 0.3}
# A batch of 32 sequences of about 500 tokens takes most of the KV cache, so that its use says how full an engine is.
PHYSICS = Physics(max_sequences=32, blocks=1150, token_budget=4096)
ENGINES = 2
PROMPT_TOKENS, OUTPUT_TOKENS = (200, 600), (50, 200)

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
TUNED = """
  qos:
    mode: enabled
"""
POLICIES = {"off": "", "published": PUBLISHED, "tuned": TUNED}


@dataclass(frozen=True, slots=True)
class Asked:
    prompt: int
    output: int


def capacity_per_second() -> float:
    """Requests of the usual size that the engines finish, by their physics: each takes an iteration for every chunk of
    its prompt and every token after the first."""
    prompt, output = sum(PROMPT_TOKENS) / 2, sum(OUTPUT_TOKENS) / 2
    iterations = 1 + prompt // PHYSICS.chunk + output
    seconds = PHYSICS.fixed + PHYSICS.per_sequence * PHYSICS.max_sequences
    return ENGINES * PHYSICS.max_sequences / (iterations * seconds)


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
    size = dice.randint(*PROMPT_TOKENS) * BYTES_PER_TOKEN
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": (words * (size // len(words) + 1))[:size]}],
        "temperature": 0.5,
        "metadata": {"stop_after": dice.randint(*OUTPUT_TOKENS)},
    }


def kept(each: Came) -> bool:
    """Whether the promise to its tier was kept."""
    target = SlaRules().of(QosTier(each.due.kind))
    if each.status != 200:
        return False
    first = (target.first_token_ms or float("inf")) / 1000
    per_token = (target.output_token_ms or float("inf")) / 1000
    return each.first <= first and each.whole <= first + per_token * each.output_tokens


def tier_row(came: Sequence[Came]) -> dict[str, Any]:
    answered = [each for each in came if each.status == 200]
    shed = [each for each in came if each.status == 429]
    judged = [each for each in came if each.status != 429]
    waited = [seconds for each in answered if (seconds := _debug(each).get("waited_seconds", 0.0))]
    return {
        "asked": len(came),
        "violated": _share(sum(not kept(each) for each in judged), len(judged)),
        "shed": _share(len(shed), len(came)),
        "degraded": _share(sum("x-headrace-degraded-to" in each.headers for each in came), len(came)),
        "queued": _share(len(waited), len(came)),
        "failed": sum(each.status not in {200, 429} for each in came),
        "TTFT p50/p99": [round(quantile([each.first for each in answered], share), 2) for share in (0.5, 0.99)],
        "whole p50/p99": [round(quantile([each.whole for each in answered], share), 2) for share in (0.5, 0.99)],
        "longest wait": round(max(waited, default=0.0), 1),
    }


def _debug(each: Came) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(each.headers.get("x-headrace-decision", "{}"))
    return found


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "-"


def tokens_per_second(came: Sequence[Came], begin: float, end: float) -> float:
    """Prompt and output tokens of the answers that ended in this time."""
    done = [each for each in came if each.status == 200 and begin <= each.due.at + each.whole < end]
    return sum(each.prompt_tokens + each.output_tokens for each in done) / (end - begin)


async def run(name: str, due: Sequence[Due]) -> list[Came]:
    config = FREE_PORTS + "policy:" + TENANTS + POLICIES[name]
    setup = Setup(4096, PHYSICS, ENGINES)
    async with running_system(config) as system, fleet(system, [setup]):
        return await send(system.gateway, due)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--load", type=float, default=2.0, help="what is asked for, as a multiple of the capacity")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policies", nargs="*", default=list(POLICIES), choices=list(POLICIES))
    given = parser.parse_args()
    due = schedule(given.seconds, given.load, random.Random(given.seed))
    begin = WARM_UP_SHARE * given.seconds
    print(f"{len(due)} requests in {given.seconds:g} s: {given.load:g} times {capacity_per_second():.1f} a second")
    for name in given.policies:
        came = asyncio.run(run(name, due))
        counted = [each for each in came if each.due.at >= begin]
        within = [each for each in came if kept(each)]
        print(
            f"\n{name}: {tokens_per_second(came, begin, given.seconds):.0f} tokens/s served, "
            f"{tokens_per_second(within, begin, given.seconds):.0f} of them as promised"
        )
        for tier in QosTier:
            row = tier_row([each for each in counted if each.due.kind == tier])
            print(f"  {tier:12} " + ", ".join(f"{key} {value}" for key, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
