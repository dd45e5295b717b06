"""Estimates the tokens that a request will need, without a tokenizer and on the safe side.

A request sent to a pool that is too small for it fails; one sent to a pool that is too large only wastes room. So the
ratios are low (more tokens per byte than is likely) and every part of the prompt counts.
"""

from __future__ import annotations

from math import ceil

from controlplane.model import Ask, Budget
from controlplane.policy.estimator import Calibration
from controlplane.policy.features import Features
from controlplane.policy.settings import BudgetRules
from controlplane.policy.text import categorise

FROM_CLIENT = "client cap"
FROM_DEFAULT = "default"
FROM_LEARNED = "learned"
FROM_PRESSURE = "pressure"

_MOST_TOKENS = 2**32 - 1


def estimate(ask: Ask, rules: BudgetRules, max_context: int | None) -> Budget:
    """The budget of a request for which the largest ready pool holds `max_context` tokens (None when there is none).

    The client's cap counts once per choice, for each choice is written out. A default is cut to what `max_context`
    leaves, since an engine does the same when a request has no cap.
    """
    category = categorise(ask.text)
    ratio = rules.bytes_per_token.of(category)
    prompt = (
        ceil(ask.text.total / ratio)
        + ceil(ask.tool_bytes / rules.tool_bytes_per_token)
        + ask.messages * rules.tokens_per_message
        + ask.tools * rules.tokens_per_tool
        + ask.images * rules.tokens_per_image
        + ask.token_ids
    )
    if ask.output_cap is not None:
        output, source = ask.output_cap, FROM_CLIENT
    else:
        output, source = rules.default_output_tokens, FROM_DEFAULT
        if max_context is not None:
            output = max(1, min(output, max_context - prompt))
    return Budget(prompt, min(output * ask.choices, _MOST_TOKENS), category, ratio, source)


def sequence_tokens(budget: Budget, choices: int) -> int:
    """Tokens that one sequence of the request needs: a pool's context bounds each choice, not all of them together."""
    return budget.prompt_tokens + ceil(budget.output_tokens / choices)


def learned_budget(
    features: Features,
    calibration: Calibration,
    group: int,
    *,
    output_cap: int | None,
    choices: int,
    max_context: int | None,
) -> Budget:
    """The budget of a request by what is learned of its model and category, of a tenant of this group.

    As `estimate`, but without a client's cap the output is what most answers of this category do not exceed. That is
    an expectation and no cap: nothing is sent to the engine. The ratio is in bytes of text per conservative token.
    """
    prompt = ceil(calibration.prompt.estimate(features, group).conservative)
    if output_cap is not None:
        output, source = output_cap, FROM_CLIENT
    else:
        output, source = calibration.outputs[group], FROM_LEARNED
        if max_context is not None:
            output = max(1, min(output, max_context - prompt))
    tokens = min(output * choices, _MOST_TOKENS)
    return Budget(prompt, tokens, features.category, features.text.total / prompt, source)
