"""The request behind a recorded decision, as far as deciding needs it. Its words are not recorded."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from controlplane.features import NO_FEATURES, Category, Features
from controlplane.messages import features
from controlplane.model import (
    Ask,
    Budget,
    Contribution,
    Endpoint,
    EstimateSource,
    FormatTier,
    QosTier,
    Reason,
    Sensitivity,
    Verdict,
)
from controlplane.policy.budget import FROM_CLIENT, FROM_PRESSURE
from controlplane.policy.estimator import TENANT_GROUPS, Calibration, Calibrations, Estimate
from controlplane.policy.govern import cap_at
from controlplane.policy.settings import Policy
from headrace_protos.headrace.v1 import decision_pb2


def ask_of(decision: decision_pb2.Decision, was: Policy) -> Ask:
    """A request that asks for the same and comes from the same client."""
    return Ask(
        endpoint=Endpoint(decision.endpoint),
        model=decision.asked_model or decision.model,
        features=features(decision.features) or NO_FEATURES,
        choices=max(decision.choices, 1),
        output_cap=decision.output_cap if decision.HasField("output_cap") else None,
        output_floor=_floor(decision, was),
        stream=decision.stream,
        session=decision.session or None,
        tenant=decision.tenant,
        preference=_preference(decision),
    )


def budget_of(decision: decision_pb2.Decision) -> Budget | None:
    if not decision.HasField("budget"):
        return None
    found = decision.budget
    return Budget(
        prompt_tokens=found.prompt_tokens,
        output_tokens=found.output_tokens,
        category=Category(found.category),
        ratio=found.ratio,
        output_from=found.output_from,
        likely_prompt_tokens=found.likely_prompt_tokens,
        rests_on=EstimateSource(found.rests_on),
        samples=found.samples,
    )


@dataclass(frozen=True, slots=True)
class _AsRecorded:
    """Stands in for the estimator: what was estimated then, with what was learned until then."""

    estimate_then: Estimate

    def estimate(self, _: Features, __: int) -> Estimate:
        return self.estimate_then


def calibrations_of(decision: decision_pb2.Decision, expected_output: int) -> Calibrations | None:
    """By which the request is estimated as it was. `expected_output` are the tokens of an answer without a cap, for
    where the record does not tell them; None where nothing was estimated."""
    budget = budget_of(decision)
    if budget is None:
        return None
    output = outputs_told(decision) or expected_output
    estimate = Estimate(budget.likely_prompt_tokens, budget.prompt_tokens)
    calibration = Calibration(_AsRecorded(estimate), (output,) * TENANT_GROUPS, budget.samples)
    return Calibrations(priors=MappingProxyType(dict.fromkeys(Category, calibration)))


def outputs_told(decision: decision_pb2.Decision) -> int | None:
    """The tokens that an answer was expected to have if its client had set no cap; None where the record has a cap in
    their place."""
    if not decision.HasField("budget") or decision.budget.output_from in {FROM_CLIENT, FROM_PRESSURE}:
        return None
    return max(decision.budget.output_tokens // max(decision.choices, 1), 1)


def sensitivity_of(decision: decision_pb2.Decision) -> Sensitivity | None:
    if not decision.HasField("sensitivity"):
        return None
    found = decision.sensitivity
    parts = tuple(Contribution(part.name, part.points, part.why) for part in found.contributions)
    return Sensitivity(Verdict(found.verdict), found.score, parts)


def _floor(decision: decision_pb2.Decision, was: Policy) -> int:
    """What the client asked for at least, where it shows: the cap was not as low as the pressure would have it."""
    if not decision.output_limit or not decision.HasField("pressure"):
        return 0
    rules = next((was.qos.of(tier) for tier in QosTier if tier == decision.pressure.qos_tier), None)
    if rules is None or decision.output_limit <= cap_at(decision.pressure.level, rules.output_caps):
        return 0
    return decision.output_limit


def _preference(decision: decision_pb2.Decision) -> FormatTier | None:
    """The format tier that the client asked for: the one that its session does not keep to, or that of the pools which
    its wish spoke for."""
    if Reason.PREFERENCE_PINNED in decision.reasons:
        return next(tier for tier in FormatTier if tier != decision.pinned)
    if not {Reason.CLIENT_PREFERENCE, Reason.PREFERENCE_NOT_MET}.intersection(decision.reasons):
        return None
    serving = [found for found in decision.alternatives if not found.excluded_by]
    tiers = {found.pool.partition("=")[0].rsplit("/", 3)[1]: found.scores.get("tier", 0.0) for found in serving}
    for tier, mark in tiers.items():
        if mark == 1.0:
            return FormatTier(tier)
    return next((tier for tier in FormatTier if tier not in tiers), None)
