"""What is told of measurements that were made in several goes."""

from __future__ import annotations

from pathlib import Path

from loading import Measured
from peers.headrace import HEADRACE
from peers.plain_envoy import PLAIN_ENVOY
from peers.rust_routers import VLLM_ROUTER
from report import lines
from results import Go, Result, Run, keep, kept
from rounds import Round
from scenarios import SCENARIOS

ENVOY, OURS, THEIRS = PLAIN_ENVOY.name, HEADRACE.name, VLLM_ROUTER.name
SCENARIO = SCENARIOS[0]


def measured(contestant: str, per_second: float) -> Measured:
    return Measured(contestant, 100, 0, per_second, (1.0, 2.0, 3.0), (), (), {"filter": 0.1}, {"filter": 50.0}, 0.0)


def run(hour: int, *rounds: dict[str, float], controls: tuple[float, float] = (1.0, 1.0)) -> Run:
    """Requests a second by contestant, for each round of a go that began at this hour."""
    go = Go(f"2026-11-30 {hour:02}:00", f"c0ffee{hour}", "a machine")
    all_rounds = (Round(controls, tuple(measured(name, rate) for name, rate in each.items())) for each in rounds)
    return Run(SCENARIO, go, tuple(all_rounds))


def test_contestants_are_compared_within_each_round() -> None:
    found = run(1, {"a": 100.0, "b": 50.0}, {"a": 10.0, "b": 4.0}, {"a": 1000.0, "b": 450.0})
    assert found.ratio("b", "a") == 0.45
    assert found.rate("a") == 100.0
    assert found.ratio("c", "a") is None


def test_what_a_later_go_leaves_out_is_told_of_an_earlier_one(tmp_path: Path) -> None:
    first = run(1, {ENVOY: 100.0, OURS: 20.0, THEIRS: 40.0})
    second = run(2, {ENVOY: 100.0, OURS: 30.0})
    keep(first, tmp_path)
    keep(second, tmp_path)
    result = kept(tmp_path)[SCENARIO.name]
    assert result.run_of(OURS) == second
    assert result.run_of(THEIRS) == first
    assert result.run_of(OURS, THEIRS) == first
    assert result.run_of(OURS, "nobody") is None


def test_a_go_of_which_all_was_measured_again_is_forgotten() -> None:
    part, other, whole = run(1, {ENVOY: 1.0, OURS: 1.0}), run(2, {ENVOY: 1.0}), run(3, {ENVOY: 1.0, OURS: 1.0})
    result = Result((part,)).followed_by(other)
    assert result.runs == (other, part)
    assert result.followed_by(whole).runs == (whole,)


def test_a_go_without_a_steady_round_leaves_what_was_there(tmp_path: Path) -> None:
    keep(run(1, {ENVOY: 1.0}), tmp_path)
    assert not keep(run(2, {ENVOY: 1.0}, controls=(1.0, 3.0)), tmp_path)
    assert [each.go.began for each in kept(tmp_path)[SCENARIO.name].runs] == ["2026-11-30 01:00"]


def test_the_report_says_in_which_go_a_number_was_measured() -> None:
    result = Result((run(2, {ENVOY: 100.0, OURS: 30.0}),)).followed_by(run(3, {ENVOY: 100.0, OURS: 33.0}))
    alone = list(lines({SCENARIO.name: result}))
    assert "Measured 2026-11-30 03:00 UTC of commit c0ffee3 on a machine." in alone
    assert f"| {OURS} | 33 (0.33) |" in alone

    earlier = Result((run(1, {ENVOY: 100.0, OURS: 20.0, THEIRS: 40.0}),))
    several = list(lines({SCENARIO.name: earlier.followed_by(run(3, {ENVOY: 100.0, OURS: 33.0}))}))
    assert "1. 2026-11-30 01:00 UTC of commit c0ffee1 on a machine" in several
    assert "2. 2026-11-30 03:00 UTC of commit c0ffee3 on a machine" in several
    assert "|  | 2 KB [2] |" in several
    assert f"| {OURS} | 33 (0.33) |" in several
    assert f"| {THEIRS} | 40 (0.4) [1] |" in several
    assert f"| 2 KB: requests a second, times those of {ENVOY} | ≥ 0.33 | 0.33 [2] | met |" in several
    assert f"| 2 KB: requests a second, times those of {THEIRS} | ≥ 1.8 | 0.50 [1] | missed |" in several
