from __future__ import annotations

from math import inf

import pytest

from planner.sizing.erlang import mean_wait, wait_quantile, waiting_probability


def by_recursion(servers: int, load: float) -> float:
    """Erlang C by way of Erlang B's recursion, which is exact but slow."""
    blocking = 1.0
    for busy in range(1, servers + 1):
        blocking = load * blocking / (busy + load * blocking)
    return blocking / (1 - load / servers * (1 - blocking))


@pytest.mark.parametrize(
    ("servers", "load"), [(1, 0.5), (2, 1.0), (10, 9.5), (100, 90.0), (1000, 980.0), (20_000, 19_900.0)]
)
def test_waiting_is_as_likely_as_erlang_says(servers: int, load: float) -> None:
    assert waiting_probability(servers, load) == pytest.approx(by_recursion(servers, load), rel=1e-9)


def test_with_one_server_waiting_is_as_likely_as_it_is_busy() -> None:
    assert waiting_probability(1, 0.7) == pytest.approx(0.7)


def test_what_is_negligible_is_bounded_from_above() -> None:
    assert by_recursion(200, 100.0) <= waiting_probability(200, 100.0) < 1e-9


def test_nobody_waits_without_load_and_all_do_above_the_servers() -> None:
    assert waiting_probability(10, 0.0) == 0.0
    assert waiting_probability(10, 10.0) == 1.0
    assert mean_wait(10, 10.0, 1.0) == inf
    assert wait_quantile(10, 11.0, 1.0) == inf


def test_one_server_with_constant_service_waits_half_as_long() -> None:
    # Pollaczek and Khinchine: rho S / (1 - rho) for exponential service, half of it for constant.
    assert mean_wait(1, 0.8, 1.0) == pytest.approx(4.0)
    assert mean_wait(1, 0.8, 1.0, service_cv2=0.0) == pytest.approx(2.0)


def test_the_quantile_of_one_exponential_server_is_exact() -> None:
    # P(wait > t) = rho exp(-(mu - lambda) t).
    assert wait_quantile(1, 0.8, 1.0, share=0.9) == pytest.approx(10.397, rel=1e-3)


def test_a_quantile_that_fewer_wait_for_is_zero() -> None:
    assert wait_quantile(100, 50.0, 1.0) == 0.0


def test_nobody_waits_where_nothing_is_left_to_chance() -> None:
    assert mean_wait(10, 9.9, 1.0, arrival_cv2=0.0, service_cv2=0.0) == 0.0
    assert mean_wait(10, 10.1, 1.0, arrival_cv2=0.0, service_cv2=0.0) == inf
