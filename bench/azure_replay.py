"""Replays a trace of real requests against one class of engines and against two, through the real system.

    python bench/azure_replay.py TRACE.csv [TRACE.csv ...] [--seconds 90] [--rate 24] [--engines 4] [--slowness 2]

The traces are the public Azure LLM inference traces of 2023 (TIMESTAMP, ContextTokens, GeneratedTokens; CC-BY 4.0,
Patel et al., Splitwise, ISCA 2024), merged by time; a piece from their middle is sped up to `--rate` requests a second.
`headrace up` with real Envoy and etcd; the engines batch as vLLM does (tests/support/batching.py), all with the same KV
cache. Compared are the same number of engines

- `one long`: all set up for 64K tokens with 16 sequences, as token-budget routing's papers have their baseline;
- `one fitting`: all set up for what the trace needs (16K) with as many sequences as fit then;
- `two`: one in four for 64K with 16 sequences, at least one, the rest for 8K with 128.

`at most /s` is what the engines serve of these requests when each is full all the time and no room is the wrong one.

Nothing here is a GPU: what is measured is how routing and batching work together, not how fast an engine is. `idle` is
the share of the processors that nobody used meanwhile: near 0 the machine was the bottleneck, and the row says nothing.
Engines that take `--slowness` times as long for everything have less to do for the machine at the same load of theirs.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from batching_fleet import MODEL, Setup, fleet, preemptions
from open_loop import Came, Due, quantile, send

from support.batching import Batch, Physics
from support.batching import Sequence as Running
from support.system import FREE_PORTS, running_system

BYTES_PER_TOKEN = 4
WARM_UP_SHARE = 0.2
CLIENTS_CAP = 1024
IDLE = 3  # its place in /proc/stat

LONG = Physics(max_sequences=16, token_budget=8192)
FITTING = replace(LONG, max_sequences=64, token_budget=16_384)
SHORT = replace(LONG, max_sequences=128, token_budget=16_384)


def arms(engines: int, slowness: float = 1.0) -> dict[str, tuple[Setup, ...]]:
    large = max(1, engines // 4)
    long, fitting, short = (
        replace(physics, fixed=physics.fixed * slowness, per_sequence=physics.per_sequence * slowness)
        for physics in (LONG, FITTING, SHORT)
    )
    return {
        "one long": (Setup(65_536, long, engines),),
        "one fitting": (Setup(16_384, fitting, engines),),
        "two": (Setup(8_192, short, engines - large), Setup(65_536, long, large)),
    }


@dataclass(frozen=True, slots=True)
class Traced:
    at: float
    prompt_tokens: int
    output_tokens: int


def read_traces(paths: Iterable[Path]) -> list[Traced]:
    """In order; times in seconds from the first."""
    rows = []
    for path in paths:
        with path.open() as lines:
            for row in csv.DictReader(lines):
                at = datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp()
                rows.append(Traced(at, int(row["ContextTokens"]), int(row["GeneratedTokens"])))
    rows.sort(key=lambda row: row.at)
    return [replace(row, at=row.at - rows[0].at) for row in rows]


def schedule(rows: Sequence[Traced], seconds: float, caps: str) -> list[Due]:
    """All of them in `seconds`, with their gaps and bursts."""
    begin, factor = rows[0].at, seconds / (rows[-1].at - rows[0].at)
    return [Due((row.at - begin) * factor, "request", _body(row, caps)) for row in rows]


def _body(row: Traced, caps: str) -> dict[str, Any]:
    words = "the quick brown fox jumps over the lazy dog and goes on to "
    size = row.prompt_tokens * BYTES_PER_TOKEN
    cap = {"absent": {}, "actual": {"max_tokens": row.output_tokens}, "high": {"max_tokens": CLIENTS_CAP}}[caps]
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": (words * (size // len(words) + 1))[:size]}],
        "temperature": 0.5,
        "metadata": {"stop_after": row.output_tokens},
        **cap,
    }


def at_most(setups: Sequence[Setup], rows: Sequence[Traced]) -> float:
    """Requests a second that all these engines together serve, if each gets the like of `rows` and is never idle."""
    served = 0.0
    for setup in setups:
        batch, seconds = Batch(setup.physics), 0.0
        for row in rows:
            batch.add(Running(row.prompt_tokens, row.output_tokens))
        while (iteration := batch.step()) is not None:
            seconds += iteration.seconds
        served += setup.engines * len(rows) / seconds
    return served


def processor_times() -> list[int]:
    """Of all processors together since the machine started, by what they did (proc_stat(5)): user, nice, system, idle,
    iowait, irq, softirq, steal."""
    return [int(value) for value in Path("/proc/stat").read_text("ascii").split(maxsplit=9)[1:9]]


async def run(name: str, setups: Sequence[Setup], due: Sequence[Due], seconds: float) -> dict[str, Any]:
    async with running_system(FREE_PORTS) as system, fleet(system, setups) as urls:
        before = processor_times()
        came = await send([system.gateway], due)
        spent = [after - begin for after, begin in zip(processor_times(), before, strict=True)]
        idle = spent[IDLE] / sum(spent)
        row = figures(came, seconds, sum(setup.engines for setup in setups))
        return {"fleet": name, **row, "preemptions": await preemptions(urls), "idle": round(idle, 2)}


def figures(came: Sequence[Came], seconds: float, engines: int) -> dict[str, Any]:
    """Of the requests that were due after the warm-up; those that were refused count as such and in no time."""
    begin = WARM_UP_SHARE * seconds
    counted = [each for each in came if each.due.at >= begin]
    answered = [each for each in counted if each.status == 200]
    within = [each for each in came if each.status == 200 and begin <= each.due.at + each.whole < seconds]
    per_token = [(each.whole - each.first) / (each.output_tokens - 1) for each in answered if each.output_tokens > 1]
    pools = Counter(each.headers.get("x-headrace-pool", "none").split("/")[2:3][0] for each in answered)
    served = len(within) / (seconds - begin)
    return {
        "offered /s": round(len(counted) / (seconds - begin), 1),
        "served /s": round(served, 1),
        "engine-seconds per 1000": round(1000 * engines / served) if served else None,
        "TTFT p50": round(quantile([each.first for each in answered], 0.5), 2),
        "TTFT p99": round(quantile([each.first for each in answered], 0.99), 2),
        "TPOT p99": round(quantile(per_token, 0.99), 3),
        "refused": dict(Counter(str(each.status) for each in counted if each.status != 200)),
        "to": dict(pools),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--rate", type=float, default=24.0, help="requests a second")
    parser.add_argument("--caps", choices=("absent", "actual", "high"), default="absent")
    parser.add_argument("--engines", type=int, default=4, help="of each fleet, at least 2")
    parser.add_argument("--slowness", type=float, default=1.0, help="how many times slower the engines are")
    parser.add_argument("--fleets", nargs="*", default=list(arms(4)), choices=list(arms(4)))
    given = parser.parse_args()
    rows, count = read_traces(given.traces), round(given.rate * given.seconds)
    middle = rows[len(rows) // 2 - count // 2 :][:count]
    due = schedule(middle, given.seconds, given.caps)
    print(f"{len(due)} requests in {given.seconds:g} s, client's cap: {given.caps}")
    for name in given.fleets:
        began = time.monotonic()
        setups = arms(given.engines, given.slowness)[name]
        row = asyncio.run(run(name, setups, due, given.seconds))
        print(
            json.dumps({**row, "at most /s": round(at_most(setups, middle), 1)}),
            f"({time.monotonic() - began:.0f} s)",
            flush=True,
        )


if __name__ == "__main__":
    main()
