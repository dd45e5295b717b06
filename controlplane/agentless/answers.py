"""What Prometheus answers, and the loads of nodes that follow from it. Without I/O."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from controlplane.errors import HeadraceError
from controlplane.model import NodeLoad, NodeSpec

# As in NodeLoad.
SIGNALS = ("kv_cache_use", "running", "waiting")


class UnusableAnswerError(HeadraceError):
    """Prometheus answered with an error, or with what is no value per node."""


def values_by_label(body: bytes, label: str) -> Mapping[str, float]:
    """The values of an instant query's vector, by what `label` says. Those that are no number are left out.

    https://prometheus.io/docs/prometheus/latest/querying/api/#instant-queries
    """
    try:
        answer = json.loads(body)
        if answer["status"] != "success":
            raise UnusableAnswerError(f"{answer.get('errorType', 'error')}: {answer.get('error', 'no reason given')}")
        if answer["data"]["resultType"] != "vector":
            raise UnusableAnswerError(f"the query gives a {answer['data']['resultType']}, and no value per node")
        return _values(answer["data"]["result"], label)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UnusableAnswerError(f"the answer is none of Prometheus: {type(error).__name__}") from error


def _values(result: Iterable[Mapping[str, Any]], label: str) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for each in result:
        name = each["metric"].get(label)
        if name is None:
            raise UnusableAnswerError(f"the query gives values without the label {label}; add `by ({label})`")
        if name in found:
            raise UnusableAnswerError(f"the query gives several values for {label}={name}; add `by ({label})`")
        if math.isfinite(value := float(each["value"][1])):
            found[name] = value
    return found


def loads_of(answers: Mapping[str, Mapping[str, float]], nodes: Iterable[NodeSpec], now: float) -> dict[str, NodeLoad]:
    """By node id; of nodes of which nothing is known there is none. `answers` are by signal, and in each by the address
    or the id of a node. Raises UnusableAnswerError for values that cannot be."""
    loads: dict[str, NodeLoad] = {}
    for node in nodes:
        known = {signal: _of_node(values, node) for signal, values in answers.items()}
        kv_cache_use, running, waiting = (known.get(signal) for signal in SIGNALS)
        if kv_cache_use is not None and not 0 <= kv_cache_use <= 1:
            raise UnusableAnswerError(f"kv_cache_use of {node.node_id} is {kv_cache_use:g}, and has to be from 0 to 1")
        if (running or 0) < 0 or (waiting or 0) < 0:
            raise UnusableAnswerError(
                f"{node.node_id} runs {running} requests, and {waiting} wait: counts are not negative"
            )
        if kv_cache_use is None and waiting is None and running is None:
            continue
        loads[node.node_id] = NodeLoad(
            running=round(running or 0),
            waiting=round(waiting or 0),
            kv_cache_use=kv_cache_use,
            uncounted=waiting is None,
            sampled=True,
            reported_at=now,
        )
    return loads


def _of_node(values: Mapping[str, float], node: NodeSpec) -> float | None:
    found = values.get(node.address)
    return values.get(node.node_id) if found is None else found
