"""What clients set `max_tokens` to, as an axis: traces do not tell, and a router must reserve for what is asked.

With caps above what answers have, short requests look long, and fewer of them can go to engines of small context.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import numpy as np

from planner.workload.workload import NO_CAP, Workload


class CapPolicy(StrEnum):
    """ACTUAL is what papers assume, an oracle: each cap is its answer's length. P99 is one cap for all, which a
    hundredth of the answers would pass; CONSTANT one that is given; ABSENT none."""

    ACTUAL = "actual"
    P99 = "p99"
    CONSTANT = "constant"
    ABSENT = "absent"


def capped(workload: Workload, policy: CapPolicy, constant: int = 0) -> Workload:
    """The workload with these caps in place of its own. Answers end at their cap, as they would in an engine."""
    match policy:
        case CapPolicy.ACTUAL:
            return replace(workload, output_cap=workload.output_tokens)
        case CapPolicy.ABSENT:
            return replace(workload, output_cap=np.full(len(workload), NO_CAP, dtype=np.int32))
        case CapPolicy.P99:
            return _capped_at(workload, int(np.quantile(workload.output_tokens, 0.99, method="higher")))
        case CapPolicy.CONSTANT:
            return _capped_at(workload, constant)


def _capped_at(workload: Workload, cap: int) -> Workload:
    return replace(
        workload,
        output_tokens=np.minimum(workload.output_tokens, np.int32(cap)),
        output_cap=np.full(len(workload), cap, dtype=np.int32),
    )
