"""What the token estimate costs: medians of processor time, for texts of 2 KB and of 50 KB.

    python bench/estimator_cost.py

`counts` is the one pass over the text, `linear` and `ratio` are what an estimate costs beyond it. `fold` and
`calibrate` are the control plane's: one report, and all that a category's 400 reports of eight tenant groups teach.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from controlplane.features import Features
from controlplane.learning.calibration import calibrate
from controlplane.learning.statistics import Observation, Statistics, fold, merge
from controlplane.policy.estimator import TENANT_GROUPS, LinearEstimator, RatioEstimator, unlearned
from controlplane.policy.settings import EstimationRules
from controlplane.policy.text import count_text

SIZES = (2_000, 50_000)
ROUNDS, CALLS = 200, 20
PROSE = (
    "Please review the following report on the harbour and its trade. The council met on Tuesday to discuss the plans, "
    "and several members asked how the costs had been worked out, since the figures of the two years did not agree. "
)
CHINESE = (Path(__file__).parent / "estimator_texts" / "zh.txt").read_text("utf-8")
TEXTS = {"prose": PROSE, "code": Path(argparse.__file__).read_text("utf-8"), "chinese": CHINESE}


def main() -> None:
    by_sum, by_ratio = LinearEstimator(), RatioEstimator(4.0, 3.0)
    print(f"{'microseconds':20} {'counts':>9} {'linear':>9} {'ratio':>9}")
    for name, text in TEXTS.items():
        for size in SIZES:
            data = text.encode() * (size // len(text.encode()) + 1)
            given = data[:size].decode(errors="ignore")
            features = Features(count_text(given), messages=2)
            row = _medians(
                lambda given=given: count_text(given),  # type: ignore[misc]
                lambda features=features: by_sum.estimate(features, 0),  # type: ignore[misc]
                lambda features=features: by_ratio.estimate(features, 0),  # type: ignore[misc]
            )
            print(f"{name + f' {size // 1000} KB':20} " + " ".join(f"{value:9.1f}" for value in row))
    _control_plane()


def _control_plane() -> None:
    rules = EstimationRules()
    dice = random.Random(1)
    own, calibrations = Statistics(), unlearned(rules)
    observations = [
        Observation("m", f"tenant {number}", features, round(features.text.total / dice.uniform(3.8, 4.4)), 100)
        for number in range(50 * TENANT_GROUPS)
        for features in [Features(count_text(PROSE * dice.randrange(1, 9)), messages=2)]
    ]
    for observation in observations:
        fold(own, observation, calibrations, rules, now=0.0)
    (taken,) = _medians(lambda: fold(own, observations[0], calibrations, rules, now=0.0), rounds=20)
    print(f"{'fold':20} {taken:9.1f}")
    (taken,) = _medians(lambda: calibrate(merge([own], 0.0), rules), rounds=20, calls=1)
    print(f"{'calibrate':20} {taken:9.1f}")


def _medians(*steps: Callable[[], object], rounds: int = ROUNDS, calls: int = CALLS) -> list[float]:
    """Of so many calls at a time, for the clock costs as much as an estimate."""
    taken: list[list[int]] = [[] for _ in steps]
    for _ in range(rounds):
        for step, times in zip(steps, taken, strict=True):
            started = time.thread_time_ns()
            for _ in range(calls):
                step()
            times.append(time.thread_time_ns() - started)
    return [statistics.median(times) / 1000 / calls for times in taken]


if __name__ == "__main__":
    main()
