from __future__ import annotations

import numpy as np
import pytest

from planner.workload.workload import NO_CAP, Workload


def of(outputs: list[int], caps: list[int], arrivals: list[float] | None = None) -> Workload:
    n = len(outputs)
    return Workload(
        source="three of a test",
        arrival_seconds=np.array(arrivals or range(n), dtype=np.float64),
        input_tokens=np.full(n, 10, dtype=np.int32),
        output_tokens=np.array(outputs, dtype=np.int32),
        output_cap=np.array(caps, dtype=np.int32),
    )


def test_a_budget_leaves_room_for_the_cap_and_without_one_for_the_allowance() -> None:
    assert of([5, 5], [NO_CAP, 20]).budget_tokens(100).tolist() == [110, 30]


def test_selecting_keeps_every_array_together() -> None:
    chosen = of([1, 2, 3], [0, 0, 0]).select(np.array([True, False, True]))

    assert chosen.output_tokens.tolist() == [1, 3]
    assert chosen.arrival_seconds.tolist() == [0, 2]
    assert chosen.requests_per_second == 0.5


def test_an_answer_longer_than_its_cap_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than their caps"):
        of([5], [4])


def test_arrivals_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="not in order"):
        of([1, 1], [0, 0], [1.0, 0.5])


def test_arrays_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="read-only"):
        of([1], [0]).output_tokens[0] = 2
