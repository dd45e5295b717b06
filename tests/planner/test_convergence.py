"""The picture of how fast estimates became right."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_protos.headrace.v1 import calibration_pb2
from planner import convergence


def model(name: str, **errors: list[float]) -> calibration_pb2.ModelCalibration:
    """With the errors of each category, after 1, 3, 7 ... samples."""
    return calibration_pb2.ModelCalibration(
        model=name,
        categories=[
            calibration_pb2.CategoryAccuracy(
                category=category,
                samples=2 ** len(found) - 1,
                convergence=[
                    calibration_pb2.Convergence(samples=2**place - 1, error=error)
                    for place, error in enumerate(found, 1)
                ],
            )
            for category, found in errors.items()
        ],
    )


@pytest.mark.parametrize("models", [1, 2, 4])
def test_it_is_a_png_whatever_models_are_called(tmp_path: Path, models: int) -> None:
    file = tmp_path / "a.png"
    many = [model(f"$x^{number}", prose=[3.0, 0.2, 0.05], code=[0.2], later=[0.1, 0.1]) for number in range(models)]
    convergence.draw([*many, model("nothing")], file)
    assert file.read_bytes().startswith(b"\x89PNG\r\n")


def test_without_a_sample_there_is_nothing_to_draw() -> None:
    unlearned = calibration_pb2.CategoryAccuracy(category="prose", in_force=calibration_pb2.Calibration())
    assert not convergence.can_be_drawn([])
    assert not convergence.can_be_drawn([calibration_pb2.ModelCalibration(model="a", categories=[unlearned])])
    assert convergence.can_be_drawn([model("a", prose=[0.1])])


def test_labels_keep_apart_and_as_near_to_their_lines_as_can_be() -> None:
    assert convergence._apart([5.0, 1.0, 1.1, 9.0], 1.0) == [5.0, 1.0, 2.0, 9.0]
    assert convergence._apart([], 1.0) == []
