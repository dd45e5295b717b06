"""From the words of `headrace simulate` to fleets and workloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from controlplane.errors import ConfigurationError
from controlplane.model import CapacityType, QosTier
from controlplane.policy.settings import Policy
from headrace.commands.options import read_text
from planner.hardware.physics import engine
from planner.simulation.fleet import SimulatedFleet, SimulatedPool, with_classes
from planner.workload.arrivals import at_rate
from planner.workload.reading import read_traces
from planner.workload.shipped import NAMES, shipped
from planner.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class PoolWords:
    """A pool as it is written down; `context` and `sequences` are 0 for what the engine takes."""

    instances: int = 1
    gpu: str = "A100"
    gpus: int = 8
    format: str = "fp16"
    context: int = 0
    sequences: int = 0
    capacity: str = "on_demand"


def read_pools(words: Sequence[str], file: Path | None) -> tuple[PoolWords, ...]:
    """From `--pool instances=4,gpu=A100,...` and from a YAML list `pools` of the same words.

    Raises ConfigurationError.
    """
    found = [_pool(dict(_pair(part, word) for part in word.split(",")), f"--pool {word}") for word in words]
    if file is not None:
        document = yaml.safe_load(read_text(file))
        if not isinstance(document, dict) or not isinstance(document.get("pools"), list):
            raise ConfigurationError([f"{file}: must hold a list `pools`"])
        for number, entry in enumerate(document["pools"], start=1):
            if not isinstance(entry, dict):
                raise ConfigurationError([f"{file}: pool {number}: must hold fields"])
            found.append(_pool(entry, f"{file}: pool {number}"))
    if not found:
        raise ConfigurationError(["a fleet needs pools; name them by --pool, or in a file by --fleet"])
    return tuple(found)


def build_fleet(words: Sequence[PoolWords], model: str, policy: Policy, *, own_classes: bool) -> SimulatedFleet:
    """With `own_classes` the policy's context classes follow the pools'. Raises ConfigurationError, FleetError."""
    pools = tuple(_simulated(each, model) for each in words)
    if own_classes:
        policy = with_classes(policy, (pool.engine.max_context for pool in pools))
    return SimulatedFleet(pools, policy)


def workload_of(
    names: Sequence[str], rate: float | None, requests: int, tiers: Mapping[str, float]
) -> Callable[[int], Workload]:
    """By seed: a summary is drawn anew, a trace is the same but for what it does not tell."""
    if len(names) == 1 and names[0] in NAMES:
        summary = shipped(names[0])
        per_second = rate or summary.requests_per_second

        def drawn(seed: int) -> Workload:
            sample = summary.sample(requests, per_second, np.random.default_rng(seed))
            return _with_tiers(at_rate(sample, per_second), tiers, seed)

        return drawn
    for name in names:
        if not Path(name).exists():
            shipped(name)  # which says what there is
    trace = read_traces([(name, read_text(Path(name))) for name in names])
    if rate is not None:
        trace = at_rate(trace, rate)
    return lambda seed: _with_tiers(trace, tiers, seed)


def _with_tiers(workload: Workload, tiers: Mapping[str, float], seed: int) -> Workload:
    if not tiers or workload.qos_tier is not None:
        return workload
    shares = [tiers.get(tier, 0.0) for tier in QosTier]
    drawn = np.random.default_rng([seed, 1]).choice(len(shares), len(workload), p=np.array(shares) / sum(shares))
    return replace(workload, qos_tier=drawn.astype(np.uint8))


def _simulated(words: PoolWords, model: str) -> SimulatedPool:
    base = engine(model, words.gpu, words.gpus, words.format)
    limited = base.limited(words.context or base.max_context, words.sequences or base.max_sequences)
    hardware = f"{words.gpu}-sxm4".lower() if words.gpu == "A100" else words.gpu.lower()
    return SimulatedPool(limited, words.instances, hardware_class=hardware, capacity_type=CapacityType(words.capacity))


def _pair(part: str, word: str) -> tuple[str, str]:
    name, separator, value = part.partition("=")
    if not separator:
        raise ConfigurationError([f"--pool {word}: `{part}` must read name=value"])
    return name.strip(), value.strip()


def _pool(entry: Mapping[str, Any], where: str) -> PoolWords:
    known: dict[str, type[int] | type[str]] = {
        field.name: int if isinstance(field.default, int) else str for field in fields(PoolWords)
    }
    given: dict[str, Any] = {}
    for name, value in entry.items():
        if name not in known:
            raise ConfigurationError([f"{where}: `{name}` is unknown; there are {', '.join(known)}"])
        try:
            given[name] = known[name](value)
        except (TypeError, ValueError):
            raise ConfigurationError([f"{where}: `{name}` must be a whole number, and is {value!r}"]) from None
    if given.get("capacity", "on_demand") not in set(CapacityType):
        raise ConfigurationError([f"{where}: `capacity` must be one of {', '.join(CapacityType)}"])
    return PoolWords(**given)


def read_shares(words: Sequence[str], known: Sequence[str]) -> Mapping[str, float]:
    """From `name=share`. Raises ConfigurationError."""
    found = {}
    for word in words:
        name, _, share = word.partition("=")
        try:
            found[name] = float(share)
        except ValueError:
            raise ConfigurationError([f"--tier {word}: must read tier=share"]) from None
        if name not in known or found[name] < 0:
            raise ConfigurationError([f"--tier {word}: there are {', '.join(known)}, with shares of at least 0"])
    return found
