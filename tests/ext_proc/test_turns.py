"""Whose turn it is: strict between tiers with ageing, fair inside a tier by tokens. Facts rows: one tenant must not
starve its own tier; strict order between tiers with an aging guard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from controlplane.model import QosTier
from controlplane.policy.qos import Mode, QosRules
from ext_proc import turns
from ext_proc.turns import Claim, Turns

GUARANTEED, STANDARD, BEST_EFFORT = QosTier
RULES = QosRules(mode=Mode.ENABLED, aged_after_seconds=5.0, aged_turn=4)


@dataclass(eq=False)
class Waiter:
    number: int
    claim: Claim
    began: float = 0.0
    is_gone: bool = False


def governed() -> Turns:
    made = Turns()
    made.configure(RULES)
    return made


def waiting(*claims: tuple[QosTier, str, int]) -> list[Waiter]:
    return [Waiter(number, Claim(*claim)) for number, claim in enumerate(claims, 1)]


def serve(made: Turns, waiters: Sequence[Waiter], count: int, now: float = 0.0) -> list[Waiter]:
    """Lets the first `count` go on, one at a time, as credits come."""
    served = []
    for _ in range(count):
        first = next(made.in_order([each for each in waiters if not each.is_gone], now), None)
        if first is None:
            break
        first.is_gone = True
        made.went(first)
        served.append(first)
    return served


def test_without_governance_they_come_in_the_order_of_their_arrival() -> None:
    made = waiting((BEST_EFFORT, "a", 9), (GUARANTEED, "b", 1), (STANDARD, "a", 5))
    assert [each.number for each in Turns().in_order(reversed(made), 0.0)] == [1, 2, 3]


def test_the_better_tier_comes_first_and_equals_by_arrival() -> None:
    made = waiting((BEST_EFFORT, "a", 1), (STANDARD, "b", 1), (GUARANTEED, "c", 1), (STANDARD, "d", 1))
    assert [each.number for each in serve(governed(), made, 4)] == [3, 2, 4, 1]


def test_a_tenant_with_many_requests_does_not_starve_its_tier() -> None:
    made = waiting(*[(STANDARD, "many", 100)] * 20, (STANDARD, "few", 100), (STANDARD, "few", 100))
    first = [each.claim.tenant for each in serve(governed(), made, 4)]
    assert first == ["many", "few", "many", "few"]


def test_turns_are_fair_by_tokens_and_not_by_requests() -> None:
    """Facts row: one tenant must not starve its own tier."""
    made = waiting(*[(STANDARD, "long", 1000)] * 20, *[(STANDARD, "short", 100)] * 200)
    tokens: Counter[str] = Counter()
    for each in serve(governed(), made, 110):
        tokens[each.claim.tenant] += each.claim.tokens
    assert abs(tokens["long"] - tokens["short"]) <= 1000


def test_who_was_away_has_saved_nothing_up() -> None:
    made = governed()
    serve(made, waiting(*[(STANDARD, "busy", 100)] * 50), 50)
    both = waiting(*[(STANDARD, "busy", 100)] * 10, *[(STANDARD, "new", 100)] * 10)
    assert Counter(each.claim.tenant for each in serve(made, both, 10)) == {"busy": 5, "new": 5}


def test_who_left_is_not_counted_against_its_tenant() -> None:
    made = governed()
    leaving = waiting(*[(STANDARD, "left", 100)] * 10)
    serve(made, leaving, 1)
    again = waiting((STANDARD, "other", 100), (STANDARD, "left", 100), (STANDARD, "other", 100))
    assert [each.claim.tenant for each in serve(made, again, 3)] == ["other", "left", "other"]


def test_no_tier_starves_while_a_better_one_always_has_someone() -> None:
    """Facts row: queueing (strict order with an ageing guard)."""
    made = waiting((BEST_EFFORT, "a", 1), *[(GUARANTEED, "b", 1)] * 8)
    assert [each.claim.tier for each in serve(governed(), made, 9, now=4.9)][:8] == [GUARANTEED] * 8
    made = waiting((BEST_EFFORT, "a", 1), (BEST_EFFORT, "a", 1), *[(GUARANTEED, "b", 1)] * 8)
    served = [each.claim.tier for each in serve(governed(), made, 10, now=5.0)]
    assert served == [GUARANTEED] * 3 + [BEST_EFFORT] + [GUARANTEED] * 3 + [BEST_EFFORT] + [GUARANTEED] * 2


def test_the_aged_take_at_most_each_nth_turn() -> None:
    made = waiting(*[(BEST_EFFORT, "a", 1)] * 50, *[(GUARANTEED, "b", 1)] * 50)
    served = Counter(each.claim.tier for each in serve(governed(), made, 40, now=60.0))
    assert served == {GUARANTEED: 30, BEST_EFFORT: 10}


def test_what_is_remembered_of_tenants_is_bounded() -> None:
    made = governed()
    for each in waiting(*[(STANDARD, f"tenant-{number}", 1) for number in range(turns.MOST_TENANTS + 100)]):
        made.went(each)
    assert len(made._times[STANDARD]._ends) <= turns.MOST_TENANTS


@given(
    st.lists(
        st.tuples(st.sampled_from(list(QosTier)), st.sampled_from("abc"), st.integers(0, 500), st.floats(0, 20)),
        max_size=30,
    ),
    st.sets(st.integers(1, 30)),
)
def test_everybody_has_just_one_turn_and_a_tenants_own_keep_their_order(
    claims: list[tuple[QosTier, str, int, float]], stay: set[int]
) -> None:
    made = governed()
    waiters = [Waiter(number, Claim(*claim[:3]), claim[3]) for number, claim in enumerate(claims, 1)]
    offered = []
    for each in made.in_order(waiters, 20.0):
        offered.append(each)
        if each.number not in stay:  # the others find no room
            each.is_gone = True
            made.went(each)
    assert Counter(each.number for each in offered) == Counter(range(1, len(claims) + 1))
    young = [each for each in offered if 20.0 - each.began < 5.0]
    for tier in QosTier:
        for tenant in "abc":
            own = [each.number for each in young if (each.claim.tier, each.claim.tenant) == (tier, tenant)]
            assert own == sorted(own)
    assert [each.claim.tier for each in young] == sorted((each.claim.tier for each in young), key=list(QosTier).index)
