"""The state of pressure: max severity, consecutive samples, cooldown, hysteresis."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.model import Pressure
from controlplane.policy.pressure import Limits, PressureState, Signals, Stability, Thresholds, severity, step

NORMAL, ELEVATED, CRITICAL = Pressure
STANDARD = Thresholds(elevated=Limits(0.70, 4.0, 0.10), critical=Limits(0.90, 16.0, 0.30))
SEED = Stability()
BARE = Stability(1, 1, 0.0, 0.0, 0.0)


def follow(uses: list[float | None], stability: Stability = SEED, seconds: float = 1.0) -> list[Pressure]:
    """The pressures after samples of KV-cache use, one each so many seconds."""
    state, pressures = PressureState(), []
    for index, use in enumerate(uses):
        state = step(state, Signals(kv_cache_use=use), STANDARD, stability, index * seconds)
        pressures.append(state.pressure)
    return pressures


@pytest.mark.parametrize(
    ("signals", "pressure"),
    [
        (Signals(0.69, 3.9, 0.09), NORMAL),
        (Signals(0.70, 0.0, 0.0), ELEVATED),
        (Signals(0.0, 4.0, 0.0), ELEVATED),
        (Signals(0.0, 0.0, 0.10), ELEVATED),
        (Signals(0.71, 5.0, 0.30), CRITICAL),  # the most severe signal counts, no average
        (Signals(0.0, 16.0, None), CRITICAL),
        (Signals(None, None, 0.12), ELEVATED),
        (Signals(), NORMAL),  # all signals missing: fail open
    ],
)
def test_the_most_severe_signal_that_is_there_decides(signals: Signals, pressure: Pressure) -> None:
    """Facts row: states."""
    assert severity(signals, STANDARD, NORMAL, 0.05) is pressure


def test_facts_stability_two_samples_two_seconds_and_five_points_are_the_defaults() -> None:
    assert Stability(2, 2, 2.0, 2.0, 0.05) == SEED


def test_a_change_takes_two_samples_in_a_row() -> None:
    assert follow([0.75, 0.60, 0.75, 0.60]) == [NORMAL] * 4
    assert follow([0.75, 0.75]) == [NORMAL, ELEVATED]


def test_of_samples_that_rise_to_different_heights_the_lower_one_counts() -> None:
    assert follow([0.95, 0.75]) == [NORMAL, ELEVATED]
    assert follow([0.75, 0.95]) == [NORMAL, ELEVATED]


def test_it_stays_for_the_cooldown_after_a_change() -> None:
    quick = [0.75, 0.75, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]
    assert follow(quick, seconds=0.5) == [NORMAL, ELEVATED, ELEVATED, ELEVATED, ELEVATED, NORMAL, NORMAL, NORMAL]


def test_it_is_left_only_below_the_hysteresis() -> None:
    assert follow([0.75, 0.75, *[0.66] * 6])[-1] is ELEVATED
    assert follow([0.75, 0.75, *[0.64] * 6])[-1] is NORMAL
    assert follow([0.95, 0.95, *[0.86] * 6])[-1] is CRITICAL
    assert follow([0.95, 0.95, *[0.84] * 6])[-1] is ELEVATED


def test_missing_signals_let_it_recover() -> None:
    assert follow([0.95, 0.95, None, None, None, None])[-1] is NORMAL


def test_rising_may_be_quicker_than_falling() -> None:
    eager = Stability(samples_to_rise=1, samples_to_fall=4, rise_cooldown_seconds=0, fall_cooldown_seconds=0)
    assert follow([0.95, 0.1, 0.1, 0.1, 0.1], eager) == [CRITICAL, CRITICAL, CRITICAL, CRITICAL, NORMAL]


def test_every_state_is_reached_from_every_other() -> None:
    uses = {NORMAL: 0.1, ELEVATED: 0.75, CRITICAL: 0.95}
    for start in Pressure:
        for end in Pressure:
            assert follow([*[uses[start]] * 4, *[uses[end]] * 4])[-1] is end


# --- properties ----------------------------------------------------------------------------------------------------

shares = st.floats(0, 1.2)
some = st.none() | shares
signals_of = st.builds(Signals, some, st.none() | st.floats(0, 40), some)


@given(
    st.sampled_from(Pressure),
    signals_of,
    st.sampled_from(["kv_cache_use", "waiting_per_node", "sla_violation_rate"]),
    st.floats(0, 40),
)
def test_severity_grows_with_each_signal(at: Pressure, signals: Signals, name: str, more: float) -> None:
    value = getattr(signals, name)
    worse = replace(signals, **{name: (value or 0.0) + more})
    assert severity(worse, STANDARD, at, 0.05) >= severity(signals, STANDARD, at, 0.05)


@given(st.lists(st.floats(0.651, 0.699), max_size=50), st.sampled_from([0.1, 0.75]))
def test_inside_the_hysteresis_band_nothing_changes(uses: list[float], before: float) -> None:
    pressures = follow([*[before] * 4, *uses])
    assert set(pressures[4:]) <= {pressures[3]}


@given(st.lists(shares, max_size=60), st.floats(0.1, 3))
def test_changes_are_as_far_apart_as_the_cooldown(uses: list[float], seconds: float) -> None:
    pressures = follow([*uses], seconds=seconds)
    changes = [index for index, (a, b) in enumerate(pairwise([NORMAL, *pressures])) if a is not b]
    assert all((b - a) * seconds >= 2.0 - 1e-9 for a, b in pairwise(changes))


@given(st.lists(signals_of, max_size=40))
def test_without_stability_the_state_is_what_the_last_sample_says(samples: list[Signals]) -> None:
    state = PressureState()
    for index, signals in enumerate(samples):
        state = step(state, signals, STANDARD, BARE, index)
        assert state.pressure is severity(signals, STANDARD, NORMAL, 0.0)
