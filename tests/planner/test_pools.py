from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.hardware.engine import EngineModel
from planner.sizing.closed_form import saving
from planner.sizing.demand import Demand, demand
from planner.sizing.pools import Targets, sequences_at_once, size_pool, token_seconds
from planner.workload.workload import Workload

ENGINE = EngineModel(
    name="an engine",
    gpus=1,
    fixed_seconds=0.010,
    per_sequence_seconds=0.0005,
    chunk_tokens=512,
    kv_blocks=10_000,
    max_sequences=256,
    max_context=16_384,
    dollars_per_hour=2.0,
)


def requests(prompt: int, answer: int, rate: float) -> Demand:
    """All alike."""
    workload = Workload(
        source="alike",
        arrival_seconds=np.arange(100.0),
        input_tokens=np.full(100, prompt, dtype=np.int32),
        output_tokens=np.full(100, answer, dtype=np.int32),
        output_cap=np.zeros(100, dtype=np.int32),
    )
    return demand(workload, rate, 1.0, ENGINE.chunk_tokens)


def test_a_demand_counts_chunks_iterations_and_what_is_resident() -> None:
    needs = requests(prompt=1000, answer=100, rate=1.0)

    assert (needs.chunks, needs.iterations, needs.p99_chunks, needs.longest) == (2, 102, 2, 1100)
    assert needs.chunk_tokens == 500
    assert needs.iterations_cv2 == 0
    # Two iterations of 500 on average, a hundred of 1,050.
    assert needs.resident_tokens == pytest.approx((2 * 500 + 100 * 1050) / 102)


def test_an_instance_runs_as_many_sequences_as_the_time_per_token_allows() -> None:
    needs = requests(prompt=100, answer=100, rate=1.0)

    assert sequences_at_once(ENGINE, needs, Targets(tpot_seconds=0.0602)) == 100
    assert sequences_at_once(ENGINE, needs, Targets(tpot_seconds=1.0)) == 256
    assert sequences_at_once(ENGINE, needs, Targets(tpot_seconds=0.010)) == 0


def test_an_instance_runs_no_more_sequences_than_its_kv_cache_holds() -> None:
    needs = requests(prompt=10_000, answer=1000, rate=1.0)
    at_once = sequences_at_once(ENGINE, needs, Targets(ttft_seconds=10.0, tpot_seconds=1.0))

    assert at_once * needs.resident_tokens < ENGINE.kv_tokens
    assert 10 <= at_once <= 15


def test_reading_prompts_makes_others_wait_where_computing_is_slow() -> None:
    needs = requests(prompt=1000, answer=10, rate=1.0)
    computing = replace(ENGINE, seconds_per_token=0.0001)

    assert token_seconds(ENGINE, needs, 20) == pytest.approx(0.020)
    assert token_seconds(computing, needs, 20) > 0.040
    assert token_seconds(computing, needs, 20, own_chunk=500) > token_seconds(computing, needs, 20)


def test_instances_are_whole_and_used_no_more_than_is_allowed() -> None:
    needs = requests(prompt=100, answer=100, rate=100.0)
    size = size_pool(ENGINE, needs, 4096, Targets(tpot_seconds=0.0602))

    assert size is not None
    # 101 iterations of 60 ms on 100 slots: 16.5 requests a second of each, 7.13 instances at 85%.
    assert size.instances == 8
    assert size.busy == pytest.approx(100 * 101 * 0.060 / 100 / 8)
    assert size.engine.max_sequences == 100
    assert size.engine.max_context == 4096


def test_one_instance_is_the_least_however_small_the_load() -> None:
    size = size_pool(ENGINE, requests(100, 100, rate=0.001), 4096, Targets())

    assert size is not None
    assert size.instances == 1


def test_what_is_down_is_added() -> None:
    needs = requests(prompt=100, answer=100, rate=1000.0)
    up, at_times = (size_pool(ENGINE, needs, 4096, Targets(availability=each)) for each in (1.0, 0.95))

    assert up is not None
    assert at_times is not None
    assert at_times.instances == pytest.approx(up.instances / 0.95, abs=1)


def test_few_servers_need_slack_that_many_do_not() -> None:
    few = replace(ENGINE, max_sequences=1)
    needs = requests(prompt=100, answer=100, rate=2.0)
    size = size_pool(few, needs, 4096, Targets(ttft_seconds=0.5))

    assert size is not None
    assert size.busy < 0.6


def test_bursts_need_more() -> None:
    few = replace(ENGINE, max_sequences=4)
    smooth = requests(prompt=100, answer=100, rate=10.0)
    sizes = [size_pool(few, replace(smooth, arrival_cv2=cv2), 4096, Targets(ttft_seconds=0.2)) for cv2 in (1.0, 20.0)]

    assert [size is not None for size in sizes] == [True, True]
    assert sizes[1].instances > sizes[0].instances  # type: ignore[union-attr]


def test_targets_that_one_sequence_misses_have_no_size() -> None:
    long = requests(prompt=16_000, answer=100, rate=1.0)

    assert size_pool(ENGINE, long, 16_384, Targets(ttft_seconds=0.1)) is None
    assert size_pool(ENGINE, long, 1_000_000, Targets()) is None


def test_two_pools_save_at_most_what_the_closed_form_says() -> None:
    """With like requests and worst-case sequences the sizes near the closed form from below, as the load grows."""
    needs = requests(prompt=100, answer=100, rate=4000.0)
    targets = Targets(tpot_seconds=1.0)
    alone = size_pool(ENGINE, needs, 16_384, targets, most=16)
    short = size_pool(ENGINE, replace(needs, rate=3200.0), 4096, targets, most=128)
    long = size_pool(ENGINE, replace(needs, rate=800.0), 16_384, targets, most=16)

    assert alone is not None
    assert short is not None
    assert long is not None
    rho = (128 / 0.074) / (16 / 0.018)
    assert 1 - (short.instances + long.instances) / alone.instances == pytest.approx(saving(0.8, rho), abs=0.01)


def test_power_follows_from_how_many_sequences_run() -> None:
    size = size_pool(ENGINE, requests(100, 100, rate=10.0), 4096, Targets())

    assert size is not None
    assert size.watts is None
