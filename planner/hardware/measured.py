"""Engines as a running fleet shows them: what `headrace nodes --json` prints in place of what was computed.

A node tells what it holds (context, sequences, KV cache) and, while it decodes, how many sequences run and how many
tokens a second they make: an iteration takes running / tokens_per_second. From one load the whole iteration is made
slower or faster by what it is off; from two or more unlike ones its two parts are fitted. Prefill that went on
meanwhile is in these times, so that they err to the slow side.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from controlplane.errors import ConfigurationError
from planner.hardware.engine import EngineModel


@dataclass(frozen=True, slots=True)
class Seen:
    """One node that serves a model. `iteration_seconds` over `running` sequences; 0 of an idle one."""

    format: str
    gpus: int
    max_context: int
    max_sequences: int
    kv_cache_tokens: int
    running: int
    iteration_seconds: float


def read_nodes(text: str, name: str, model: str) -> Sequence[Seen]:
    """Those that serve the model. Raises ConfigurationError when it is no list of nodes, or none serves it."""
    try:
        document = json.loads(text)
        nodes = document["nodes"]
        found = [_seen(node, served) for node in nodes for served in node["spec"]["models"] if served["id"] == model]
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        raise ConfigurationError([f"{name}: is not what `headrace nodes --json` prints"]) from None
    if not found:
        served_ids = sorted({served["id"] for node in nodes for served in node["spec"]["models"]})
        raise ConfigurationError([f"{name}: no node serves {model!r}; there are: {', '.join(served_ids) or 'none'}"])
    return found


def as_measured(engine: EngineModel, seen: Sequence[Seen], mean_tokens: float) -> EngineModel:
    """The engine with what nodes alike to it told; as it was when there are none. `mean_tokens` is how long their
    sequences were on average."""
    alike = [each for each in seen if each.format == engine.quantization and each.gpus == engine.gpus]
    if not alike:
        return engine
    caches = [each.kv_cache_tokens for each in alike if each.kv_cache_tokens]
    engine = replace(
        engine,
        kv_blocks=int(median(caches)) // engine.block_tokens if caches else engine.kv_blocks,
        max_sequences=max(each.max_sequences for each in alike) or engine.max_sequences,
        max_context=max(each.max_context for each in alike),
        source=f"{engine.source}; {len(alike)} nodes as they were seen",
    )
    return _timed(engine, [each for each in alike if each.iteration_seconds > 0], mean_tokens)


def _timed(engine: EngineModel, busy: Sequence[Seen], mean_tokens: float) -> EngineModel:
    if not busy:
        return engine
    running = np.array([each.running for each in busy], dtype=np.float64)
    seconds = np.array([each.iteration_seconds for each in busy])
    if len(set(running.tolist())) > 1:
        each, fixed = np.polyfit(running, seconds, 1)
        if each >= 0 and fixed >= 0:
            scale = mean_tokens / engine.reference_tokens if engine.scales_with_length else 1.0
            return replace(engine, fixed_seconds=float(fixed), per_sequence_seconds=float(each / scale))
    expected = [engine.iteration_seconds(n, mean_tokens) for n in running]
    times = float(np.median(seconds / expected))
    return replace(
        engine, fixed_seconds=engine.fixed_seconds * times, per_sequence_seconds=engine.per_sequence_seconds * times
    )


def _seen(node: Mapping[str, Any], served: Mapping[str, Any]) -> Seen:
    load = node.get("load") or {}
    running, speed = int(load.get("running") or 0), float(load.get("tokens_per_second") or 0.0)
    return Seen(
        format=served["format"],
        gpus=int(node["spec"].get("gpu_count") or 1),
        max_context=int(served["max_context"]),
        max_sequences=int(served.get("max_sequences") or 0),
        kv_cache_tokens=int(served.get("kv_cache_tokens") or 0),
        running=running,
        iteration_seconds=running / speed if speed > 0 else 0.0,
    )
