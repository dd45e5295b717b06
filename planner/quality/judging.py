"""What the system in force makes of each request, before any is sent: its verdict, and whether both tiers would answer.

The control plane explains; how it is reached is passed in.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from controlplane.model import Ask, Contribution, FormatTier, HttpRequest, Reason, Refusal, Verdict
from controlplane.policy.ask import parse
from controlplane.policy.select import CONTEXT_TOO_SMALL
from controlplane.policy.settings import Policy
from headrace_protos.headrace.v1 import decision_pb2
from planner.quality.asking import Mode, body_to_send, headers_to_send, is_greedy
from planner.quality.sample import Sample

Explain = Callable[[HttpRequest], Awaitable[decision_pb2.Decision]]


@dataclass(frozen=True, slots=True)
class Judged:
    """A request that both tiers would answer. `category` is the sample's, or what its text consists of where it has
    none. `ask` and `output_tokens` are what its sensitivity is judged by."""

    sample: Sample
    model: str
    category: str
    verdict: Verdict
    score: float
    contributions: tuple[Contribution, ...]
    ask: Ask
    output_tokens: int

    @property
    def greedy(self) -> bool:
        return is_greedy(self.sample.body)


@dataclass(frozen=True, slots=True)
class SetAside:
    """A request that is not sent, and why; the reason holds nothing of it but its model's name."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Sending:
    """How requests are sent: each answer of at most `max_tokens`. `model` replaces the requests' own where it is given,
    else `default_model` stands in where they have none. `headers` go with each."""

    max_tokens: int
    seed: int
    policy: Policy
    model: str | None = None
    default_model: str | None = None
    headers: Mapping[str, str] | None = None

    def request(
        self, sample: Sample, mode: Mode, model: str, tier: FormatTier
    ) -> tuple[dict[str, object], dict[str, str]]:
        """Body and headers."""
        rules = self.policy.sessions
        body = body_to_send(sample, mode, model, max_tokens=self.max_tokens, seed=self.seed, rules=rules)
        return body, headers_to_send(sample, self.headers or {}, tier, rules)


async def judge(samples: Iterable[Sample], sending: Sending, explain: Explain) -> tuple[list[Judged], list[SetAside]]:
    judged: list[Judged] = []
    aside: list[SetAside] = []
    for sample in samples:
        found = await _judge(sample, sending, explain)
        if isinstance(found, Judged):
            judged.append(found)
        else:
            aside.append(SetAside(sample.number, found))
    return judged, aside


async def _judge(sample: Sample, sending: Sending, explain: Explain) -> Judged | str:
    model = sending.model or sample.body.get("model") or sending.default_model
    if not isinstance(model, str):
        return "it names no model, and there is not just one that both tiers serve; name one with --model"
    for tier in FormatTier:
        body, headers = sending.request(sample, Mode.AS_ASKED, model, tier)
        decision = await explain(HttpRequest("POST", sample.path, headers, json.dumps(body).encode()))
        if decision.tier != tier:
            return _why_not(decision, tier, model)
    headers = {name: value for name, value in headers.items() if not name.startswith("x-headrace-")}
    request = HttpRequest("POST", sample.path, headers, json.dumps({**sample.body, "model": model}).encode())
    ask = parse(request, sending.policy)
    decision = await explain(request)
    if isinstance(ask, Refusal) or not decision.HasField("sensitivity"):
        return "the policy does not judge such requests"
    return Judged(
        sample=sample,
        model=model,
        category=sample.category or decision.budget.category,
        verdict=Verdict(decision.sensitivity.verdict),
        score=decision.sensitivity.score,
        contributions=tuple(Contribution(c.name, c.points, c.why) for c in decision.sensitivity.contributions),
        ask=ask,
        output_tokens=decision.budget.output_tokens // ask.choices,
    )


def _why_not(decision: decision_pb2.Decision, tier: FormatTier, model: str) -> str:
    """Why the tier that was wished for would not answer, and what to do."""
    if decision.HasField("refusal"):
        return decision.refusal.message
    if Reason.PREFERENCE_NOT_ALLOWED in decision.reasons:
        return (
            f"the policy does not let clients ask for the {tier} tier; add {tier} to tenants.client_may_prefer of the "
            "policy while you evaluate (`headrace policy get`, edit, `headrace policy set`)"
        )
    # Pools are named model/tier/context class/capacity type.
    if any(a.excluded_by == CONTEXT_TOO_SMALL and f"/{tier}/" in a.pool for a in decision.alternatives):
        return f"no {tier} pool of {model} has a context that is long enough for it"
    if Reason.SPILLED_UNDER_LOAD in decision.reasons:
        return f"the {tier} tier of {model} is too busy now; evaluate when there is less traffic"
    return (
        f"no node that serves {model} in the {tier} tier is ready; `headrace pools` shows those that there are, and "
        "`headrace node --format ...` beside an engine adds one"
    )
