"""The statistics of several control planes in a real etcd: each counts once, whatever happens to its control plane."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from controlplane.errors import UnavailableError
from controlplane.estimation import codec
from controlplane.estimation import replicas as module
from controlplane.estimation.keys import EstimationKeys
from controlplane.estimation.replicas import Replicas
from controlplane.etcd.client import EtcdClient
from controlplane.etcd.records import Outcome
from controlplane.features import Category
from controlplane.learning import statistics
from controlplane.learning.histogram import Histogram
from controlplane.learning.statistics import (
    AccuracySums,
    CategorySums,
    GroupSums,
    ModelSums,
    Observation,
    Statistics,
    fold,
    merge,
)
from controlplane.ledger.entry import MOST_TOKENS
from controlplane.policy.estimator import TENANT_GROUPS, unlearned
from headrace_protos.headrace.v1 import calibration_pb2
from support.etcd import RunningEtcd
from support.filter import cancelled
from support.usage import MODEL, RULES, folded, report
from support.waiting import until

KEYS = EstimationKeys("/headrace/calibration/v1/test/")


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEEP_SECONDS", 0.05)


@asynccontextmanager
async def running(client: EtcdClient, lease_seconds: int = 60) -> AsyncIterator[Replicas]:
    replicas = Replicas(client, KEYS, lease_seconds=lease_seconds)
    task = asyncio.create_task(replicas.run())
    try:
        await until(lambda: replicas.name in replicas._living)
        yield replicas
    finally:
        await cancelled(task)


def learn(replicas: Replicas, count: int, start: int = 0) -> list[Observation]:
    observations = [report(number=number) for number in range(start, start + count)]
    for observation in observations:
        fold(replicas.own_of(MODEL), observation, unlearned(RULES), RULES, now=time.time())
    return observations


def samples(replicas: Replicas) -> int:
    return replicas.merged(MODEL).models[MODEL].samples


async def stored(client: EtcdClient) -> dict[str, int]:
    """Samples by key."""
    found = {}
    for record in (await client.list(KEYS.statistics)).records:
        sums = codec.decode(record)
        found[record.key] = sums.samples if sums else -1
    return found


def vector(replicas: Replicas) -> list[float]:
    """Something of what is merged that weights and order would change."""
    (category,) = replicas.merged(MODEL).models[MODEL].categories.values()
    return [moment for group in category.groups.values() for moment in group.linear.moments]


async def test_what_one_learns_all_know(client: EtcdClient) -> None:
    async with running(client) as one, running(client) as other:
        learn(one, 5)
        learn(other, 7, start=5)
        await until(lambda: samples(one) == samples(other) == 12)
        assert vector(one) == pytest.approx(vector(other), rel=1e-3)  # their clocks differ by a little


async def test_what_a_control_plane_learned_outlives_it_and_is_taken_over(client: EtcdClient) -> None:
    async with running(client) as one:
        async with running(client) as other:
            learn(other, 6)
        learn(one, 2, start=6)  # what the other learned last was written as it left

        async def is_taken_over() -> bool:
            return await stored(client) == {KEYS.statistics_of(one.name, MODEL): 8} and samples(one) == 8

        await until(is_taken_over)


async def test_what_a_killed_control_plane_left_counts_at_once_and_is_taken_over_once(client: EtcdClient) -> None:
    left = folded([report(number=number) for number in range(4)], start=time.time()).models[MODEL]
    await client.put(KEYS.statistics_of("killed", MODEL), codec.encode(left))
    async with running(client) as one, running(client) as other:
        own = {KEYS.statistics_of(each.name, MODEL) for each in (one, other)}

        async def is_taken_over() -> bool:
            found = await stored(client)
            return list(found.values()) == [4] and own >= found.keys()

        await until(is_taken_over)
        await until(lambda: samples(one) == samples(other) == 4)


async def test_the_last_control_planes_statistics_wait_for_the_next(client: EtcdClient) -> None:
    async with running(client) as last:
        learn(last, 3)
    async with running(client) as following:
        await until(lambda: MODEL in following.models and samples(following) == 3)


@contextmanager
def losing_answers(client: EtcdClient, monkeypatch: pytest.MonkeyPatch, *, done: bool) -> Iterator[list[int]]:
    """The answer to the next takeover is lost, after it was done or instead. How many were lost."""
    lost = [0]
    transact = client.transact

    async def losing(conditions: Any, then: Any, otherwise: Any = ()) -> Outcome:
        if len(conditions) == 3 and not lost[0]:
            lost[0] += 1
            if done:
                await transact(conditions, then, otherwise)
            raise UnavailableError("the answer was lost")
        return await transact(conditions, then, otherwise)

    with monkeypatch.context() as patch:
        patch.setattr(client, "transact", losing)
        yield lost


@pytest.mark.parametrize("done", [True, False])
async def test_a_takeover_whose_answer_is_lost_counts_once(
    client: EtcdClient, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    left = folded([report(number=number) for number in range(4)], start=time.time()).models[MODEL]
    await client.put(KEYS.statistics_of("killed", MODEL), codec.encode(left))
    with losing_answers(client, monkeypatch, done=done) as lost:
        async with running(client) as one:
            await until(lambda: lost[0] == 1)
            learn(one, 3, start=4)

            async def is_settled() -> bool:
                return await stored(client) == {KEYS.statistics_of(one.name, MODEL): 7}

            await until(is_settled)
            await until(lambda: samples(one) == 7)


async def test_one_that_was_believed_to_be_gone_begins_anew_and_nothing_counts_twice(client: EtcdClient) -> None:
    async with running(client) as one, running(client) as other:
        learn(one, 5)
        await until(lambda: MODEL in other.models and samples(other) == 5)
        former = one.name
        await client.delete(KEYS.replica(former))  # as when its lease ends
        learn(one, 1, start=5)  # so that it writes, and finds out
        await until(lambda: one.name != former)
        await until(lambda: samples(one) == samples(other) == 5)
        learn(one, 2, start=6)
        await until(lambda: samples(one) == samples(other) == 7)


async def test_what_says_nothing_to_this_version_does_not_count_and_is_let_go_with_its_control_plane(
    client: EtcdClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(codec, "PRIORS_VERSION", 1)
        older = codec.encode(folded([report()], start=time.time()).models[MODEL])
    await client.put(KEYS.statistics_of("older", MODEL), older)
    await client.put(KEYS.statistics_of("broken", MODEL), b"no statistics")
    await client.put(KEYS.replica("alive"), b"")
    await client.put(KEYS.statistics_of("alive", MODEL), older)
    async with running(client) as one:
        await until(lambda: "alive" in one._living)
        await client.delete(KEYS.replica("alive"))

        async def is_empty() -> bool:
            return await stored(client) == {}

        await until(is_empty)
        assert samples(one) == 0


async def test_a_reset_model_is_forgotten_by_all_and_learned_anew(client: EtcdClient) -> None:
    async with running(client) as one, running(client) as other:
        learn(one, 5)
        await until(lambda: MODEL in other.models and samples(other) == 5)
        await client.put(KEYS.model(MODEL), calibration_pb2.CalibrationControl(generation=1).SerializeToString())
        await until(lambda: samples(one) == samples(other) == 0)
        learn(other, 2)
        await until(lambda: samples(one) == samples(other) == 2)

        async def is_stored() -> bool:
            return await stored(client) == {KEYS.statistics_of(other.name, MODEL): 2}

        await until(is_stored)


async def test_learning_goes_on_while_etcd_is_away_and_is_told_when_it_is_back(
    etcd: RunningEtcd, client: EtcdClient
) -> None:
    async with running(client) as one, running(client) as other:
        learn(one, 2)
        await until(lambda: MODEL in other.models and samples(other) == 2)
        await etcd.kill()
        learn(one, 3, start=2)
        assert samples(one) == 5
        await etcd.start_again()
        await until(lambda: samples(other) == 5, 30.0)


def test_little_more_is_written_later_and_not_at_once() -> None:
    sums = folded([report(number=number) for number in range(200)]).models[MODEL]

    def is_due(samples: int, at: float = 0.0, generation: int = 0) -> bool:
        return Replicas._is_due(sums, module._Written(generation, samples, at), 0.0)

    assert Replicas._is_due(sums, None, 0.0)
    assert not is_due(200, at=-1000.0)
    assert not is_due(198)
    assert is_due(198, at=-module.LONGEST_UNWRITTEN_SECONDS)
    assert is_due(190)
    assert is_due(210)  # it was forgotten in part
    assert is_due(200, generation=1)


def test_the_statistics_of_a_model_are_never_more_than_etcd_takes() -> None:
    """Every bucket of every histogram in use, and sums of any size."""
    dice = random.Random(1)
    errors = statistics._bounded(1e-9), statistics._bounded(1e9)

    def full(group: GroupSums) -> GroupSums:
        for sums in (group.linear.cross, group.linear.moments):
            sums[:] = [dice.random() for _ in sums]
        fill(group.margins, *errors)
        fill(group.outputs, 1.0, MOST_TOKENS)
        return group

    def fill(histogram: Histogram, least: float, most: float) -> None:
        value = least
        while value < most:
            histogram.add(value, dice.random())
            value *= 1.004

    sums = ModelSums()
    for category in Category:
        accuracy = AccuracySums.empty()
        fill(accuracy.errors, *errors)
        fill(accuracy.totals, 1.0, 2 * MOST_TOKENS)
        groups = {group: full(GroupSums.empty()) for group in range(TENANT_GROUPS)}
        sums.categories[category] = CategorySums(0.0, 1.0, 1, groups, accuracy)
    assert len(codec.encode(sums)) < 1_500_000  # etcd's --max-request-bytes is 1.5 MiB


def test_what_is_stored_is_what_was_learned() -> None:
    sums = folded([report(number=number, output_tokens=20) for number in range(9)]).models[MODEL]
    from controlplane.etcd.records import Record

    again = codec.decode(Record("k", codec.encode(sums), 1, 1))
    assert again == sums
    assert merge([Statistics(models={MODEL: again})], 5.0) == merge([Statistics(models={MODEL: sums})], 5.0)
