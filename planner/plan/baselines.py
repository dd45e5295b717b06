"""What papers compare with: one pool of the longest context, and the closed form for two.

The honest baseline is one pool too, but as an operator would set it up: `Search.best(1)`.
"""

from __future__ import annotations

from controlplane.model import FormatTier
from planner.plan.fleet import PlannedFleet, PlannedPool
from planner.plan.parts import Part
from planner.plan.search import Asked
from planner.sizing.closed_form import saving, throughput_gain
from planner.sizing.demand import demand
from planner.sizing.pools import size_pool

PAPERS_CONTEXT = 65_536


def of_papers(asked: Asked, everything: Part) -> PlannedFleet | None:
    """The cheapest single pool as in the papers: a context of 64K, though no request needs it, and as many sequences as
    hold it whole."""
    needs = demand(everything.workload, asked.busy_rate, 1.0, _chunk(asked))
    found = []
    for engine in asked.engines[FormatTier.FULL]:
        context = min(PAPERS_CONTEXT, engine.max_context)
        sequences = engine.limited(context, engine.max_sequences).worst_case_sequences
        if needs.longest <= context and (size := size_pool(engine, needs, context, asked.targets, sequences)):
            found.append(PlannedFleet((PlannedPool(FormatTier.FULL, 0, context, 1.0, size),)))
    return min(found, key=lambda fleet: fleet.cost(asked.dollars_per_kwh), default=None)


def closed_form(fleet: PlannedFleet) -> tuple[float, float, float]:
    """alpha, rho and the saving of the closed form for a fleet of several classes, by engines of its last class that
    hold the whole context of each sequence."""
    first, last = fleet.pools[0], fleet.pools[-1]
    engine = last.size.engine
    alpha = sum(pool.share for pool in fleet.pools if pool.up_to == first.up_to)

    def sequences(context: int) -> int:
        return max(1, min(engine.max_sequences, engine.limited(context, 2**31).worst_case_sequences))

    rho = throughput_gain(engine, (sequences(first.up_to), first.up_to), (sequences(last.up_to), last.up_to))
    return alpha, rho, saving(alpha, rho)


def _chunk(asked: Asked) -> int:
    return asked.engines[FormatTier.FULL][0].chunk_tokens
