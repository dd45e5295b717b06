from __future__ import annotations

from dataclasses import replace

import pytest

from planner.hardware.engine import EngineModel, PowerCurve

ENGINE = EngineModel(
    name="an engine",
    gpus=8,
    fixed_seconds=0.008,
    per_sequence_seconds=0.00065,
    chunk_tokens=512,
    kv_blocks=65_536,
    max_sequences=128,
    max_context=8192,
    dollars_per_hour=2.21,
)


def test_an_iteration_reads_the_weights_once_and_each_sequence_once() -> None:
    assert ENGINE.iteration_seconds(16, 8192) == pytest.approx(0.0184)
    assert ENGINE.iteration_seconds(128, 100) == pytest.approx(0.0912)


def test_shorter_sequences_are_read_faster_where_the_model_says_so() -> None:
    scaling = replace(ENGINE, scales_with_length=True)

    assert scaling.iteration_seconds(128, 2048) == pytest.approx(0.008 + 128 * 0.00065 / 4)


def test_computing_many_tokens_takes_longer_than_reading_the_weights() -> None:
    computing = replace(ENGINE, seconds_per_token=0.0001)

    assert computing.iteration_seconds(1, 100, computed_tokens=512) == pytest.approx(0.0512)
    assert computing.iteration_seconds(1, 100, computed_tokens=1) == ENGINE.iteration_seconds(1, 100)


def test_room_for_the_longest_context_bounds_the_sequences() -> None:
    assert ENGINE.worst_case_sequences == 128
    assert ENGINE.limited(65_536, 128).worst_case_sequences == 16
    assert ENGINE.limited(2_000_000, 128).worst_case_sequences == 0


def test_power_rises_from_idle_to_nominal() -> None:
    curve = PowerCurve(idle_watts=300, nominal_watts=600, slope=1.0, midpoint=4.2)

    assert curve.watts(0) == 300
    assert curve.watts(2**4.2) == pytest.approx(450)
    assert 590 < curve.watts(512) < 600
