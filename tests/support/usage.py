"""Usage reports of an imagined tokenizer, for the tests of what is learned from them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from controlplane.features import Features
from controlplane.learning.calibration import calibrate
from controlplane.learning.statistics import Observation, Statistics, fold, merge
from controlplane.messages import features_message
from controlplane.policy.estimator import TENANT_GROUPS, Calibrations, group_of, unlearned
from controlplane.policy.priors import PRIOR_COEFFICIENTS
from controlplane.policy.settings import EstimationRules
from controlplane.policy.text import count_text
from headrace_protos.headrace.v1 import decision_pb2

RULES = EstimationRules()
MODEL = "llama"
# One tenant of each group.
TENANTS = tuple(
    next(f"tenant-{number}" for number in range(1000) if group_of(f"tenant-{number}") == group)
    for group in range(TENANT_GROUPS)
)
_SENTENCES = {
    "prose": (
        "The council met on Tuesday to discuss the plans. ",
        "Several members asked how it had been worked out, ",
        "and nobody knew. ",
        "It was late; the Harbour Master had gone home.\n",
        "In 1998 there were 42 ships. ",
    ),
    "code": (
        "def total(items):\n",
        "    return sum(item.price * item.count for item in items)\n",
        "import os\n\n",
        "    if not value: raise ValueError(f'{value!r}')\n",
        "X = {'a': 1, 'b': [2, 3]}\n",
    ),
    "cjk": (
        "今天天气很好。",
        "我们去公园散步吧。",
        "昨夜の雪で庭の木が折れた。",
        "会议在星期二下午三点。",
        "价格是四十二元。\n",
    ),
    "mixed": (
        "Погода сегодня хорошая, ",
        "пойдём гулять. ",
        "الطقس جميل اليوم ",
        "Café crème, s'il vous plaît. ",
        "OK 7\n",
    ),
}


def make_features(kind: str, sentences: int, seed: int) -> Features:
    dice = random.Random(f"{kind} {sentences} {seed}")
    return Features(count_text("".join(dice.choices(_SENTENCES[kind], k=sentences))), messages=dice.randrange(1, 4))


def tokens_of(features: Features, factor: float = 1.0) -> int:
    """By a tokenizer that needs `factor` times what the prior expects."""
    return max(1, round(factor * sum(c * v for c, v in zip(PRIOR_COEFFICIENTS, features.vector, strict=True))))


def report(
    kind: str = "prose",
    number: int = 0,
    *,
    tenant: str = TENANTS[0],
    factor: float = 1.2,
    model: str = MODEL,
    output_tokens: int | None = None,
    output_cap: int | None = None,
) -> Observation:
    """The usage of one request; those of other numbers have other texts, of some 500 to 5000 bytes."""
    features = make_features(kind, 10 + number * 37 % 90, number)
    return Observation(model, tenant, features, tokens_of(features, factor), output_tokens, output_cap, output_cap or 0)


def folded(
    observations: Sequence[Observation],
    rules: EstimationRules = RULES,
    *,
    into: Statistics | None = None,
    start: float = 1000.0,
    calibrations: Calibrations | None = None,
) -> Statistics:
    """One report per second; judged and trusted by the calibrations given, by default those of nothing learned."""
    statistics = into or Statistics()
    for number, observation in enumerate(observations):
        fold(statistics, observation, calibrations or unlearned(rules), rules, now=start + number)
    return statistics


def learned(observations: Sequence[Observation], rules: EstimationRules = RULES, every: int = 10) -> Calibrations:
    """As the control plane does it: it learns, and calibrates anew after so many reports."""
    statistics, calibrations = Statistics(), unlearned(rules)
    for number in range(0, len(observations), every):
        part = observations[number : number + every]
        folded(part, rules, into=statistics, start=1000.0 + number, calibrations=calibrations)
        calibrations = calibrate(merge([statistics], 1000.0 + number + every), rules)
    return calibrations


def recorded(observation: Observation, **outcome: Any) -> decision_pb2.RecordedDecision:
    """As the access log brings it when the engine counted so many tokens."""
    decision = decision_pb2.Decision(
        pool=f"{observation.model}/full/short/on_demand",
        model=observation.model,
        tenant=observation.tenant,
        features=features_message(observation.features),
        output_cap=observation.output_cap,
        choices=1,
        budget=decision_pb2.Budget(category=observation.features.category, output_tokens=observation.reserved_output),
    )
    told = {
        "status": 200,
        "prompt_tokens": observation.prompt_tokens,
        "completion_tokens": observation.output_tokens,
        **outcome,
    }
    return decision_pb2.RecordedDecision(decision=decision, outcome=decision_pb2.Outcome(**told))
