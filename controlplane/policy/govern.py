"""What a request meets under its pool's pressure: it passes, or is degraded, held, sent to another model or rejected.

Pure. The pool's state comes with the routing table, what each state means for a tier from `policy.qos`; carrying it out
is the caller's.
"""

from __future__ import annotations

from itertools import pairwise

from msgspec import Struct, structs

from controlplane.model import Ask, Pool, Pressure, QosTier, Refusal, TierPressure
from controlplane.policy.qos import Measure, OutputCap, QosRules, TierRules


class Governing(Struct, frozen=True, gc=False):
    """By what one request is governed, whatever pool it comes to. `draw`, from 0 to 1, is for jitter."""

    qos: QosRules
    tier: QosTier
    waited_seconds: float = 0.0
    draw: float = 0.5

    @property
    def rules(self) -> TierRules:
        return self.qos.of(self.tier)


class Standing(Struct, frozen=True, gc=False):
    """How a pool stands to the requests of one QoS tier: how hard it is pressed for them, what the policy does about
    that, and how many tokens an answer may have where that is to degrade them."""

    pressure: TierPressure
    measure: Measure
    output_cap: int


class Course(Struct, frozen=True, gc=False):
    """What is done with a request. `output_limit` is set where it is degraded, and changes it; `held_seconds` where it
    is queued."""

    measure: Measure
    pressure: TierPressure | None = None
    output_limit: int | None = None
    held_seconds: float = 0.0


UNGOVERNED = Course(Measure.PASS)


def standing_of(pool: Pool, tier: QosTier, qos: QosRules) -> Standing:
    pressure, rules = pool.pressure_of(tier), qos.of(tier)
    return Standing(pressure, rules.measure(pressure.pressure), cap_at(pressure.level, rules.output_caps))


def course(ask: Ask, standing: Standing, by: Governing, *, fell_back: bool = False) -> Course:
    """What a request meets that is to go to a pool that stands like this. One that `fell_back` to it cannot fall any
    further."""
    pressure, measure = standing.pressure, standing.measure
    if measure is Measure.PASS or ask.endpoint not in by.qos.shapes:
        return Course(Measure.PASS, pressure)
    if measure is Measure.FALLBACK and fell_back:
        measure = _instead(pressure)
    if measure is Measure.REJECT and by.waited_seconds:
        measure = Measure.QUEUE  # who was let wait is not turned away, and goes on no sooner than who comes now
    if measure is Measure.DEGRADE:
        limit = max(standing.output_cap, ask.output_floor)
        if ask.output_cap is None or ask.output_cap > limit:
            return Course(measure, pressure, output_limit=limit)
        return Course(Measure.PASS, pressure)
    if measure is Measure.QUEUE:
        left = by.qos.aged_after_seconds - by.waited_seconds
        return Course(measure, pressure, held_seconds=left) if left > 0 else Course(Measure.PASS, pressure)
    return Course(measure, pressure)


def without_fallback(meets: Course) -> Course:
    """What is done where the model to fall back to cannot serve."""
    return structs.replace(meets, measure=_instead(meets.pressure))


def _instead(pressure: TierPressure | None) -> Measure:
    critical = pressure is not None and pressure.pressure is Pressure.CRITICAL
    return Measure.REJECT if critical else Measure.PASS


def cap_at(level: float, caps: tuple[OutputCap, ...]) -> int:
    """The most tokens of an answer at a level of pressure: on the line between the caps around it."""
    if level <= caps[0].level:
        return caps[0].tokens
    for low, high in pairwise(caps):
        if level <= high.level:
            share = (level - low.level) / (high.level - low.level)
            return round(low.tokens + share * (high.tokens - low.tokens))
    return caps[-1].tokens


def overloaded(model: str, by: Governing) -> Refusal:
    return Refusal(
        429,
        "rate_limit_error",
        "overloaded",
        f"`{model}` is under too much load to take more requests of the tier {by.tier.value}. Try again later.",
        retry_after=retry_after(by.qos, by.tier, by.draw),
    )


def retry_after(qos: QosRules, tier: QosTier, draw: float) -> float:
    """Seconds, spread so that those who were refused together do not come back together."""
    return qos.of(tier).retry_after_seconds * (1 + qos.retry_jitter * (2 * draw - 1))
