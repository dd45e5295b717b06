"""The fleet to simulate: pools of like engine instances, the policy that routes to them, and when instances fail."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from controlplane.errors import ConfigurationError
from controlplane.model import CapacityType, FormatTier, Pool
from controlplane.policy.contexts import context_class_of
from controlplane.policy.formats import tier_of
from controlplane.policy.gain import prior_gain
from controlplane.policy.settings import ContextClass, Policy
from planner.hardware.engine import EngineModel

MODEL = "model"
# Of pools each has a bit in the key of a decision; of sequences each has a record of 16 bytes.
MOST_POOLS = 24
MOST_SEQUENCES = 2**26


class FleetError(ConfigurationError):
    """A fleet, or a workload on it, that cannot be simulated."""

    def __init__(self, fault: str) -> None:
        super().__init__((fault,))


@dataclass(frozen=True, slots=True)
class SimulatedPool:
    """`instances` of one engine. Each computes at most `token_budget` tokens in one iteration, as vLLM's
    `max_num_batched_tokens`. `gain` is how much faster than a full one of its hardware the fleet believes a quantized
    one to decode; None is what the policy expects of `hardware_class`."""

    engine: EngineModel
    instances: int
    model: str = MODEL
    hardware_class: str = ""
    capacity_type: CapacityType = CapacityType.ON_DEMAND
    token_budget: int = 8192
    gain: float | None = None

    def tier(self, policy: Policy) -> FormatTier:
        return tier_of(self.engine.quantization, policy.formats)

    def name(self, policy: Policy) -> str:
        """As the control plane names it."""
        context_class = context_class_of(self.engine.max_context, policy.context_classes)
        return f"{self.model}/{self.tier(policy)}/{context_class}/{self.capacity_type}"

    def expected_gain(self, policy: Policy) -> float:
        if self.tier(policy) is FormatTier.FULL:
            return 1.0
        return prior_gain(self.hardware_class, policy.gain) if self.gain is None else self.gain

    def as_routed(self, policy: Policy) -> Pool:
        """What `decide` sees of it while all instances are ready and nothing is known of their load."""
        return Pool(
            name=self.name(policy),
            model=self.model,
            tier=self.tier(policy),
            context_class=context_class_of(self.engine.max_context, policy.context_classes),
            capacity_type=self.capacity_type,
            max_context=self.engine.max_context,
            max_sequences=self.engine.max_sequences * self.instances,
            ready_nodes=self.instances,
            nodes=self.instances,
            served_name=self.model,
            formats=(self.engine.quantization,),
            hardware_classes=(self.hardware_class,) if self.hardware_class else (),
            gain=self.expected_gain(policy),
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """At `seconds` from the first arrival an instance of a pool, counted from 0, is gone for good."""

    seconds: float
    pool: int
    instance: int


@dataclass(frozen=True, slots=True)
class SimulatedFleet:
    """All requests ask for `model`, by default that of the first pool. Engines report their load each
    `heartbeat_seconds`.

    Raises FleetError for pools that cannot be told apart or cannot hold what they say.
    """

    pools: tuple[SimulatedPool, ...]
    policy: Policy = field(default_factory=Policy)
    failures: tuple[Failure, ...] = ()
    heartbeat_seconds: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= len(self.pools) <= MOST_POOLS:
            raise FleetError(f"a fleet to simulate has 1 to {MOST_POOLS} pools, and not {len(self.pools)}")
        names = [pool.name(self.policy) for pool in self.pools]
        for name, pool in zip(names, self.pools, strict=True):
            engine = pool.engine
            if names.count(name) > 1:
                raise FleetError(
                    f"several pools are {name}: pools of one format tier and capacity need contexts that the policy's "
                    "context_classes tell apart"
                )
            if pool.instances < 1 or pool.token_budget < 1 or engine.max_sequences < 1 or engine.chunk_tokens < 1:
                raise FleetError(f"{name}: instances, sequences, chunk and token budget must be at least 1")
            if engine.max_context < 2:
                raise FleetError(f"{name}: a context holds 2 tokens at least, one of the prompt and one of the answer")
            if engine.max_context > engine.kv_tokens:
                raise FleetError(
                    f"{name}: a KV cache of {engine.kv_tokens} tokens does not hold one sequence of the "
                    f"{engine.max_context} of its context; lower max_context"
                )
        places = self.instances * max(pool.engine.max_sequences for pool in self.pools)
        if places > MOST_SEQUENCES:
            raise FleetError(
                f"{self.instances:,} instances of so many sequences are {places:,} in all; {MOST_SEQUENCES:,} "
                "can be simulated"
            )
        for failure in self.failures:
            if not (0 <= failure.pool < len(self.pools) and 0 <= failure.instance < self.pools[failure.pool].instances):
                raise FleetError(f"there is no instance {failure.instance} of pool {failure.pool} that could fail")

    @property
    def model(self) -> str:
        return self.pools[0].model

    @property
    def instances(self) -> int:
        return sum(pool.instances for pool in self.pools)

    @property
    def gpus(self) -> int:
        return sum(pool.instances * pool.engine.gpus for pool in self.pools)

    @property
    def dollars_per_hour(self) -> float:
        return sum(pool.instances * pool.engine.dollars_per_hour for pool in self.pools)


def with_classes(policy: Policy, contexts: Iterable[int]) -> Policy:
    """The policy with a context class for each of these contexts (tokens), the largest without a bound."""
    ascending = sorted(set(contexts))
    shorter = [ContextClass("short" if len(ascending) == 2 else f"to-{bound}", bound) for bound in ascending[:-1]]
    return replace(policy, context_classes=(*shorter, ContextClass("long", None)))
