"""The planner's model of an engine, from what a probe of it has found."""

from __future__ import annotations

import pytest
from engine_probe import Samples, Streamed, fitted, iteration_seconds

from headrace.demo.fleet import DemoEngine

ENGINE = DemoEngine("engine", "gguf-q4", context=1024, slots=4)


def test_an_engine_that_is_as_the_model_says_is_found_again() -> None:
    prefills = [(tokens, 0.002 * tokens) for tokens in (25, 100, 400)]
    iterations = [(sequences, 0.010 + 0.003 * sequences) for sequences in (1, 2, 3, 4)]
    found = fitted(ENGINE, Samples(prefills, iterations))
    assert found.fixed_seconds == pytest.approx(0.010)
    assert found.per_sequence_seconds == pytest.approx(0.003)
    assert found.seconds_per_token == pytest.approx(0.002)
    assert found.kv_tokens == 4 * 1024
    assert (found.max_sequences, found.max_context, found.quantization) == (4, 1024, "gguf-q4")


def test_prompts_count_by_their_tokens() -> None:
    found = fitted(ENGINE, Samples([(10, 0.1), (990, 1.9)], [(1, 0.01)]))
    assert found.seconds_per_token == pytest.approx(2.0 / 1000)


def test_an_engine_of_one_sequence_has_a_fixed_iteration() -> None:
    found = fitted(ENGINE, Samples([(10, 0.1)], [(1, 0.01), (1, 0.03)]))
    assert (found.fixed_seconds, found.per_sequence_seconds) == (pytest.approx(0.02), 0.0)


def test_an_iteration_is_timed_while_all_sequences_decode() -> None:
    # Alone it takes 1 s, and 2 s while there are two: from 10 to 18.
    one = Streamed(5, 0.0, {1: 8.0, 2: 9.0, 3: 10.0, 4: 12.0, 5: 14.0, 6: 16.0, 7: 18.0})
    other = Streamed(5, 0.0, {1: 10.0, 2: 12.0, 3: 14.0, 4: 16.0, 5: 18.0, 6: 19.0, 7: 20.0})
    assert iteration_seconds([one, other]) == pytest.approx(2.0)


def test_tokens_that_came_in_one_piece_are_all_counted() -> None:
    assert iteration_seconds([Streamed(5, 0.0, {1: 1.0, 4: 4.0, 5: 5.0})]) == pytest.approx(1.0)
