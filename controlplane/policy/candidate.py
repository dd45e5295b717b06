"""A pool as selection sees it: its state held against a policy's limits, once per routing table."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.model import CapacityType, FormatTier, Pool, Pressure, QosTier
from controlplane.policy.formats import fidelity_of
from controlplane.policy.settings import LoadLimits, Policy


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pool with all that selection needs to know of it, computed once per table.

    `context_rank` counts context classes from the smallest. `overloaded` says that requests should leave it, `has_room`
    that it can take those of others; a pool may be neither. `headroom` and `fidelity` are 0 to 1, 1 is best.
    `pays` says that a tolerant request is served better enough by it than by a full one of the same hardware.
    `free` says that a request may go there now without waiting. `critical_for` are the QoS tiers whose pressure there
    is critical.
    """

    pool: Pool
    tier: FormatTier
    ready: bool
    on_demand: bool
    context_rank: int
    overloaded: bool
    has_room: bool
    headroom: float
    fidelity: float
    pays: bool
    free: bool = True
    critical_for: frozenset[QosTier] = frozenset()


def candidate_of(pool: Pool, policy: Policy) -> Candidate:
    """What selection needs to know of a pool under a policy."""
    limits = policy.selection.load
    waiting, kv_cache_use = _pressure(pool)
    return Candidate(
        pool=pool,
        tier=pool.tier,
        ready=pool.ready_nodes > 0,
        on_demand=pool.capacity_type is CapacityType.ON_DEMAND,
        context_rank=_context_rank(pool, policy),
        overloaded=waiting > limits.overloaded_waiting_per_node or kv_cache_use > limits.overloaded_kv_cache_use,
        has_room=waiting <= limits.room_waiting_per_node and kv_cache_use <= limits.room_kv_cache_use,
        headroom=_headroom(pool, waiting, kv_cache_use, limits),
        fidelity=fidelity_of(pool.formats[0], policy.formats) if pool.formats else 0.0,
        pays=pool.tier is FormatTier.QUANTIZED and pool.gain >= policy.gain.worthwhile,
        critical_for=frozenset(found.tier for found in pool.pressures if found.pressure is Pressure.CRITICAL),
    )


def _pressure(pool: Pool) -> tuple[float, float]:
    """Waiting requests per ready node, and KV-cache use; what is not known counts as none."""
    if pool.load is None:
        return 0.0, 0.0
    return pool.load.waiting / max(1, pool.ready_nodes), pool.load.kv_cache_use or 0.0


def _headroom(pool: Pool, waiting: float, kv_cache_use: float, limits: LoadLimits) -> float:
    """What is left of the scarcest of sequences, KV cache and patience."""
    running = pool.load.running if pool.load is not None else 0
    sequences = running / pool.max_sequences if pool.max_sequences > 0 else 0.0
    patience = waiting / limits.overloaded_waiting_per_node if limits.overloaded_waiting_per_node > 0 else 0.0
    return max(0.0, 1.0 - max(sequences, kv_cache_use, patience))


def _context_rank(pool: Pool, policy: Policy) -> int:
    """The place of the pool's context class; a class that the policy does not know stands last."""
    names = [entry.name for entry in policy.context_classes]
    return names.index(pool.context_class) if pool.context_class in names else len(names) - 1
