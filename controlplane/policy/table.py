"""The routing table: the fleet's pools and the policy, made ready for deciding. Immutable, replaced whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Network, IPv6Network, ip_network

from controlplane.model import CapacityType, FormatTier, Pool, Pressure, QosTier
from controlplane.policy.classify import Judge, compile_rules
from controlplane.policy.estimator import Calibrations, unlearned
from controlplane.policy.formats import fidelity_of
from controlplane.policy.identity import tenant_of_name
from controlplane.policy.settings import LoadLimits, Policy, Tenant


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


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """All that a filter decides by. `names` holds the pools for each name that a request may call a model by,
    `tenants` what holds for a tenant, as in `Ask`, and `keys` whose the API key of a digest is. `since` is when the
    last of the quiescing nodes that it knows registered: what is decided by it is later."""

    version: str
    pools: tuple[Pool, ...]
    policy: Policy
    classifier: Judge
    names: Mapping[str, tuple[Candidate, ...]]
    models: tuple[str, ...]
    tenants: Mapping[str, Tenant]
    since: float
    keys: Mapping[str, str]
    trusted_peers: tuple[IPv4Network | IPv6Network, ...]
    calibrations: Calibrations

    def pools_of(self, name: str, tenant: str = "") -> tuple[Candidate, ...]:
        """The pools for a model's name that the tenant may use, ordered by pool name; empty for an unknown name."""
        found = self.names.get(name, ())
        known = self.tenants.get(tenant)
        if known is None or not known.models:
            return found
        return tuple(candidate for candidate in found if candidate.pool.model in known.models)

    def models_of(self, tenant: str) -> tuple[str, ...]:
        """The ids of the models that there are for a tenant."""
        known = self.tenants.get(tenant)
        if known is None or not known.models:
            return self.models
        return tuple(model for model in self.models if model in known.models)

    def rates_of(self, tenant: str) -> tuple[int | None, int | None]:
        """The requests and tokens per minute that a tenant is allowed; None is no limit."""
        rules = self.tenants.get(tenant, self.policy.tenants)
        return rules.requests_per_minute, rules.tokens_per_minute

    def qos_tier_of(self, tenant: str) -> QosTier:
        """The QoS tier of a tenant, as in `Ask`."""
        known = self.tenants.get(tenant)
        return self.policy.tenants.qos_tier if known is None else known.qos_tier


def compile_table(
    version: str, pools: Iterable[Pool], policy: Policy, calibrations: Calibrations | None = None
) -> RoutingTable:
    """Makes a table of these pools under this policy. Without calibrations nothing is learned yet."""
    empty = RoutingTable(
        version=version,
        pools=(),
        policy=policy,
        classifier=compile_rules(policy.sensitivity),
        names={},
        models=(),
        tenants={tenant_of_name(tenant.name): tenant for tenant in policy.tenants.known},
        since=0.0,
        keys={digest: tenant_of_name(tenant.name) for tenant in policy.tenants.known for digest in tenant.keys},
        trusted_peers=tuple(map(ip_network, policy.tenants.trusted_peers)),
        calibrations=calibrations or unlearned(policy.estimation),
    )
    return with_pools(empty, pools)


def with_pools(table: RoutingTable, pools: Iterable[Pool]) -> RoutingTable:
    """The table with these pools in place of its own."""
    ordered = tuple(sorted(pools, key=lambda pool: pool.name))
    candidates = tuple(candidate_of(pool, table.policy) for pool in ordered)
    models = tuple(sorted({pool.model for pool in ordered}))
    return replace(
        table,
        pools=ordered,
        names=_names(candidates, models),
        models=models,
        since=max((pool.quiesces_since for pool in ordered), default=0.0),
    )


def without_loads(table: RoutingTable) -> RoutingTable:
    """The table with every load and pressure unknown, measured or overridden, for when they are too old to say
    anything: unknown counts as room."""
    return with_pools(table, (replace(pool, load=None, overridden=(), pressures=()) for pool in table.pools))


def settled_after(table: RoutingTable, seconds: float) -> RoutingTable:
    """The table after so many seconds without a newer one: with each pool's own cluster in the place of those that
    Envoy has only while nodes quiesce, and drops once they have settled.

    What is in a pool's own cluster Envoy is told by itself: settled nodes alone, so that this lets no session go where
    it must not. One whose nodes all quiesce has nothing in it until the first of them settles.
    """
    if not any(_has_settled(pool, seconds) for pool in table.pools):
        return table
    pools = (
        replace(pool, quiescing_nodes=0, settles_in=0.0, quiesces_since=0.0) if _has_settled(pool, seconds) else pool
        for pool in table.pools
    )
    return with_pools(table, pools)


def _has_settled(pool: Pool, seconds: float) -> bool:
    return pool.quiescing_nodes > 0 and (pool.settled_nodes > 0 or pool.settles_in <= seconds)


def _names(candidates: tuple[Candidate, ...], models: tuple[str, ...]) -> Mapping[str, tuple[Candidate, ...]]:
    """A model's own id and its aliases mean all its pools; a name that only engines use means the pools that use it.

    Where names collide, ids win over aliases and aliases over engines' names; of two aliases the first model's wins.
    """
    names: dict[str, tuple[Candidate, ...]] = {
        model: tuple(c for c in candidates if c.pool.model == model) for model in models
    }
    for model in models:
        for alias in sorted({alias for candidate in names[model] for alias in candidate.pool.aliases}):
            names.setdefault(alias, names[model])
    engine_names: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        engine_names.setdefault(candidate.pool.served_name, []).append(candidate)
    for name, found in engine_names.items():
        names.setdefault(name, tuple(found))
    return names


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
