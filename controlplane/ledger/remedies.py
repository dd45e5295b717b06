"""Says in words what to do when too much of the traffic needs full nodes, with the numbers behind it."""

from __future__ import annotations

import math
from collections.abc import Iterable

from controlplane.fleet import Fleet
from controlplane.ledger.composition import SCORE_STEP, Composition
from controlplane.model import FormatTier, Pool
from controlplane.policy.settings import Policy


def remedies(composition: Composition, fleet: Fleet, policy: Policy) -> str:
    """What is the case, and both remedies: a less eager classifier, or more full nodes."""
    share = composition.share
    sensitive, pinned = composition.needing_full - composition.pinned_to_full, composition.pinned_to_full
    return (
        f"{composition.needing_full_share:.0%} of the {composition.requests} classified requests of the last "
        f"{composition.window_seconds / 60:g} min need the full tier ({share(sensitive):.0%} are sensitive, "
        f"{share(pinned):.0%} belong to sessions pinned to it), with {policy.composition.needs_full_above:.0%} as the "
        f"limit: a matter of the fleet's composition, not of scheduling. "
        f"Either judge less eagerly: {_less_eager(composition, policy)}. "
        f"Or have more full nodes: {_more_full_nodes(composition, fleet)}"
    )


def less_eager_threshold(composition: Composition, policy: Policy) -> tuple[float, float] | None:
    """The smallest `sensitive_at` above the present one, in steps, that would bring the share needing full down to what
    is allowed, and that share; None when no threshold would. Sessions that are pinned already stay where they are.
    """
    needing = composition.needing_full
    for score, count in composition.free_scores:
        needing -= count
        threshold = float(score + SCORE_STEP)
        if threshold > policy.sensitivity.sensitive_at:
            share = composition.share(needing)
            if share <= policy.composition.needs_full_above:
                return threshold, share
    return None


def full_nodes_needed(share: float, nodes: int, gain: float) -> int:
    """Of so many nodes, how many have to be full for their part of the decode throughput to be `share`, when a
    quantized one decodes `gain` times faster."""
    return min(math.ceil(share * gain * nodes / (1 - share + share * gain) - 1e-9), nodes)


def _less_eager(composition: Composition, policy: Policy) -> str:
    now = policy.sensitivity.sensitive_at
    found = less_eager_threshold(composition, policy)
    if found is None:
        return f"no other sensitivity.sensitive_at than {now:g} would do alone, so look at the words and weights"
    threshold, share = found
    return f"with sensitivity.sensitive_at {threshold:g} instead of {now:g} it would be {share:.0%}"


def _more_full_nodes(composition: Composition, fleet: Fleet) -> str:
    models = {pool.model for pool in fleet.pools if pool.tier is FormatTier.QUANTIZED}
    ready = {
        tier: {m.session.session_id for m in fleet.members if m.ready and m.tier is tier and m.model.id in models}
        for tier in FormatTier
    }
    pools = {tier: [p for p in fleet.pools if p.tier is tier and p.model in models] for tier in FormatTier}
    nodes = len(ready[FormatTier.FULL] | ready[FormatTier.QUANTIZED])
    needed = full_nodes_needed(composition.needing_full_share, nodes, _gain(pools[FormatTier.QUANTIZED]))
    parts = ", ".join(f"{len(ready[tier])} {tier} ({_use(pools[tier])})" for tier in FormatTier)
    return f"of {nodes} ready nodes there are {parts}; for this traffic about {needed} of {nodes} would have to be full"


def _gain(pools: Iterable[Pool]) -> float:
    weighed = [(pool.gain, pool.max_sequences) for pool in pools if pool.max_sequences]
    total = sum(sequences for _, sequences in weighed)
    return sum(gain * sequences for gain, sequences in weighed) / total if total else 1.0


def _use(pools: Iterable[Pool]) -> str:
    loads = [(pool.load, pool.max_sequences) for pool in pools if pool.load is not None]
    if not loads:
        return "load unknown"
    running, waiting = sum(load.running for load, _ in loads), sum(load.waiting for load, _ in loads)
    return f"{running} of {sum(sequences for _, sequences in loads)} sequences running, {waiting} waiting"
