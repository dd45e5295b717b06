"""Features and calibrations as messages: what comes out is what went in, and nonsense is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.calibration_messages import calibrations, calibrations_message
from controlplane.features import FEATURES, Category
from controlplane.policy.estimator import (
    TENANT_GROUPS,
    Calibration,
    Calibrations,
    LinearEstimator,
    RatioEstimator,
    unlearned,
)
from controlplane.policy.settings import EstimationRules, Estimator
from headrace_protos.headrace.v1 import calibration_pb2

RULES = EstimationRules()
NUMBERS = st.floats(-1e6, 1e6)
RATIOS = st.floats(0.5, 16)
LINEAR = st.builds(
    LinearEstimator,
    st.tuples(*[NUMBERS] * len(FEATURES)),
    st.tuples(*[st.floats(1, 2)] * TENANT_GROUPS),
    st.dictionaries(st.integers(0, TENANT_GROUPS - 1), st.tuples(*[NUMBERS] * len(FEATURES)), max_size=3),
)
CALIBRATIONS = st.builds(
    Calibration,
    st.one_of(LINEAR, st.builds(RatioEstimator, RATIOS, RATIOS)),
    st.tuples(*[st.integers(1, 2**32 - 1)] * TENANT_GROUPS),
    st.integers(1, 10**9),
)


@given(
    st.dictionaries(st.tuples(st.text(max_size=20), st.sampled_from(Category)), CALIBRATIONS, max_size=4),
    st.frozensets(st.text(max_size=20), max_size=3),
)
def test_calibrations_come_through_exactly(learned: dict[tuple[str, Category], Calibration], pinned: Any) -> None:
    given_ = Calibrations(learned, unlearned(RULES).priors, pinned)
    message = calibration_pb2.Calibrations.FromString(calibrations_message(given_).SerializeToString())
    assert calibrations(message, RULES) == given_


def test_those_of_other_priors_say_nothing() -> None:
    message = calibrations_message(Calibrations({("m", Category.CODE): Calibration(LinearEstimator(), samples=3)}))
    message.priors += 1
    assert calibrations(message, RULES) == unlearned(RULES)


def test_priors_are_those_of_the_estimator() -> None:
    ratio = EstimationRules(estimator=Estimator.RATIO)
    assert calibrations(calibrations_message(Calibrations()), ratio) == unlearned(ratio)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda each: each.coefficients.pop(),
        lambda each: each.margins.append(1.0),
        lambda each: each.own.add(group=1, coefficients=[1.0]),
        lambda each: each.outputs.pop(),
        lambda each: setattr(each, "category", "poem"),
    ],
)
def test_what_nobody_can_estimate_by_is_refused(spoil: Callable[[calibration_pb2.Calibration], Any]) -> None:
    message = calibrations_message(Calibrations({("m", Category.CODE): Calibration(LinearEstimator(), samples=3)}))
    spoil(message.learned[0])
    with pytest.raises(ValueError, match=r"m|poem"):
        calibrations(message, RULES)
