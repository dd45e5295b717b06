"""Rates of violations by pool and tier, over a window. Facts row: signals."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.ledger.encoding import ended_of
from controlplane.ledger.sla import _KINDS, FLEET, SLOT_SECONDS, SlaRate, SlaWatch, finished
from controlplane.model import Endpoint, QosTier
from controlplane.policy.sla import Cause, Finished, Judged, Judgement, SlaRules, SlaTarget
from headrace_protos.headrace.v1 import decision_pb2

POOL, OTHER = "llama/full/short/on_demand", "llama/quantized/short/spot"
TARGET = SlaTarget(whole_ms=1000)
RULES = SlaRules(TARGET, TARGET, TARGET, window_seconds=60, minimum_requests=10, stale_seconds=20)
G, S, B = QosTier.GUARANTEED, QosTier.STANDARD, QosTier.BEST_EFFORT


def recorded(
    seconds: float = 0.5, tier: str = "guaranteed", pool: str = POOL, status: int = 200, *flags: str, **more: Any
) -> decision_pb2.RecordedDecision:
    refusal = decision_pb2.Refusal(status=status) if status == 429 else None
    return decision_pb2.RecordedDecision(
        decision=decision_pb2.Decision(endpoint="chat", qos_tier=tier, pool=pool, refusal=refusal),
        outcome=decision_pb2.Outcome(status=status, duration_seconds=seconds, flags=flags, **more),
    )


class Watched:
    def __init__(self) -> None:
        self.now = 5000.0
        self.rules = RULES
        self.watch = SlaWatch(lambda: self.rules, lambda: self.now)
        self.watch.pools_published((POOL, OTHER))

    def send(self, count: int, *what: Any) -> None:
        for _ in range(count):
            self.watch.request_finished(ended_of(recorded(*what)))

    def rate(self, tier: QosTier = G, pool: str = POOL) -> SlaRate:
        return self.watch.rates(self.now)[pool, tier]


def test_the_rate_is_the_share_of_violations_of_a_tier_in_a_pool_and_in_the_fleet() -> None:
    watched = Watched()
    watched.send(15, 0.5)
    watched.send(5, 1.5)
    watched.send(20, 0.5, "guaranteed", OTHER)
    watched.send(30, 1.5, "best_effort")
    assert watched.rate().rate == 0.25
    assert watched.rate(G, OTHER).rate == 0.0
    assert watched.rate(G, FLEET).rate == 5 / 40
    assert watched.rate(B).rate == 1.0
    assert set(watched.watch.rates(watched.now)) == {(POOL, G), (OTHER, G), (FLEET, G), (POOL, B), (FLEET, B)}


def test_rejections_and_the_clients_own_errors_are_reported_apart() -> None:
    watched = Watched()
    watched.send(10, 0.5)
    watched.send(7, 0.0, "guaranteed", "", 429)
    watched.send(4, 9.0, "guaranteed", POOL, 400)
    watched.send(2, 9.0, "guaranteed", POOL, 503)
    fleet = watched.rate(G, FLEET)
    assert fleet == SlaRate(2 / 12, 10, 2, 7, 4, ((Cause.CLIENT_ERROR, 4), (Cause.FAILED, 2)))
    assert watched.rate().rejected == 0  # no pool was found for them


def test_too_few_requests_say_nothing_rather_than_that_all_is_well_or_overloaded() -> None:
    watched = Watched()
    watched.send(9, 1.5)
    watched.send(100, 0.0, "guaranteed", POOL, 429)
    watched.send(100, 0.0, "guaranteed", POOL, 400)
    assert watched.rate() == SlaRate(None, 0, 9, 100, 100, ((Cause.CLIENT_ERROR, 100), (Cause.WHOLE, 9)))
    watched.send(1, 1.5)
    assert watched.rate().rate == 1.0


def test_a_rate_without_a_fresh_request_is_missing_also_when_others_are_turned_away() -> None:
    watched = Watched()
    watched.send(10, 1.5)
    watched.now += 20
    watched.send(10, 0.0, "guaranteed", POOL, 429)
    assert watched.rate().rate == 1.0
    watched.now += 0.1
    watched.send(10, 0.0, "guaranteed", POOL, 429)
    assert watched.rate().rate is None
    watched.send(1, 0.5)
    assert watched.rate().rate == 10 / 11


def test_what_is_older_than_the_window_is_forgotten_and_leaves_nothing_behind() -> None:
    watched = Watched()
    watched.send(10, 1.5)
    watched.now += 30
    watched.send(10, 0.5)
    assert watched.rate().rate == 0.5
    watched.now += 30 + 2 * SLOT_SECONDS
    assert (watched.rate().met, watched.rate().violated) == (10, 0)
    watched.now += 60
    assert watched.watch.rates(watched.now) == {}


def test_memory_is_bounded_without_anybody_asking_for_rates() -> None:
    watched = Watched()
    for _ in range(1000):
        watched.now += 1
        watched.send(1)
    assert len(watched.watch._slots) <= RULES.window_seconds / SLOT_SECONDS + 2


def test_a_pool_that_is_not_of_the_fleet_counts_for_the_fleet_alone() -> None:
    watched = Watched()
    watched.send(10, 0.5, "standard", "made/up")
    assert set(watched.watch.rates(watched.now)) == {(FLEET, S)}


@pytest.mark.parametrize("tier", ["", "platinum"])
def test_a_request_whose_tier_is_not_known_is_not_judged(tier: str) -> None:
    watched = Watched()
    assert watched.watch.request_finished(ended_of(recorded(9.0, tier))) is None
    assert watched.watch.rates(watched.now) == {}


def test_targets_may_change_while_requests_end() -> None:
    watched = Watched()
    assert watched.watch.request_finished(ended_of(recorded(1.5))) == Judged(Judgement.VIOLATED, Cause.WHOLE)
    watched.rules = SlaRules(SlaTarget(whole_ms=2000), TARGET, TARGET)
    assert watched.watch.request_finished(ended_of(recorded(1.5))) == Judged(Judgement.MET)


def test_how_slowly_a_client_sends_and_reads_is_not_held_against_the_pool() -> None:
    slow = recorded(30.0, "guaranteed", POOL, 200, received_seconds=10.0, last_byte_seconds=10.75)
    slow.outcome.first_content_seconds = 10.25
    slow.outcome.first_byte_seconds = 10.0
    slow.outcome.completion_tokens = 7
    slow.decision.stream = True
    assert finished(ended_of(slow)) == Finished(Endpoint.CHAT, 200, 0.75, 0.25, 7, stream=True)
    assert Watched().watch.request_finished(ended_of(slow)) == Judged(Judgement.MET)


@pytest.mark.parametrize(
    ("status", "flags", "says"),
    [
        (0, (), Cause.CLIENT_LEFT),
        (200, ("downstream_connection_termination",), Cause.CLIENT_LEFT),
        (200, ("downstream_remote_reset",), Cause.CLIENT_LEFT),
        (200, ("upstream_remote_reset",), Cause.FAILED),
        (200, ("upstream_connection_termination",), Cause.FAILED),
        (200, ("stream_idle_timeout",), Cause.TIMED_OUT),
        (504, ("upstream_request_timeout",), Cause.TIMED_OUT),
        (408, (), Cause.CLIENT_ERROR),
    ],
)
def test_envoys_flags_tell_who_ended_an_answer(status: int, flags: tuple[str, ...], says: Cause) -> None:
    judged = Watched().watch.request_finished(ended_of(recorded(0.5, "guaranteed", POOL, status, *flags)))
    assert judged is not None
    assert judged.cause is says


def test_every_cause_and_judgement_has_its_place_among_the_counts() -> None:
    assert {judged.cause for judged in _KINDS} == set(Cause)
    assert {judged.judgement for judged in _KINDS} == set(Judgement)
    assert len(set(_KINDS)) == len(_KINDS)
