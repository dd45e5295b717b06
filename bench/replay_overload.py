"""Records an overload in a dry run and replays it against governance: the picture of docs/replay.md.

    python bench/replay_overload.py --png docs/replay.png [--seconds 60] [--load 1.4] [--seed 1]

The load and the engines are those of overload.py, with four tenants in place of three. The other policy governs, and
has the batch tenant's limit on KV-cache use at 75% and moves `search` to best effort.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from dataclasses import replace
from pathlib import Path

from batching_fleet import Setup, fleet
from open_loop import Due, send
from overload import PHYSICS, schedule

from support.system import FREE_PORTS, running_system

# By the QoS tier that overload.py's schedule names, and how its requests are shared out.
TENANTS = {"guaranteed": ["support-bot"], "standard": ["coding", "coding", "search"], "best_effort": ["batch"]}
POLICY = """
tenants:
  header: x-tenant
  known:
    - {{name: support-bot, qos_tier: guaranteed}}
    - {{name: coding, qos_tier: standard}}
    - {{name: search, qos_tier: {search}}}
    - {{name: batch, qos_tier: best_effort}}
qos:
  mode: {mode}
  best_effort: {{critical_at: {{kv_cache_use: {limit}}}}}
"""
RECORDED = POLICY.format(search="standard", mode="dry_run", limit=0.6)
OTHER = POLICY.format(search="best_effort", mode="enabled", limit=0.75)


def of_tenants(due: Due, dice: random.Random) -> Due:
    return replace(due, headers={"x-tenant": dice.choice(TENANTS[due.kind])})


async def run(png: Path, seconds: float, load: float, seed: int) -> None:
    dice = random.Random(seed)
    due = [of_tenants(each, dice) for each in schedule(seconds, load, dice)]
    config = FREE_PORTS + "policy:\n" + "\n".join(f"  {line}" for line in RECORDED.splitlines())
    async with running_system(config) as system, fleet(system, [Setup(4096, PHYSICS, 2)]):
        await send(system.gateway, due)
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as other:
            other.write(OTHER)
            other.flush()
            replayed = await system.headrace("replay", other.name, "--png", str(png))
    print(replayed.out, replayed.err)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--png", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--load", type=float, default=1.4, help="what is asked for, as a multiple of the capacity")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    asyncio.run(run(given.png.absolute(), given.seconds, given.load, given.seed))


if __name__ == "__main__":
    main()
