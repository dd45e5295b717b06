"""The simulator beside real engines: the demo's two, behind Headrace, under a load that is recorded and then simulated.

    python bench/simulated_engines.py [--seconds 75] [--loads 0.65 0.95] [--seed 1]

`headrace up` with real Envoy and etcd, llama.cpp with SmolLM2-135M in 4 and in 16 bits, as `headrace demo` starts them.
A short probe of each engine gives the planner's model of it. Load is a multiple of what both engines could do by these
models; arrivals are Poisson. The simulator gets the arrivals, tokens and verdicts that Headrace has recorded, the pools
as probed, and the policy in force. Both sides are measured alike, without the first tenth of the time; times to the
first token are the client's.

The engines share the processors with each other and with Headrace. The calibration that counts is that with the other
engine busy, as it is for most of a run; what the one with an idle neighbour would have told is printed as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import httpx
import numpy as np
from engine_probe import BATCH_TOKENS, fitted, kept_busy, probe, some_words
from open_loop import Came, Due, send

from controlplane.messages import as_fields
from controlplane.model import FormatTier, Verdict
from controlplane.policy.settings import Policy
from headrace.demo.fleet import DEMO_ENGINES
from headrace.demo.requests import MODEL
from headrace_protos.headrace.v1 import fleet_pb2
from planner.hardware.engine import EngineModel
from planner.simulation.fleet import SimulatedFleet, SimulatedPool
from planner.simulation.report import Figures
from planner.simulation.simulate import WARM_UP, simulate
from planner.workload.building import build
from planner.workload.ledger import read_ledger
from planner.workload.workload import Workload
from support.llama import running_llama
from support.system import FREE_PORTS, RunningSystem, running_system
from support.waiting import until

CONFIG = FREE_PORTS + "policy: {context_classes: [{name: short, max_context: 1024}, {name: long}]}\n"
POOLS = (f"{MODEL}/quantized/short/on_demand", f"{MODEL}/full/long/on_demand")
LONGEST_SECONDS = 120.0
MOST_DECISIONS = 10_000
# Words of a prompt, about as many tokens; evenly in the logarithm. A thread reads some tens of tokens a second.
PROMPT_WORDS = (8, 80)
OUTPUT_CAPS = (8, 48)
# What the chat template adds.
TEMPLATE_TOKENS = 40
KINDS: Mapping[Verdict, tuple[str, float]] = {
    Verdict.TOLERANT: ("Tell me a playful story with these words: ", 1.1),
    Verdict.NEUTRAL: ("Say something about these: ", 0.5),
    Verdict.SENSITIVE: ("Write a Python function that sorts these words: ", 0.0),
}


@dataclass(frozen=True, slots=True)
class Measured:
    """Of the requests of one pool, or of all; seconds."""

    requests: int
    tokens_per_second: float
    median_ttft: float
    p99_ttft: float


@dataclass(frozen=True, slots=True)
class Mix:
    """Requests per second at which both engines are full, and the shares of the three verdicts then."""

    rate: float
    shares: Mapping[Verdict, float]


def mix(quantized: EngineModel, full: EngineModel) -> Mix:
    """So that the engines, full all the time, have as much to do as each other. What is not tolerant is neutral and
    sensitive alike."""
    on_quantized, on_full = (_work_seconds(engine) for engine in (quantized, full))
    tolerant = on_full / (on_quantized + on_full)
    rest = (1 - tolerant) / 2
    shares = {Verdict.TOLERANT: tolerant, Verdict.NEUTRAL: rest, Verdict.SENSITIVE: rest}
    return Mix(1 / on_quantized + 1 / on_full, shares)


def _work_seconds(engine: EngineModel) -> float:
    """That a request takes of an engine whose slots are all full."""
    low, high = PROMPT_WORDS
    prompt_tokens = (high - low) / math.log(high / low) + TEMPLATE_TOKENS
    iteration = engine.iteration_seconds(engine.max_sequences, 0.0)
    further_tokens = sum(OUTPUT_CAPS) / 2 - 1
    return engine.seconds_per_token * prompt_tokens + further_tokens * iteration / engine.max_sequences


def schedule(seconds: float, rate: float, shares: Mapping[Verdict, float], dice: random.Random) -> list[Due]:
    """Poisson arrivals."""
    due: list[Due] = []
    at = dice.expovariate(rate)
    while at < seconds:
        (verdict,) = dice.choices(list(shares), weights=list(shares.values()))
        low, high = PROMPT_WORDS
        said, temperature = KINDS[verdict]
        words = some_words(round(low * (high / low) ** dice.random()), dice)
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": said + words}],
            "max_tokens": dice.randint(*OUTPUT_CAPS),
            "temperature": temperature,
            "cache_prompt": False,
        }
        due.append(Due(at, verdict, body))
        at += dice.expovariate(rate)
    return due


# --- the real engines ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def demo() -> AsyncIterator[tuple[RunningSystem, dict[str, str]]]:
    """Headrace with both engines, and their URLs by name."""
    async with AsyncExitStack() as stack:
        urls: dict[str, str] = {}
        for engine in DEMO_ENGINES:
            running = await stack.enter_async_context(
                running_llama(
                    "f16" if engine.quantization == "fp16" else "q4",
                    model=MODEL,
                    context=engine.context,
                    slots=engine.slots,
                    embeddings=False,
                )
            )
            urls[engine.name] = running.url
        system = await stack.enter_async_context(running_system(CONFIG))
        for engine in DEMO_ENGINES:
            await stack.enter_async_context(
                system.node(urls[engine.name], engine.name, "--format", engine.quantization)
            )
        await system.until_pools(*POOLS)
        yield system, urls


async def probe_both(urls: Mapping[str, str], dice: random.Random) -> tuple[list[EngineModel], list[EngineModel]]:
    """The models of both engines, each probed while the other one is idle, and while it is busy."""
    alone, busy = [], []
    # llama.cpp's server closes connections after a few requests.
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=LONGEST_SECONDS, trust_env=False, limits=limits) as http:
        for engine in DEMO_ENGINES:
            url = urls[engine.name]
            alone.append(fitted(engine, await probe(http, url, engine.slots, dice)))
            (other,) = (each for each in DEMO_ENGINES if each is not engine)
            async with kept_busy(http, urls[other.name], other.slots, dice):
                busy.append(fitted(engine, await probe(http, url, engine.slots, dice)))
    return alone, busy


async def recorded(system: RunningSystem, came: Sequence[Came]) -> Workload:
    """The requests that were answered, with arrivals, tokens, caps and verdicts as Headrace has recorded them."""
    ids = {each.headers["x-request-id"] for each in came if each.status == 200}

    async def all_of_them() -> list[dict[str, Any]] | None:
        answer = await system.fleet.ListDecisions(fleet_pb2.ListDecisionsRequest(limit=MOST_DECISIONS))
        found = [as_fields(each) for each in answer.decisions if each.request_id in ids]
        return found if len(found) == len(ids) else None

    decisions = await until(all_of_them)
    return build("recorded", read_ledger(json.dumps({"decisions": decisions}), "decisions"))


def measured(came: Sequence[Came], tier: FormatTier | None = None) -> Measured:
    """Of those that this tier answered, as the simulator's report has it: arrivals and ends from the end of the warm-up
    to the last arrival."""
    sent = [each.due.at + each.late for each in came]
    first, last = min(sent), max(sent)
    begin = first + WARM_UP * (last - first)
    answered = [each for each in came if each.status == 200]
    mine = [each for each in answered if tier is None or each.headers["x-headrace-format"] == tier]
    ended = [each for each in mine if begin <= each.due.at + each.whole <= last]
    ttft = [each.first - each.late for each in mine if each.due.at + each.late >= begin]
    p50, p99 = np.quantile(ttft, (0.5, 0.99)) if ttft else (math.nan, math.nan)
    tokens = sum(each.output_tokens for each in ended)
    return Measured(len(ttft), tokens / (last - begin), float(p50), float(p99))


# --- the simulated ones --------------------------------------------------------------------------------------------


def simulated(workload: Workload, engines: Sequence[EngineModel], policy: Policy) -> list[Measured]:
    """Of all requests, and of each pool's."""
    pools = tuple(SimulatedPool(engine, 1, model=MODEL, token_budget=BATCH_TOKENS) for engine in engines)
    report = simulate(workload, SimulatedFleet(pools, policy))
    return [_as_measured(figures) for figures in (report.whole, *(pool.figures for pool in report.pools))]


def _as_measured(figures: Figures) -> Measured:
    return Measured(figures.served, figures.tokens_per_second, figures.ttft.p50, figures.ttft.p99)


# --- the table -----------------------------------------------------------------------------------------------------


def show(names: Sequence[str], real: Sequence[Measured], said: Sequence[Measured]) -> None:
    print(f"  {'':12}{'requests':>14}{'tokens/s':>26}{'median TTFT, s':>26}{'P99 TTFT, s':>26}")
    for name, one, other in zip(names, real, said, strict=True):
        columns = [
            _beside(one.tokens_per_second, other.tokens_per_second, 1),
            _beside(one.median_ttft, other.median_ttft, 3),
            _beside(one.p99_ttft, other.p99_ttft, 3),
        ]
        requests = f"{one.requests} / {other.requests}"
        print(f"  {name:12}{requests:>14}" + "".join(f"{column:>26}" for column in columns), flush=True)


def _beside(real: float, said: float, digits: int) -> str:
    off = f"{said / real - 1:+.0%}" if real else "-"
    return f"{real:.{digits}f} / {said:.{digits}f} ({off})"


def describe(engine: EngineModel) -> str:
    fixed, each = 1e3 * engine.fixed_seconds, 1e3 * engine.per_sequence_seconds
    return (
        f"{engine.name}: an iteration takes {fixed:.1f} ms and {each:.1f} ms a sequence, "
        f"{1e3 * engine.seconds_per_token:.2f} ms a prompt token"
    )


async def run(seconds: float, loads: Sequence[float], seed: int) -> None:
    dice = random.Random(seed)
    async with demo() as (system, urls):
        alone, busy = await probe_both(urls, dice)
        for engines, neighbour in ((alone, "idle"), (busy, "busy")):
            print(f"probed while the other engine is {neighbour}:", *map(describe, engines), sep="\n  ", flush=True)
        mixed = mix(*busy)
        print(f"full at {mixed.rate:.2f} requests/s:", ", ".join(f"{v:.0%} {k}" for k, v in mixed.shares.items()))
        policy = system.settings().policy
        names = ["together", *(engine.name for engine in busy)]
        for load in loads:
            came = await send([system.gateway], schedule(seconds, load * mixed.rate, mixed.shares, dice))
            workload = await recorded(system, came)
            real = [measured(came, tier) for tier in (None, FormatTier.QUANTIZED, FormatTier.FULL)]
            print(
                f"\nload {load:g}: {len(came)} requests, {len(came) - len(workload)} of them not answered, "
                f"{workload.input_tokens.mean():.0f} prompt and {workload.output_tokens.mean():.0f} output tokens each"
            )
            for engines, neighbour in ((busy, "busy"), (alone, "idle")):
                print(f"  real / simulated, as probed with a neighbour that is {neighbour}:")
                show(names, real, simulated(workload, engines, policy))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=75.0, help="of each load")
    parser.add_argument("--loads", type=float, nargs="+", default=[0.65, 0.95])
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    asyncio.run(run(given.seconds, given.loads, given.seed))


if __name__ == "__main__":
    main()
