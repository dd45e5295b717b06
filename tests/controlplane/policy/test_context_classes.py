"""Three and more context classes: where a request goes, when it leaves, and what its decision says of the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.model import Ask, Contexts, Decision, Pool, PoolLoad, Reason
from controlplane.policy.decide import decide
from controlplane.policy.settings import ContextClass, Policy
from support.asks import BUSY, IDLE, OVERLOADED, make_chat, make_pool, make_table

POLICY = Policy(context_classes=(ContextClass("small", 4096), ContextClass("middle", 16_384), ContextClass("large")))
SIZES = {"small": 4096, "middle": 16_384, "large": 131_072}


def pools(**loads: PoolLoad) -> list[Pool]:
    """One pool of each class; idle unless a load is given."""
    return [make_pool("full", name, max_context=size, load=loads.get(name, IDLE)) for name, size in SIZES.items()]


def ask(tokens: int) -> Ask:
    """Of about so many tokens, nearly all of them for the answer."""
    return make_chat("Go on", max_tokens=tokens, temperature=0.5)


def decided(tokens: int, *given: Pool) -> Decision:
    return decide(ask(tokens), make_table(*given, policy=POLICY), None)


def where(decision: Decision) -> str:
    assert decision.pool is not None, decision
    return decision.pool.context_class


@pytest.mark.parametrize(
    ("tokens", "loads", "to"),
    [
        (100, {}, "small"),
        (8000, {}, "middle"),
        (50_000, {}, "large"),
        # Beyond what the last one's engines hold: its class has no bound, and the engine decides.
        (500_000, {}, "large"),
        # Under load one class up, not two, unless that one is full as well.
        (100, {"small": OVERLOADED}, "middle"),
        (100, {"small": OVERLOADED, "middle": BUSY}, "large"),
        (8000, {"middle": OVERLOADED}, "large"),
        # A pool that is only busy is not left, and with room nowhere the first choice keeps it.
        (100, {"small": BUSY}, "small"),
        (100, dict.fromkeys(SIZES, OVERLOADED), "small"),
        # Never down to what does not hold it, however idle.
        (8000, {"middle": OVERLOADED, "large": OVERLOADED}, "middle"),
        (50_000, {"large": OVERLOADED}, "large"),
    ],
)
def test_a_request_goes_to_the_smallest_class_that_holds_it_and_leaves_it_upward_only(
    tokens: int, loads: dict[str, PoolLoad], to: str
) -> None:
    """Facts row: decision order."""
    decision = decided(tokens, *pools(**loads))
    assert where(decision) == to
    preferred = where(decided(tokens, *pools()))
    assert (Reason.SPILLED_UNDER_LOAD in decision.reasons) == (to != preferred)


def test_down_to_a_class_that_holds_it_a_request_goes_from_another_tier() -> None:
    """A tolerant one prefers the quantized pools, whose smallest context that holds it is large; of the full tier a
    smaller one will do. Facts row: decision order."""
    story = make_chat("Write a short story", max_tokens=8000, temperature=1)
    large = make_pool("quantized", "large", max_context=131_072, load=OVERLOADED)
    for small in (4096, 16_384):
        full = make_pool("full", "small" if small == 4096 else "middle", max_context=small, load=IDLE)
        decision = decide(story, make_table(large, full, policy=POLICY), None)
        assert decision.pool == (full if small == 16_384 else large)


# --- what the decision says of the classes around ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "loads", "contexts"),
    [
        (100, {}, Contexts(4096, smaller=0, larger=131_072)),
        (8000, {}, Contexts(16_384, smaller=4096, larger=131_072)),
        (50_000, {}, Contexts(131_072, smaller=16_384, larger=0)),
        # A class that was left for its load would have held it, and is none that only the budget kept it from.
        (100, {"small": OVERLOADED}, Contexts(16_384, smaller=0, larger=131_072)),
        (8000, {"middle": OVERLOADED}, Contexts(131_072, smaller=4096, larger=0)),
    ],
)
def test_a_decision_says_what_the_classes_around_would_have_held(
    tokens: int, loads: dict[str, PoolLoad], contexts: Contexts
) -> None:
    assert decided(tokens, *pools(**loads)).contexts == contexts


def test_classes_that_could_not_have_been_chosen_are_none() -> None:
    small, middle, large = pools()
    away = replace(small, ready_nodes=0)
    assert decided(8000, away, middle, replace(large, ready_nodes=0)).contexts == Contexts(16_384)
    quantized = make_pool("quantized", "large", max_context=131_072)
    sensitive = make_chat("Write Python code", max_tokens=100, temperature=0)
    assert decide(sensitive, make_table(small, quantized, policy=POLICY), None).contexts == Contexts(4096)


def test_without_a_budget_or_a_pool_nothing_is_said_of_classes() -> None:
    assert decided(8000, *(replace(pool, ready_nodes=0) for pool in pools())).contexts is None
