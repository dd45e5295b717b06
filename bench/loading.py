"""One measurement: the load generator against one contestant, and what the machine did meanwhile."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine
from building import built
from peers.contestant import Running
from scenarios import Scenario

PATH = "/v1/chat/completions"
QUANTILES = (0.5, 0.99, 0.999)


@dataclass(frozen=True, slots=True)
class Measured:
    """Times are in milliseconds, at QUANTILES: to the end of an answer, to the first byte of its body, and between its
    pieces; none where nothing was answered. `cpu` is in seconds per 1000 requests and `memory` in megabytes, by what
    the processes do. `foreign` is the share of the processors that other programs and machines took."""

    contestant: str
    requests: int
    failed: int
    per_second: float
    whole: tuple[float, ...]
    first: tuple[float, ...]
    gaps: tuple[float, ...]
    cpu: Mapping[str, float]
    memory: Mapping[str, float]
    foreign: float


async def measure(
    contestant: str,
    running: Running,
    *,
    scenario: Scenario,
    bodies: Sequence[Path],
    engines: Sequence[int],
    others: Iterable[int],
    seed: int,
) -> Measured:
    """`engines` and `others` are process ids; those of `others` are ours too, and do nothing."""
    roles = {**running.processes(), "engines": engines}
    pids = {pid for each in roles.values() for pid in each} | set(others)
    before = machine.read(pids)
    said = await generate(
        running.port,
        bodies,
        seconds=scenario.seconds,
        warm_up=scenario.warm_up,
        connections=scenario.connections,
        rate=scenario.rate,
        seed=seed,
    )
    spent = machine.spent(before, machine.read(pids))
    answered = len(said["whole"])
    # The processors also worked for the requests of the warm-up.
    counted = max(answered * (1 + scenario.warm_up / scenario.seconds), 1)
    return Measured(
        contestant=contestant,
        requests=said["sent"],
        failed=said["failed"] + said["unanswered"],
        per_second=said["statuses"].get("200", 0) / scenario.seconds,
        whole=_quantiles(said["whole"]),
        first=_quantiles(said["first"]),
        gaps=_quantiles(said["gaps"]),
        cpu={role: sum(spent.processes.get(p, 0.0) for p in each) / counted * 1000 for role, each in roles.items()},
        memory={role: sum(map(machine.memory, each)) for role, each in roles.items()},
        foreign=spent.foreign + spent.stolen,
    )


async def generate(
    port: int,
    bodies: Sequence[Path],
    *,
    seconds: float,
    connections: int,
    rate: float | None,
    seed: int,
    warm_up: float = 0,
) -> dict[str, Any]:
    """What the load generator says. Without a rate it sends as fast as it is answered."""
    words = (port, PATH, seconds, warm_up, connections, rate or 0, seed, *bodies)
    process = await asyncio.create_subprocess_exec(built("load"), *map(str, words), stdout=PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0, f"the load generator ended with {process.returncode}"
    said: dict[str, Any] = json.loads(out)
    return said


def _quantiles(microseconds: list[int]) -> tuple[float, ...]:
    ordered = sorted(microseconds)
    return tuple(ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1000 for share in QUANTILES if ordered)
