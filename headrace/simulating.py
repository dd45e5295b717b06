"""From the words of `headrace simulate` to fleets and workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from controlplane.errors import ConfigurationError
from controlplane.model import CapacityType, QosTier
from controlplane.policy.settings import Policy
from headrace.commands.options import read_text
from planner.hardware.physics import default_token_budget, engine
from planner.simulation.fleet import SimulatedFleet, SimulatedPool, with_classes
from planner.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class PoolWords:
    """A pool as it is written down; `context` and `sequences` are 0 for what the engine takes, `token_budget` for what
    vLLM computes at most in an iteration (`max_num_batched_tokens`)."""

    instances: int = 1
    gpu: str = "A100"
    gpus: int = 8
    format: str = "fp16"
    context: int = 0
    sequences: int = 0
    token_budget: int = 0
    capacity: str = "on_demand"


def read_pools(words: Sequence[str], file: Path | None) -> tuple[PoolWords, ...]:
    """From `--pool instances=4,gpu=A100,...` and from a YAML list `pools` of the same words.

    Raises ConfigurationError.
    """
    found = [_pool(dict(_pair(part, word) for part in word.split(",")), f"--pool {word}") for word in words]
    if file is not None:
        try:
            document = yaml.safe_load(read_text(file))
        except yaml.YAMLError as error:
            raise ConfigurationError([f"{file}: is no YAML: {error}"]) from None
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


def tiered(workload: Workload, shares: Mapping[QosTier, float], seed: int) -> Workload:
    """With QoS tiers drawn by their shares, where it tells none."""
    if not shares or workload.qos_tier is not None:
        return workload
    weights = np.array([shares.get(tier, 0.0) for tier in QosTier])
    drawn = np.random.default_rng([seed, 1]).choice(weights.size, len(workload), p=weights / weights.sum())
    return replace(workload, qos_tier=drawn.astype(np.uint8))


def _simulated(words: PoolWords, model: str) -> SimulatedPool:
    base = engine(model, words.gpu, words.gpus, words.format)
    if words.context > base.max_context:
        raise ConfigurationError(
            [f"context={words.context}: {base.name} takes {base.max_context} tokens; give it less, or more GPUs"]
        )
    limited = base.limited(words.context or base.max_context, words.sequences or base.max_sequences)
    hardware = "a100-sxm4" if words.gpu.lower() == "a100" else words.gpu.lower()
    return SimulatedPool(
        limited,
        words.instances,
        hardware_class=hardware,
        capacity_type=CapacityType(words.capacity),
        token_budget=words.token_budget or default_token_budget(words.gpu),
    )


def _pair(part: str, word: str) -> tuple[str, str]:
    name, separator, value = part.partition("=")
    if not separator:
        raise ConfigurationError([f"--pool {word}: `{part}` must read name=value"])
    return name.strip(), value.strip()


def _pool(entry: Mapping[str, Any], where: str) -> PoolWords:
    words = {field.name: field.default for field in fields(PoolWords)}
    given: dict[str, Any] = {}
    for name, value in entry.items():
        if name not in words:
            raise ConfigurationError([f"{where}: `{name}` is unknown; there are {', '.join(words)}"])
        given[name] = _whole(value, name, where) if isinstance(words[name], int) else str(value)
    if given.get("capacity", "on_demand") not in set(CapacityType):
        raise ConfigurationError([f"{where}: `capacity` must be one of {', '.join(CapacityType)}"])
    return PoolWords(**given)


def _whole(value: object, name: str, where: str) -> int:
    least = 1 if name in {"instances", "gpus"} else 0
    text = str(value)
    if not text.isdecimal() or not least <= int(text) < 2**31:
        raise ConfigurationError([f"{where}: `{name}` must be a whole number from {least} on, and is {value!r}"])
    return int(text)


def read_shares(words: Sequence[str]) -> Mapping[QosTier, float]:
    """From `tier=share`. Raises ConfigurationError."""
    found = {}
    for word in words:
        name, _, text = word.partition("=")
        try:
            share = float(text)
        except ValueError:
            raise ConfigurationError([f"--tier {word}: must read tier=share"]) from None
        if name not in set(QosTier) or not 0 <= share < inf:
            raise ConfigurationError([f"--tier {word}: there are {', '.join(QosTier)}, with shares of at least 0"])
        found[QosTier(name)] = share
    if words and not sum(found.values()):
        raise ConfigurationError(["--tier: one of the shares must be above 0"])
    return found
