"""The format rules' fleet result, with engines that batch. Facts row: fleet result."""

from __future__ import annotations

import pytest

from planner.hardware.physics import engine
from planner.simulation.formats import compare_formats

# Whoever is first compiles the simulator, where no process before has.
pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("gain", [1.7, 1.9])
def test_four_full_and_four_4_bit_engines_serve_a_quarter_to_two_fifths_more_than_eight_full_ones(gain: float) -> None:
    base = engine("Llama-2-13B", "A100", 1).limited(2048, 32)
    (result,) = compare_formats(base, (gain,), requests=8000, seeds=(1,))
    assert 0.25 <= result.over_all_full <= 0.40
    assert result.over_half > 1.5
