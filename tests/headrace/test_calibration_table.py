"""The table of `headrace calibration`."""

from __future__ import annotations

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from headrace import calibration_table
from headrace_protos.headrace.v1 import calibration_pb2

COLUMNS = 80


def category(name: str, *, samples: int = 100, learned: bool = True) -> calibration_pb2.CategoryAccuracy:
    return calibration_pb2.CategoryAccuracy(
        category=name,
        samples=samples,
        ratio=4.213,
        deviation=0.31,
        bias=-0.1234,
        p50_error=0.031,
        p95_error=0.12,
        p99_error=0.567,
        short_share=0.004,
        mis_routed=[
            calibration_pb2.MisRouted(threshold=8192, too_small_share=0.001, too_large_share=0.0213),
            calibration_pb2.MisRouted(threshold=100_000, too_large_share=0.05),
        ],
        in_force=calibration_pb2.Calibration() if learned else None,
    )


def lines(capsys: pytest.CaptureFixture[str], *models: calibration_pb2.ModelCalibration) -> list[str]:
    calibration_table.show(models)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_a_line_has_every_number_of_its_category(capsys: pytest.CaptureFixture[str]) -> None:
    model = calibration_pb2.ModelCalibration(model="llama", categories=[category("prose")])
    shown = lines(capsys, model)
    assert shown[0] == "llama"
    assert "prose 100 4.21 ±0.31 -12.3 3.1 12.0 56.7 0.4 8K 0.1 2.1 learned" in shown
    assert "100000 0.0 5.0" in shown


def test_what_is_in_force_is_told_for_each_category(capsys: pytest.CaptureFixture[str]) -> None:
    pinned = calibration_pb2.ModelCalibration(
        model="llama",
        pinned_at=Timestamp(seconds=1_796_000_000),
        generation=2,
        refused=3,
        categories=[
            category("code"),
            calibration_pb2.CategoryAccuracy(category="cjk", in_force=calibration_pb2.Calibration()),
            category("prose", learned=False),
        ],
    )
    shown = lines(capsys, pinned)
    assert shown[0] == "llama, pinned since 2026-11-30 00:53 UTC, reset 2 times, 3 implausible reports ignored"
    in_force = {line.split()[0]: line.split()[-1] for line in shown if line.startswith(("code", "cjk", "prose"))}
    assert in_force == {"code": "pinned", "cjk": "pinned", "prose": "prior"}
    assert "cjk 0 - - - - - - - - - pinned" in shown


def test_models_without_samples_and_none_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    shown = lines(capsys, calibration_pb2.ModelCalibration(model="[red]x"))
    assert shown[:2] == ["[red]x", "nothing is learned yet: priors are in force"]
    assert lines(capsys) == ["no model is served, and nothing is learned of any"]


def test_it_fits_on_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    model = calibration_pb2.ModelCalibration(
        model="llama", categories=[category("mixed", samples=9_999_999), category("prose")]
    )
    calibration_table.show([model])
    assert max(len(line.rstrip()) for line in capsys.readouterr().out.splitlines()) <= COLUMNS
