"""The tokens that a request will need, as far as that can be told without a tokenizer, and on the safe side.

A request sent to a pool that is too small for it fails; one sent to a pool that is too large only wastes room. So the
prompt is the conservative estimate, and all choices count in full.
"""

from __future__ import annotations

from math import ceil

from controlplane.features import Features
from controlplane.model import Budget, EstimateSource
from controlplane.policy.estimator import Calibrations

FROM_CLIENT = "client cap"
FROM_PRESSURE = "pressure"

_MOST_TOKENS = 2**32 - 1


def budget_of(
    features: Features,
    calibrations: Calibrations,
    model: str,
    group: int,
    *,
    output_cap: int | None,
    choices: int,
    max_context: int | None,
) -> Budget:
    """The budget of a request to a model by what is learned of it, for a tenant of this group. The largest ready pool
    holds `max_context` tokens (None when there is none).

    The client's cap counts once per choice, for each choice is written out. Without one the output is what most answers
    of this category do not exceed, cut to what `max_context` leaves, since an engine does the same. That is an
    expectation and no cap: nothing is sent to the engine.
    """
    category = features.category
    calibration = calibrations.of(model, category)
    if not calibration.samples:
        rests_on = EstimateSource.PRIOR
    elif model in calibrations.pinned:
        rests_on = EstimateSource.PINNED
    else:
        rests_on = EstimateSource.LEARNED
    expected = calibration.prompt.estimate(features, group)
    prompt = min(ceil(expected.conservative), _MOST_TOKENS)
    if output_cap is not None:
        output, output_from = output_cap, FROM_CLIENT
    else:
        output, output_from = calibration.outputs[group], rests_on.value
        if max_context is not None:
            output = max(1, min(output, max_context - prompt))
    return Budget(
        prompt_tokens=prompt,
        output_tokens=min(output * choices, _MOST_TOKENS),
        category=category,
        ratio=features.text.total / prompt,
        output_from=output_from,
        likely_prompt_tokens=min(ceil(expected.central), _MOST_TOKENS),
        rests_on=rests_on,
        samples=calibration.samples,
    )


def sequence_tokens(budget: Budget, choices: int) -> int:
    """Tokens that one sequence of the request needs: a pool's context bounds each choice, not all of them together."""
    return budget.prompt_tokens + ceil(budget.output_tokens / choices)
