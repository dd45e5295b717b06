"""From entries of the access log to what filters are told."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from controlplane.calibration_messages import calibrations_message
from controlplane.estimation import calibrator as module
from controlplane.estimation.calibrator import Calibrator
from controlplane.estimation.keys import EstimationKeys
from controlplane.estimation.lessons import Lesson
from controlplane.estimation.replicas import Replicas
from controlplane.etcd.client import EtcdClient
from controlplane.etcd.connection import EtcdAccess
from controlplane.features import Category
from controlplane.learning.sampling import BURST
from controlplane.learning.statistics import Observation
from controlplane.ledger.encoding import ended_of
from controlplane.policy.estimator import Calibrations, RatioEstimator, group_of, in_force
from controlplane.policy.settings import EstimationRules, Estimator, Policy
from headrace_protos.headrace.v1 import calibration_pb2
from support.filter import cancelled
from support.usage import MODEL, TENANTS, make_features, recorded, report, tokens_of
from support.waiting import until


@dataclass
class Learning:
    """A calibrator whose replicas know of no others: etcd is never asked."""

    replicas: Replicas
    calibrator: Calibrator
    lessons: Counter[tuple[Lesson, bool]] = field(default_factory=Counter)
    policy: Policy = field(default_factory=Policy)

    def learn(self, observations: Iterable[Observation]) -> None:
        for observation in observations:
            self.calibrator.learn(ended_of(recorded(observation)))

    @property
    def told(self) -> Calibrations:
        return self.calibrator.told.value

    @property
    def samples(self) -> int:
        return sum(each.samples for each in self.told.learned.values())

    def estimate(self, tenant: str = TENANTS[0]) -> float:
        """Of one probe, by what filters are told."""
        features = make_features("prose", 40, 999)
        calibration = in_force(self.told, self.policy.estimation).of(MODEL, features.category)
        return calibration.prompt.estimate(features, group_of(tenant)).central / tokens_of(features)


@asynccontextmanager
async def learning() -> AsyncIterator[Learning]:
    replicas = Replicas(EtcdClient(EtcdAccess(("127.0.0.1:1",))), EstimationKeys())
    made: list[Learning] = []
    calibrator = Calibrator(
        replicas,
        lambda: made[0].policy,
        lambda: {MODEL},
        lambda lesson, streamed: made[0].lessons.update([(lesson, streamed)]),
        time.time,
    )
    made.append(Learning(replicas, calibrator))
    task = asyncio.create_task(calibrator.run())
    try:
        yield made[0]
    finally:
        await cancelled(task)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(module, "TELL_SECONDS", 0.05)
    monkeypatch.setattr(module, "MOST_SHARE", 1.0)


def reports(count: int, factor: float = 1.4, tenant: str = TENANTS[0], start: int = 0) -> list[Observation]:
    return [report(number=start + number, factor=factor, tenant=tenant) for number in range(count)]


async def test_what_is_learned_is_told() -> None:
    async with learning() as one:
        one.learn(reports(50))
        await until(lambda: one.samples == 50)
        assert one.estimate() == pytest.approx(1.4, rel=0.05)
        assert one.lessons == {(Lesson.LEARNED, False): 50}


async def test_what_moves_by_little_is_not_told_anew() -> None:
    async with learning() as one:
        one.learn(reports(100))
        await until(lambda: one.samples == 100)
        told = one.told
        one.learn(reports(20, start=100))
        await until(lambda: one.calibrator.merged[MODEL].models[MODEL].samples == 120)
        one.learn(reports(40, start=120))
        await until(lambda: one.samples == 160)  # half as many more are told, to show what it rests on
        assert one.told is not told


async def test_usage_that_cannot_be_is_counted_and_not_learned_from() -> None:
    async with learning() as one:
        observation = report()
        one.calibrator.learn(
            ended_of(recorded(observation, prompt_tokens=10 * observation.features.text.total + 10_000))
        )
        one.calibrator.learn(ended_of(recorded(observation, status=500)))
        assert one.lessons == {(Lesson.IMPLAUSIBLE, False): 1, (Lesson.FAILED, False): 1}
        counted = {each.result: each.requests for each in one.calibrator.tally.messages()}
        assert counted == {"implausible": 1, "failed": 1}
        assert one.told.learned == {}


async def test_a_model_that_nobody_serves_leaves_nothing() -> None:
    async with learning() as one:
        one.learn([report(model="made-up")])
        assert one.lessons == {(Lesson.UNKNOWN_MODEL, False): 1}
        assert one.replicas.models == set()


async def test_what_no_engine_was_asked_about_is_not_counted() -> None:
    async with learning() as learned:
        no_pool, undecided = recorded(report()), recorded(report())
        no_pool.decision.ClearField("pool")
        undecided.ClearField("decision")
        for message in (no_pool, undecided):
            learned.calibrator.learn(ended_of(message))
        assert not learned.lessons


async def test_of_very_many_like_requests_a_sample_is_learned_from() -> None:
    many = int(BURST) + 200
    async with learning() as learned:
        learned.learn(report() for _ in range(many))
        learned_from = learned.lessons[Lesson.LEARNED, False]
        assert BURST <= learned_from < many
        assert learned.lessons[Lesson.NOT_NEEDED, False] == many - learned_from
        assert learned.replicas.own.models[MODEL].samples == learned_from


async def test_what_is_pinned_stays_whatever_is_learned_and_goes_on_when_unpinned() -> None:
    async with learning() as one:
        one.learn(reports(50))
        await until(lambda: one.samples == 50)
        before = one.estimate()
        control = calibration_pb2.CalibrationControl(pinned=calibrations_message(one.told))
        control.pinned_at.GetCurrentTime()
        one.replicas.controls[MODEL] = control
        one.learn(reports(400, factor=2.0, start=50))
        await until(lambda: one.told.pinned == {MODEL})
        await until(lambda: one.calibrator.merged[MODEL].models[MODEL].samples == 450)
        assert one.estimate() == before
        del one.replicas.controls[MODEL]
        await until(lambda: one.samples == 450)
        assert one.estimate() > 1.3 * before


async def test_a_model_that_is_pinned_before_anything_is_learned_keeps_the_prior() -> None:
    async with learning() as one:
        control = calibration_pb2.CalibrationControl(pinned=calibrations_message(Calibrations()))
        control.pinned_at.GetCurrentTime()
        one.replicas.controls[MODEL] = control
        await until(lambda: one.told.pinned == {MODEL})
        one.learn(reports(50))
        await until(lambda: MODEL in one.calibrator.merged and one.calibrator.merged[MODEL].models[MODEL].samples == 50)
        assert one.told.learned == {}


async def test_another_estimator_is_told_as_soon_as_the_policy_says_so() -> None:
    async with learning() as one:
        one.learn(reports(50))
        await until(lambda: one.samples == 50)
        one.policy = Policy(estimation=EstimationRules(estimator=Estimator.RATIO))

        def is_ratio() -> bool:
            return isinstance(one.told.learned[MODEL, Category.PROSE].prompt, RatioEstimator)

        await until(is_ratio)
        assert one.estimate() == pytest.approx(1.4, rel=0.25)


async def test_a_tenant_that_sends_junk_moves_anothers_estimate_by_less_than_the_bound() -> None:
    """agreement * sqrt(W / V), as docs/estimator.md has it: one full voice against three."""
    async with learning() as one:
        for place in range(3):
            one.learn(reports(200, factor=1.1, tenant=TENANTS[place], start=200 * place))
        await until(lambda: one.samples == 600)
        honest = one.estimate()
        one.learn(reports(400, factor=3.5, tenant=TENANTS[3], start=600))
        await until(lambda: one.samples == 1000)
        assert abs(one.estimate() / honest - 1) < one.policy.estimation.agreement / 3**0.5
        assert (MODEL, Category.CJK) not in one.told.learned  # nor another category's
