"""What the system makes of requests, by the same function that its control planes explain with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controlplane.messages import decision_message
from controlplane.model import FormatTier, HttpRequest, Verdict
from controlplane.policy.explain import explain_request
from controlplane.policy.settings import Policy, TenantRules
from controlplane.policy.table import RoutingTable
from headrace_protos.headrace.v1 import decision_pb2
from planner.quality.judging import Judged, Sending, judge
from planner.quality.sample import Sample
from support.asks import OVERLOADED, make_pool, make_table

BOTH = (make_pool("full"), make_pool("quantized"))
STORY = {"temperature": 0.9, "messages": [{"role": "user", "content": "Tell me a story about a fox."}]}


def sending(policy: Policy, **more: Any) -> Sending:
    return Sending(max_tokens=64, seed=1, policy=policy, default_model="llama", **more)


async def judged(sample: Sample, table: RoutingTable, **more: Any) -> Judged | str:
    """The one request judged, or why it is set aside."""
    asked: list[HttpRequest] = []

    async def explain(request: HttpRequest) -> decision_pb2.Decision:
        asked.append(request)
        return decision_message(explain_request(request, table))

    found, aside = await judge([sample], sending(table.policy, **more), explain)
    assert all("x-session-id" not in request.headers for request in asked)
    return found[0] if found else aside[0].reason


async def test_a_request_is_judged_as_it_is_and_not_as_it_will_be_sent() -> None:
    found = await judged(Sample(1, STORY, headers={"x-session-id": "s"}), make_table(*BOTH))
    assert isinstance(found, Judged)
    assert (found.verdict, found.score, found.model) == (Verdict.TOLERANT, -130, "llama")
    assert [part.name for part in found.contributions] == ["hot", "creative_words"]


async def test_the_category_is_the_samples_or_what_its_text_consists_of() -> None:
    named = await judged(Sample(1, STORY, category="tales"), make_table(*BOTH))
    unnamed = await judged(Sample(1, STORY), make_table(*BOTH))
    assert isinstance(named, Judged)
    assert isinstance(unnamed, Judged)
    assert (named.category, unnamed.category) == ("tales", "prose")


async def test_the_model_is_the_chosen_one_else_the_requests_own_else_the_only_one() -> None:
    table = make_table(*BOTH, make_pool("full", model="qwen"), make_pool("quantized", model="qwen"))
    own = Sample(1, {**STORY, "model": "qwen"})
    for sample, more, model in ((own, {}, "qwen"), (own, {"model": "llama"}, "llama"), (Sample(1, STORY), {}, "llama")):
        found = await judged(sample, table, **more)
        assert isinstance(found, Judged)
        assert found.model == model
    assert "--model" in str(
        (await judge([Sample(1, STORY)], replace(sending(Policy()), default_model=None), unasked))[1]
    )


async def unasked(_: HttpRequest) -> decision_pb2.Decision:
    raise AssertionError


async def test_a_policy_that_does_not_count_the_wish_is_named_with_what_to_do() -> None:
    policy = Policy(tenants=TenantRules(client_may_prefer=(FormatTier.FULL,)))
    why = await judged(Sample(1, STORY), make_table(*BOTH, policy=policy))
    # A tolerant request would go there by itself, one that is not would not.
    assert isinstance(why, Judged)
    code = {"temperature": 0, "messages": [{"role": "user", "content": "Write a Python function."}]}
    why = await judged(Sample(1, code), make_table(*BOTH, policy=policy))
    assert isinstance(why, str)
    assert "does not let clients ask for the quantized tier" in why
    assert "tenants.client_may_prefer" in why


@pytest.mark.parametrize(
    ("pools", "words"),
    [
        ((make_pool("full"),), "no node that serves llama in the quantized tier is ready"),
        (
            (make_pool("full"), make_pool("quantized", ready=0)),
            "no node that serves llama in the quantized tier is ready",
        ),
        ((make_pool("full", load=OVERLOADED), make_pool("quantized")), ""),
        ((make_pool("full"), make_pool("quantized", load=OVERLOADED)), "the quantized tier of llama is too busy now"),
        (
            (make_pool("full"), make_pool("quantized", max_context=40)),
            "no quantized pool of llama has a context",
        ),
        ((make_pool("full", model="qwen"),), "does not exist here"),
    ],
)
async def test_a_tier_that_would_not_answer_is_named_with_the_reason(pools: tuple[Any, ...], words: str) -> None:
    found = await judged(Sample(1, STORY), make_table(*pools))
    if words:
        assert isinstance(found, str)
        assert words in found
    else:
        assert isinstance(found, Judged)
