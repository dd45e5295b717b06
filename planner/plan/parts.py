"""Parts of a workload that different format tiers serve, ordered by what a router must leave room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controlplane.model import FormatTier, Verdict
from planner.workload.workload import Workload

# What a router expects of an answer without a cap, as a share of all answers; `policy.estimation.output_quantile`.
ALLOWANCE_QUANTILE = 0.9


@dataclass(frozen=True, slots=True)
class Part:
    """Requests that engines of `tier` serve, `share` of all; in the order of their `budgets`, in tokens, and not of
    their arrival."""

    tier: FormatTier
    share: float
    workload: Workload
    budgets: npt.NDArray[np.int32]

    def up_to(self, bound: int) -> int:
        """How many need at most so many tokens."""
        return int(np.searchsorted(self.budgets, bound, side="right"))


def budgets_of(workload: Workload) -> npt.NDArray[np.int32]:
    """What each request is routed by: its prompt and cap, or what most answers have. An answer that is longer counts as
    it is, since a router learns from those."""
    allowance = int(np.quantile(workload.output_tokens, ALLOWANCE_QUANTILE, method="higher"))
    return np.maximum(workload.budget_tokens(allowance), workload.total_tokens)


def whole(workload: Workload) -> Sequence[Part]:
    """All of it on engines of the full tier."""
    return [_part(FormatTier.FULL, 1.0, workload)]


def by_verdict(workload: Workload, tolerant: float | None) -> Sequence[Part]:
    """What is judged tolerant on quantized engines, all else on full ones. A share of `tolerant`, of all lengths alike,
    takes the place of verdicts."""
    if tolerant is None and workload.verdict is not None:
        is_tolerant = workload.verdict == list(Verdict).index(Verdict.TOLERANT)
        shares = {FormatTier.FULL: ~is_tolerant, FormatTier.QUANTIZED: is_tolerant}
        return [_part(tier, float(mask.mean()), workload.select(mask)) for tier, mask in shares.items() if mask.any()]
    share = tolerant or 0.0
    parts = ((FormatTier.FULL, 1 - share), (FormatTier.QUANTIZED, share))
    return [_part(tier, each, workload) for tier, each in parts if each > 0]


def _part(tier: FormatTier, share: float, workload: Workload) -> Part:
    budgets = budgets_of(workload)
    order = np.argsort(budgets, kind="stable")
    unordered = Workload(
        source=workload.source,
        arrival_seconds=np.zeros(len(workload)),
        input_tokens=workload.input_tokens[order],
        output_tokens=workload.output_tokens[order],
        output_cap=workload.output_cap[order],
    )
    return Part(tier, share, unordered, budgets[order])
