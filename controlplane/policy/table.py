"""The routing table: the fleet's pools and the policy, made ready for deciding. Immutable, replaced whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network, ip_network

from controlplane.model import Pool, QosTier
from controlplane.policy.candidate import Candidate, candidate_of
from controlplane.policy.choice import Offer, offer_of
from controlplane.policy.classify import Judge, compile_rules
from controlplane.policy.estimator import Calibrations, unlearned
from controlplane.policy.identity import tenant_of_name
from controlplane.policy.settings import Policy, Tenant


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """All that a filter decides by. `names` holds the pools for each name that a request may call a model by,
    `tenants` what holds for a tenant, as in `Ask`, and `keys` whose the API key of a digest is. `since` is when the
    last of the quiescing nodes that it knows registered: what is decided by it is later. No pool holds more tokens in a
    sequence than `largest_context`, which is 0 without pools."""

    version: str
    pools: tuple[Pool, ...]
    policy: Policy
    classifier: Judge
    names: Mapping[str, tuple[Candidate, ...]]
    models: tuple[str, ...]
    tenants: Mapping[str, Tenant]
    since: float
    largest_context: int
    keys: Mapping[str, str]
    trusted_peers: tuple[IPv4Network | IPv6Network, ...]
    calibrations: Calibrations
    _offers: dict[str | tuple[str, ...], Offer] = field(init=False, repr=False, compare=False, default_factory=dict)

    def offer_of(self, name: str, tenant: str = "") -> Offer | None:
        """What `pools_of` gives, made ready for choosing when it is first asked for; None for an unknown name."""
        known = self.tenants.get(tenant)
        key = name if known is None or not known.models else (name, *known.models)
        offer = self._offers.get(key)
        if offer is None and (candidates := self.pools_of(name, tenant)):
            offer = self._offers[key] = offer_of(candidates, self.policy)
        return offer

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

    def is_rated(self, tenant: str) -> bool:
        """Whether there is any limit for a tenant in a minute."""
        rules = self.tenants.get(tenant, self.policy.tenants)
        return rules.requests_per_minute is not None or rules.tokens_per_minute is not None

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
        largest_context=0,
        keys={digest: tenant_of_name(tenant.name) for tenant in policy.tenants.known for digest in tenant.keys},
        trusted_peers=tuple(map(ip_network, policy.tenants.trusted_peers)),
        calibrations=calibrations or unlearned(policy.estimation),
    )
    return with_pools(empty, pools)


def with_pools(table: RoutingTable, pools: Iterable[Pool]) -> RoutingTable:
    """The table with these pools in place of its own. What was reckoned of one that stays is not reckoned again."""
    known = {id(candidate.pool): candidate for found in table.names.values() for candidate in found}
    ordered = tuple(sorted(pools, key=lambda pool: pool.name))
    candidates = tuple(known.get(id(pool)) or candidate_of(pool, table.policy) for pool in ordered)
    models = tuple(sorted({pool.model for pool in ordered}))
    return replace(
        table,
        pools=ordered,
        names=_names(candidates, models),
        models=models,
        since=max((pool.quiesces_since for pool in ordered), default=0.0),
        largest_context=max((pool.max_context for pool in ordered), default=0),
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
    of_models: dict[str, list[Candidate]] = {model: [] for model in models}
    for candidate in candidates:
        of_models[candidate.pool.model].append(candidate)
    names = {model: tuple(found) for model, found in of_models.items()}
    for model in models:
        for alias in sorted({alias for candidate in names[model] for alias in candidate.pool.aliases}):
            names.setdefault(alias, names[model])
    engine_names: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        engine_names.setdefault(candidate.pool.served_name, []).append(candidate)
    for name, found in engine_names.items():
        names.setdefault(name, tuple(found))
    return names
