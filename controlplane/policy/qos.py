"""QoS governance as a person configures it: what each tier's requests meet under pressure, and where they may go.

`pressure` has the thresholds' meaning, `govern` does what is said here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Annotated

from annotated_types import Ge, Le, MinLen

from controlplane.model import Endpoint, Pressure, QosTier
from controlplane.policy.pressure import Limits, Stability

# Where a request's output can be capped and its model replaced.
SHAPEABLE = (Endpoint.CHAT, Endpoint.COMPLETIONS, Endpoint.RESPONSES, Endpoint.MESSAGES)


class Mode(StrEnum):
    DISABLED = "disabled"
    DRY_RUN = "dry_run"  # requests go as without governance; decisions say what it would have done
    ENABLED = "enabled"


class Measure(StrEnum):
    """What is done with a tier's requests under pressure."""

    PASS = "pass"  # noqa: S105 - what is done, no password
    DEGRADE = "degrade"  # cap the output by `output_caps`
    QUEUE = "queue"  # hold it in the line until the pressure falls, at most until it has aged
    FALLBACK = "fallback"  # send it to `fallback_model`
    REJECT = "reject"  # 429


class SpotUse(StrEnum):
    """Whether a tier's requests go to spot nodes."""

    NEVER = "never"
    LAST = "last"  # where no on-demand pool could serve the request
    PREFERRED = "preferred"


@dataclass(frozen=True, slots=True)
class OutputCap:
    """At this level of pressure an answer has at most so many tokens.

    The level is 0 where a signal reaches `elevated_at`, and 1 where it reaches `critical_at`.
    """

    level: Annotated[float, Ge(0), Le(1)]
    tokens: Annotated[int, Ge(1)]


@dataclass(frozen=True, slots=True)
class TierRules:
    """What holds for one tier's requests.

    Between two `output_caps` the cap is in between. `longest_wait_seconds`, of one request, and `most_waiting`, of one
    filter worker, bound the tier's line in the place of `policy.waiting`. `retry_after_seconds` goes with refusals.
    """

    elevated_at: Limits = field(default_factory=Limits)
    critical_at: Limits = field(default_factory=Limits)
    when_elevated: Measure = Measure.PASS
    when_critical: Measure = Measure.REJECT
    output_caps: Annotated[tuple[OutputCap, ...], MinLen(1)] = (OutputCap(0.0, 1024), OutputCap(1.0, 256))
    fallback_model: Annotated[str, MinLen(1)] | None = None
    spot: SpotUse = SpotUse.LAST
    longest_wait_seconds: Annotated[float, Ge(0), Le(3600)] = 30.0
    most_waiting: Annotated[int, Ge(0), Le(100_000)] = 1000
    retry_after_seconds: Annotated[float, Ge(1), Le(3600)] = 5.0

    def measure(self, pressure: Pressure) -> Measure:
        match pressure:
            case Pressure.NORMAL:
                return Measure.PASS
            case Pressure.ELEVATED:
                return self.when_elevated
            case Pressure.CRITICAL:
                return self.when_critical


# The limits of KV-cache use are the published ones; the others are where engines that are asked for more than they do
# begin to be, and where most of their queue is late. A standard request waits for as long as leaves an engine
# with a full batch time to keep the promise of 5 s; a guaranteed one is rather answered late than refused.
_GUARANTEED = TierRules(
    elevated_at=Limits(0.95, 32.0, 0.20),
    critical_at=Limits(1.0, 64.0),
    when_elevated=Measure.DEGRADE,
    output_caps=(OutputCap(0.0, 2048), OutputCap(1.0, 512)),
)
_STANDARD = TierRules(
    elevated_at=Limits(0.70, 8.0, 0.10),
    critical_at=Limits(0.90, 32.0, 0.30),
    when_elevated=Measure.DEGRADE,
    longest_wait_seconds=3.5,
    most_waiting=500,
    retry_after_seconds=10.0,
)
_BEST_EFFORT = TierRules(
    critical_at=Limits(0.60, 8.0, 0.10),
    output_caps=(OutputCap(0.0, 512), OutputCap(1.0, 128)),
    spot=SpotUse.PREFERRED,
    longest_wait_seconds=15.0,
    most_waiting=200,
    retry_after_seconds=30.0,
)


@dataclass(frozen=True, slots=True)
class QosRules:
    """The table of tiers, and what holds for all of them.

    Only requests to the APIs in `shapes` are degraded, held, sent to another model or rejected; all go where their tier
    may go. With `engine_priority` engines are told the tier, as vLLM's `priority` (0 is best), which vLLM
    refuses unless it schedules by priority. A signal is what it is for its tier and all better ones, so that a broken
    promise to a better tier presses the worse ones.

    Of two tiers that wait, the better one comes first; after `aged_turn` - 1 turns the next one is that of whoever has
    waited longest, if for `aged_after_seconds`. Within a tier tenants have turns alike, by tokens.
    A refusal's Retry-After varies by the share `retry_jitter` either way.
    """

    mode: Mode = Mode.DISABLED
    shapes: tuple[Endpoint, ...] = (Endpoint.CHAT, Endpoint.COMPLETIONS)
    engine_priority: bool = False
    stability: Stability = field(default_factory=Stability)
    guaranteed: TierRules = _GUARANTEED
    standard: TierRules = _STANDARD
    best_effort: TierRules = _BEST_EFFORT
    aged_after_seconds: Annotated[float, Ge(0), Le(3600)] = 5.0
    aged_turn: Annotated[int, Ge(2)] = 10
    retry_jitter: Annotated[float, Ge(0), Le(1)] = 0.5

    def of(self, tier: QosTier) -> TierRules:
        match tier:
            case QosTier.GUARANTEED:
                return self.guaranteed
            case QosTier.STANDARD:
                return self.standard
            case QosTier.BEST_EFFORT:
                return self.best_effort


def qos_faults(rules: QosRules) -> Iterator[str]:
    """Every contradiction, each as `field: what is wrong and what to do`."""
    for endpoint in rules.shapes:
        if endpoint not in SHAPEABLE:
            yield f"qos.shapes: {endpoint} cannot be shaped; use {', '.join(SHAPEABLE)}"
    if rules.mode is Mode.ENABLED and rules.engine_priority and not rules.shapes:
        yield "qos.engine_priority: is told with shaped requests, and qos.shapes is empty; name the APIs there"
    for tier in QosTier:
        yield from _tier_faults(f"qos.{tier}", rules.of(tier), rules.stability)


def _tier_faults(where: str, rules: TierRules, stability: Stability) -> Iterator[str]:
    for each in fields(Limits):
        elevated = getattr(rules.elevated_at, each.name)
        critical = getattr(rules.critical_at, each.name)
        if elevated is not None and critical is not None and elevated > critical:
            yield f"{where}.elevated_at.{each.name}: must not be above {where}.critical_at.{each.name}"
        for stage, limit in (("elevated_at", elevated), ("critical_at", critical)):
            margin = stability.hysteresis * (limit or 0.0 if each.name == "waiting_per_node" else 1.0)
            if limit is not None and limit <= margin:
                yield (
                    f"{where}.{stage}.{each.name}: would never end once begun; must be above 0 and above what "
                    "qos.stability.hysteresis takes off"
                )
    levels = [cap.level for cap in rules.output_caps]
    if levels != sorted(set(levels)):
        yield f"{where}.output_caps: levels must grow from cap to cap"
    tokens = [cap.tokens for cap in rules.output_caps]
    if tokens != sorted(tokens, reverse=True):
        yield f"{where}.output_caps: tokens must not grow with the level"
    for stage, measure in (("when_elevated", rules.when_elevated), ("when_critical", rules.when_critical)):
        if measure is Measure.FALLBACK and rules.fallback_model is None:
            yield f"{where}.{stage}: there is no model to fall back to; set {where}.fallback_model"
