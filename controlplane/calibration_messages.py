"""Between protobuf messages and what is learned of tokens. Refuses nothing but nonsense."""

from __future__ import annotations

from types import MappingProxyType

from controlplane.features import FEATURES, Category
from controlplane.policy.estimator import (
    TENANT_GROUPS,
    Calibration,
    Calibrations,
    LinearEstimator,
    PromptEstimator,
    RatioEstimator,
    unlearned,
)
from controlplane.policy.priors import PRIORS_VERSION
from controlplane.policy.settings import EstimationRules
from headrace_protos.headrace.v1 import calibration_pb2

_MOST_COUNT = 2**32 - 1


def calibrations_message(calibrations: Calibrations) -> calibration_pb2.Calibrations:
    return calibration_pb2.Calibrations(
        priors=PRIORS_VERSION,
        learned=[
            calibration_message(model, category, calibration)
            for (model, category), calibration in sorted(calibrations.learned.items())
        ],
        pinned_models=sorted(calibrations.pinned),
    )


def calibration_message(model: str, category: Category, calibration: Calibration) -> calibration_pb2.Calibration:
    message = calibration_pb2.Calibration(
        model=model,
        category=category,
        outputs=[min(tokens, _MOST_COUNT) for tokens in calibration.outputs],
        samples=calibration.samples,
    )
    match calibration.prompt:
        case LinearEstimator(coefficients, margins, own):
            message.coefficients.extend(coefficients)
            message.margins.extend(margins)
            for group, theirs in sorted(own.items()):
                message.own.add(group=group, coefficients=theirs)
        case RatioEstimator(ratio, conservative):
            message.ratio, message.conservative_ratio = ratio, conservative
    return message


def calibrations(message: calibration_pb2.Calibrations, rules: EstimationRules) -> Calibrations:
    """Priors where the message is relative to others than ours. Raises ValueError for what nobody can estimate by."""
    begun = unlearned(rules)
    if message.priors != PRIORS_VERSION:
        return begun
    learned = {(each.model, Category(each.category)): calibration(each) for each in message.learned}
    return Calibrations(MappingProxyType(learned), begun.priors, frozenset(message.pinned_models))


def calibration(message: calibration_pb2.Calibration) -> Calibration:
    """Raises ValueError for what nobody can estimate by."""
    prompt: PromptEstimator
    if len(message.coefficients) == len(FEATURES) and len(message.margins) == TENANT_GROUPS:
        own = {each.group: tuple(each.coefficients) for each in message.own}
        if any(len(theirs) != len(FEATURES) for theirs in own.values()):
            raise ValueError(f"the calibration of {message.model} has not {len(FEATURES)} coefficients for each group")
        prompt = LinearEstimator(tuple(message.coefficients), tuple(message.margins), MappingProxyType(own))
    elif message.ratio > 0 and message.conservative_ratio > 0:
        prompt = RatioEstimator(message.ratio, message.conservative_ratio)
    else:
        raise ValueError(f"the calibration of {message.model} has neither {len(FEATURES)} coefficients nor a ratio")
    if len(message.outputs) != TENANT_GROUPS:
        raise ValueError(f"the calibration of {message.model} has {len(message.outputs)} outputs, not {TENANT_GROUPS}")
    return Calibration(prompt, tuple(message.outputs), message.samples)
