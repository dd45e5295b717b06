"""A fleet as it is planned: pools of like engines, each for the requests of one format tier and context class."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.model import FormatTier
from planner.sizing.pools import PoolSize


@dataclass(frozen=True, slots=True)
class PlannedPool:
    """For the requests of its tier that need more than `above` and at most `up_to` tokens; they are `share` of all."""

    tier: FormatTier
    above: int
    up_to: int
    share: float
    size: PoolSize


@dataclass(frozen=True, slots=True)
class PlannedFleet:
    """`pools` by tier and context, and at least one."""

    pools: tuple[PlannedPool, ...]

    @property
    def bounds(self) -> tuple[int, ...]:
        """Where the context classes part, in tokens; the last one's is left out."""
        return tuple(sorted({pool.up_to for pool in self.pools}))[:-1]

    @property
    def context(self) -> int:
        """The most tokens that any of its engines takes."""
        return max(pool.up_to for pool in self.pools)

    @property
    def instances(self) -> int:
        return sum(pool.size.instances for pool in self.pools)

    @property
    def gpus(self) -> int:
        return sum(pool.size.gpus for pool in self.pools)

    @property
    def dollars_per_hour(self) -> float:
        return sum(pool.size.dollars_per_hour for pool in self.pools)

    @property
    def kilowatts(self) -> float | None:
        """None where the power of any engine is not known."""
        watts = [pool.size.watts for pool in self.pools]
        return sum(each for each in watts if each is not None) / 1000 if None not in watts else None

    def cost(self, dollars_per_kwh: float) -> float:
        """Dollars an hour, with the energy where that is to be paid for by itself."""
        return self.dollars_per_hour + dollars_per_kwh * (self.kilowatts or 0.0)
