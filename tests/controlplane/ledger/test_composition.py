"""What the traffic consists of, and when it is too much for the full nodes. Facts row: limit."""

from __future__ import annotations

import pytest

from controlplane.fleet import form_fleet
from controlplane.ledger.composition import SLOT_SECONDS, Assessment, CompositionWatch
from controlplane.ledger.encoding import ended_of
from controlplane.model import NodeSession
from controlplane.policy.settings import CompositionRules, Policy
from headrace_protos.headrace.v1 import decision_pb2
from support.nodes import node

RULES = CompositionRules(window_seconds=900, minimum_requests=100)
BOTH_TIERS = form_fleet(
    [NodeSession("a", node("a"), 0.0), NodeSession("b", node("b", "10.0.0.2:8000", "int4-awq"), 0.0)],
    {},
    Policy(),
    0.0,
)
FULL_ONLY = form_fleet([NodeSession("a", node("a"), 0.0)], {}, Policy(), 0.0)


def recorded(
    verdict: str = "neutral", pinned: str = "", score: float = 0.0, model: str = "llama", status: int = 200
) -> decision_pb2.RecordedDecision:
    return decision_pb2.RecordedDecision(
        decision=decision_pb2.Decision(
            model=model, pinned=pinned, sensitivity=decision_pb2.Sensitivity(verdict=verdict, score=score)
        ),
        outcome=decision_pb2.Outcome(status=status),
    )


class Watched:
    def __init__(self) -> None:
        self.now = 5000.0
        self.watch = CompositionWatch(lambda: self.now)
        self.watch.view_published(BOTH_TIERS)

    def send(self, count: int, verdict: str, pinned: str = "", **more: float) -> None:
        for _ in range(count):
            self.watch.request_finished(ended_of(recorded(verdict, pinned, **more)))  # type: ignore[arg-type]

    def assess(self, rules: CompositionRules = RULES) -> Assessment:
        return self.watch.assess(rules)


def test_facts_limit_more_than_70_percent_needing_full_is_trouble_and_70_is_not() -> None:
    watched = Watched()
    watched.send(70, "sensitive")
    watched.send(30, "tolerant")
    assert Policy().composition.needs_full_above == 0.7
    assert not watched.assess().is_trouble
    watched.send(1, "sensitive")
    assert watched.assess().is_trouble


def test_pins_count_and_neutral_requests_do_not_unless_a_pin_binds_them() -> None:
    watched = Watched()
    watched.send(30, "sensitive")
    watched.send(7, "sensitive", "full")
    watched.send(5, "sensitive", "quantized")
    watched.send(11, "neutral", "full")
    watched.send(3, "tolerant", "full")
    watched.send(40, "neutral")
    watched.send(2, "neutral", "quantized")
    watched.send(2, "tolerant")
    composition = watched.assess().composition
    assert (composition.sensitive, composition.neutral, composition.tolerant) == (42, 53, 5)
    assert composition.requests == 100
    assert composition.needing_full == 30 + 7 + 11 + 3
    assert composition.pinned_to_full == 11 + 3
    assert composition.needing_full_share == 0.51


def test_requests_that_say_nothing_of_the_tiers_do_not_count() -> None:
    watched = Watched()
    for other in (
        recorded("sensitive", model="another"),
        recorded("made up"),
        recorded(""),
        decision_pb2.RecordedDecision(outcome=decision_pb2.Outcome(status=503)),
    ):
        watched.watch.request_finished(ended_of(other))
    watched.watch.request_finished(ended_of(recorded("sensitive", "made up", status=429)))
    assert watched.assess().composition.requests == 1  # also one that was refused needs its tier
    watched.watch.view_published(FULL_ONLY)
    watched.send(1000, "sensitive")
    assert watched.assess().composition.requests == 1


def test_with_few_requests_a_share_means_nothing() -> None:
    watched = Watched()
    watched.send(99, "sensitive")
    assert not watched.assess().is_trouble
    watched.send(1, "sensitive")
    assert watched.assess().is_trouble


def test_the_window_slides() -> None:
    watched = Watched()
    watched.send(100, "sensitive")
    watched.now += 600
    watched.send(50, "tolerant")
    assert watched.assess().composition.requests == 150
    watched.now += RULES.window_seconds - 600 + SLOT_SECONDS
    composition = watched.assess().composition
    assert (composition.sensitive, composition.tolerant) == (0, 50)
    watched.now += RULES.window_seconds
    assert watched.assess().composition.requests == 0
    assert watched.assess().composition.needing_full_share == 0.0


def test_the_window_may_be_set_anew() -> None:
    watched = Watched()
    watched.send(10, "sensitive")
    watched.now += 100
    assert watched.assess().composition.requests == 10
    assert watched.assess(CompositionRules(window_seconds=60)).composition.requests == 0


def test_trouble_is_a_change_once_and_does_not_flap() -> None:
    watched = Watched()
    watched.send(100, "sensitive")
    watched.send(20, "tolerant")
    changes = [watched.assess().changed for _ in range(5)]
    assert changes == [True, False, False, False, False]
    for _ in range(10):  # the share goes up and down around the limit
        watched.send(25, "tolerant")
        assert watched.assess() == Assessment(watched.assess().composition, is_trouble=True, changed=False)
        watched.send(60, "sensitive")
        assert not watched.assess().changed
    share = watched.assess().composition.needing_full_share
    assert 0.65 < share < 0.75
    watched.send(400, "tolerant")
    after = watched.assess()
    assert after.composition.needing_full_share < RULES.clear_below
    assert (after.is_trouble, after.changed) == (False, True)
    assert not watched.assess().changed


def test_trouble_ends_when_the_traffic_does() -> None:
    watched = Watched()
    watched.send(100, "sensitive")
    assert watched.assess().is_trouble
    watched.now += 890
    watched.send(50, "sensitive")
    assert watched.assess().is_trouble
    watched.now += 30
    assert watched.assess().is_trouble  # half as many as it takes to begin
    watched.now += 900
    assert not watched.assess().is_trouble


@pytest.mark.parametrize("requests", [10_000])
def test_memory_is_bounded_whatever_is_sent(requests: int) -> None:
    watched = Watched()
    for number in range(requests):
        watched.now += 1.0
        verdict, pinned = ("sensitive", "neutral", "tolerant")[number % 3], ("", "full", "quantized", "x")[number % 4]
        watched.send(1, verdict, pinned, score=float(number * 37 % 100_000))
        watched.assess()
    assert len(watched.watch._slots) <= RULES.window_seconds / SLOT_SECONDS + 2
    assert len(watched.watch._totals) <= 9 + 51
    assert watched.assess().composition.requests == pytest.approx(RULES.window_seconds, abs=SLOT_SECONDS)
