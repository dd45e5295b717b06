"""From node sessions to pools, without I/O: who belongs where, who gets traffic, and how loaded a pool is."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType

from controlplane.model import (
    CapacityType,
    FormatTier,
    NodeLoad,
    NodeSession,
    NodeSpec,
    Override,
    Pool,
    PoolLoad,
    ServedModel,
    TierPressure,
)
from controlplane.policy.contexts import context_class_of
from controlplane.policy.formats import fidelity_of, tier_of
from controlplane.policy.gain import NOTHING_LEARNED, Learned, expected_gain, speed_of
from controlplane.policy.settings import Policy

# A report that is older than this many seconds says nothing about now.
FRESH_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Member:
    """One model of one node session, in the pool where its likes are.

    `gain` as in Pool, of this node. `throughput` is an estimate of its decode throughput with all its sequences
    running, in no unit: only nodes of one pool can be compared by it. One that is not `settled` takes new sessions
    only.
    """

    pool: str
    session: NodeSession
    model: ServedModel
    tier: FormatTier
    context_class: str
    load: NodeLoad | None
    ready: bool
    settled: bool
    gain: float
    throughput: float


@dataclass(frozen=True, slots=True)
class Fleet:
    """The fleet at one moment. Members are ordered by pool, then node id; pools by name.

    `overrides` are those in force, by pool name, and may name pools that are gone. `learned` is what gains and
    throughputs rest on. `pressures` are the whole fleet's, one for each QoS tier, or none where nobody has looked.
    """

    members: tuple[Member, ...]
    pools: tuple[Pool, ...]
    overrides: Mapping[str, Override] = field(default_factory=dict)
    learned: Learned = NOTHING_LEARNED
    pressures: tuple[TierPressure, ...] = ()

    def members_of(self, pool: str) -> tuple[Member, ...]:
        return tuple(m for m in self.members if m.pool == pool)


def form_fleet(
    sessions: Iterable[NodeSession],
    loads: Mapping[str, NodeLoad],
    policy: Policy,
    now: float,
    overrides: Mapping[str, Override] = MappingProxyType({}),
    *,
    learned: Learned = NOTHING_LEARNED,
) -> Fleet:
    """`loads` by node id, `overrides` by pool name; `now` in Unix seconds."""
    # etcd ends them too, but not while it is away, and later than told when it has been started anew meanwhile.
    in_force = {name: override for name, override in sorted(overrides.items()) if now < override.expires_at}
    members = sorted(
        (
            _member(session, model, loads.get(session.spec.node_id), policy, now, learned=learned)
            for session in sessions
            for model in session.spec.models
        ),
        key=lambda m: (m.pool, m.session.spec.node_id),
    )
    pools = (
        _pool(name, list(group), policy, now, in_force.get(name))
        for name, group in groupby(members, key=lambda m: m.pool)
    )
    return Fleet(tuple(members), tuple(pools), MappingProxyType(in_force), learned)


def pools_of(spec: NodeSpec, policy: Policy) -> tuple[str, ...]:
    """The names of the pools that a node of this description belongs to."""
    return tuple(sorted({_pool_name(spec, model, policy) for model in spec.models}))


def _pool_name(spec: NodeSpec, model: ServedModel, policy: Policy) -> str:
    """`model/tier/context class/capacity type`, and `=name` where the engine knows the model by another name.

    Model ids hold neither `@` nor `=` (registration refuses them), and an engine's name is written without `@`, so that
    names stay distinct, also of a pool's clusters.
    """
    tier = tier_of(model.format, policy.formats)
    context_class = context_class_of(model.max_context, policy.context_classes)
    name = f"{model.id}/{tier}/{context_class}/{spec.capacity_type}"
    served = served_name(model)
    return name if served == model.id else f"{name}={served.replace('%', '%25').replace('@', '%40')}"


def served_name(model: ServedModel) -> str:
    return model.served_name or model.id


def _member(
    session: NodeSession, model: ServedModel, load: NodeLoad | None, policy: Policy, now: float, *, learned: Learned
) -> Member:
    tier, hardware_class = tier_of(model.format, policy.formats), session.spec.hardware_class
    full = tier is FormatTier.FULL
    return Member(
        pool=_pool_name(session.spec, model, policy),
        session=session,
        model=model,
        tier=tier,
        context_class=context_class_of(model.max_context, policy.context_classes),
        load=load if load is not None and now - load.reported_at <= FRESH_SECONDS else None,
        # A node that has not reported yet is left to Envoy's health check; one that reports trouble gets no traffic.
        ready=not session.draining and (load is None or load.healthy),
        settled=session.settles_at <= now,
        gain=1.0 if full else expected_gain(model.id, hardware_class, learned, policy.gain),
        throughput=model.max_sequences * speed_of(model.id, tier, hardware_class, learned, policy.gain),
    )


def _pool(name: str, members: Sequence[Member], policy: Policy, now: float, override: Override | None) -> Pool:
    first = members[0]
    ready = [m for m in members if m.ready]
    quiescing = [m for m in ready if not m.settled]
    common_aliases = set.intersection(*(set(m.model.aliases) for m in members))
    return Pool(
        name=name,
        model=first.model.id,
        tier=first.tier,
        context_class=first.context_class,
        capacity_type=CapacityType(first.session.spec.capacity_type),
        max_context=min(m.model.max_context for m in ready or members),
        max_sequences=sum(m.model.max_sequences for m in ready),
        ready_nodes=len(ready),
        nodes=len(members),
        served_name=served_name(first.model),
        aliases=tuple(sorted(common_aliases)),
        formats=tuple(sorted({m.model.format for m in members}, key=lambda f: (-fidelity_of(f, policy.formats), f))),
        hardware_classes=tuple(sorted({m.session.spec.hardware_class for m in members} - {""})),
        load=_pool_load(ready) if override is None else _overridden(_pool_load(ready), override),
        overridden=() if override is None else override.signals,
        gain=_pool_gain(ready or members),
        quiescing_nodes=len(quiescing),
        # In whole seconds, so that the routing table does not change with every look at the clock.
        quiesces_since=max((m.session.quiesces_since for m in quiescing), default=0.0),
        settles_in=float(math.ceil(min((m.session.settles_at - now for m in quiescing), default=0.0))),
    )


def _pool_gain(members: Sequence[Member]) -> float:
    """The mean over its nodes, each counted by the sequences that it runs; to a hundredth."""
    sequences = sum(m.model.max_sequences for m in members)
    return round(sum(m.gain * m.model.max_sequences for m in members) / sequences, 2) if sequences else members[0].gain


def _pool_load(ready: Iterable[Member]) -> PoolLoad | None:
    loads = [m.load for m in ready if m.load is not None]
    if not loads:
        return None
    kv_cache_uses = [load.kv_cache_use for load in loads if load.kv_cache_use is not None]
    return PoolLoad(
        running=sum(load.running for load in loads),
        waiting=sum(load.waiting for load in loads),
        kv_cache_use=sum(kv_cache_uses) / len(kv_cache_uses) if kv_cache_uses else None,
    )


def _overridden(measured: PoolLoad | None, override: Override) -> PoolLoad | None:
    """What is neither measured nor overridden counts as none, as everywhere when deciding."""
    if override.signals == ("sla_violation_rate",):
        return measured
    measured = measured or PoolLoad(running=0, waiting=0)
    return PoolLoad(
        running=measured.running if override.running is None else override.running,
        waiting=measured.waiting if override.waiting is None else override.waiting,
        kv_cache_use=measured.kv_cache_use if override.kv_cache_use is None else override.kv_cache_use,
    )


def pools_by_node(fleet: Fleet) -> Mapping[str, tuple[str, ...]]:
    """Pool names by node id."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for member in fleet.members:
        found[member.session.spec.node_id].append(member.pool)
    return {node_id: tuple(pools) for node_id, pools in found.items()}
