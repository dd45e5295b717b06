"""From the requests of one or more files of a trace to one workload."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from controlplane.model import QosTier, Verdict
from planner.workload.lines import Request
from planner.workload.workload import NO_SESSION, Indices, Integers, Workload


def build(source: str, requests: Sequence[Request]) -> Workload:
    """In the order of arrival, the first at 0 seconds; at least one request."""
    seconds = np.array([each.seconds for each in requests], dtype=np.float64)
    order = np.argsort(seconds, kind="stable")

    def integers(of: Callable[[Request], int]) -> Integers:
        return np.fromiter(map(of, requests), dtype=np.int32, count=len(requests))[order]

    def known(of: Callable[[Request], str], names: Sequence[str]) -> Indices | None:
        """None where any request does not tell."""
        places = {name: place for place, name in enumerate(names)}
        if not all(of(each) in places for each in requests):
            return None
        return np.fromiter((places[of(each)] for each in requests), dtype=np.uint8, count=len(requests))[order]

    categories = tuple(sorted({each.category for each in requests}))
    sessions = {name: number for number, name in enumerate(dict.fromkeys(each.session for each in requests))}
    sessions[""] = NO_SESSION
    return Workload(
        source=source,
        arrival_seconds=seconds[order] - seconds[order[0]],
        input_tokens=integers(lambda each: each.input_tokens),
        output_tokens=integers(lambda each: each.output_tokens),
        output_cap=integers(lambda each: each.output_cap),
        category=known(lambda each: each.category, categories) if 1 < len(categories) <= 256 else None,
        category_names=categories if 1 < len(categories) <= 256 else (),
        qos_tier=known(lambda each: each.qos_tier, list(QosTier)),
        verdict=known(lambda each: each.verdict, list(Verdict)),
        session=integers(lambda each: sessions[each.session]) if len(sessions) > 1 else None,
    )
