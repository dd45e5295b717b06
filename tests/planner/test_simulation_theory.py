"""The simulator against queueing theory: one engine whose iterations take the same time however many sequences run is
as many servers as it has places.

A service is a number of iterations, far more than one, so that it makes little difference that whoever comes during
one waits for its end: half an iteration, of a mean wait of hundreds.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from controlplane.policy.settings import Policy, WaitingRules
from planner.hardware.engine import EngineModel
from planner.simulation.fleet import SimulatedFleet, SimulatedPool
from planner.simulation.simulate import simulate
from planner.workload.workload import Workload

# Whoever is first compiles the simulator, where no process before has.
pytestmark = pytest.mark.timeout(600)

ITERATION = 1e-6
MEAN = 1000  # iterations of a service
PATIENT = Policy(waiting=WaitingRules(longest_seconds=3600.0, most_waiting=100_000))
# Of so many requests a mean wait has a standard error of about 1%.
SEEDS = (1, 2, 3)


def mean_wait(servers: int, load: float, services: npt.NDArray[np.int64], seed: int) -> float:
    """In mean services, when so many of them come at random at this load of the servers."""
    dice = np.random.default_rng(seed)
    count = services.size
    workload = Workload(
        source="theory",
        arrival_seconds=np.cumsum(dice.exponential(MEAN * ITERATION / (load * servers), count)),
        input_tokens=np.ones(count, np.int32),
        output_tokens=services.astype(np.int32),
        output_cap=np.zeros(count, np.int32),
    )
    most = int(services.max()) + 2
    engine = EngineModel(
        name="servers",
        gpus=1,
        fixed_seconds=ITERATION,
        per_sequence_seconds=0.0,
        chunk_tokens=1,
        kv_blocks=servers * most,
        max_sequences=servers,
        max_context=most,
        dollars_per_hour=1.0,
    )
    report = simulate(workload, SimulatedFleet((SimulatedPool(engine, 1),), PATIENT, heartbeat_seconds=3600.0))
    assert report.area_picoseconds == report.sojourn_picoseconds  # Little's law
    return report.whole.whole.mean / (MEAN * ITERATION) - 1


def erlang_c(servers: int, load: float) -> float:
    """The probability of waiting."""
    offered = servers * load
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = offered * blocked / (n + offered * blocked)
    return blocked / (1 - load * (1 - blocked))


def deterministic_wait(servers: int, load: float) -> float:
    """Of M/D/c, in services (Crommelin 1932)."""
    offered = servers * load
    total = 0.0
    for i in range(1, 400):
        mean = i * offered
        most = i * servers + int(12 * math.sqrt(mean)) + 60
        weights = [math.exp(-mean + j * math.log(mean) - math.lgamma(j + 1)) for j in range(i * servers, most)]
        total += sum(weights) - sum(weights[1:]) / load
    return total


def geometric(count: int, seed: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng([seed, 1]).geometric(1 / MEAN, count)


def hyperexponential(count: int, seed: int) -> npt.NDArray[np.int64]:
    """Two kinds of services, of which the rare one is ten times as long. The mean is MEAN."""
    dice = np.random.default_rng([seed, 2])
    short = MEAN / 1.9
    return np.where(dice.random(count) < 0.9, dice.geometric(1 / short, count), dice.geometric(0.1 / short, count))


@pytest.mark.parametrize(("servers", "load"), [(1, 0.6), (8, 0.8)])
def test_waits_are_those_of_m_m_c(servers: int, load: float) -> None:
    expected = erlang_c(servers, load) / (servers * (1 - load))
    found = np.mean([mean_wait(servers, load, geometric(700_000, seed), seed) for seed in SEEDS])
    assert found == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.7), (8, 0.8)])
def test_waits_are_those_of_m_d_c(servers: int, load: float) -> None:
    found = np.mean([mean_wait(servers, load, np.full(500_000, MEAN), seed) for seed in SEEDS])
    assert found == pytest.approx(deterministic_wait(servers, load), rel=0.02)


def test_waits_are_those_of_m_g_1() -> None:
    """Pollaczek and Khinchine."""
    load = 0.5
    found = []
    expected = []
    for seed in SEEDS:
        services = hyperexponential(700_000, seed)
        variation = services.var() / services.mean() ** 2
        busy = load * services.mean() / MEAN
        found.append(mean_wait(1, load, services, seed))
        expected.append(busy * (1 + variation) / (2 * (1 - busy)) * services.mean() / MEAN)
    assert np.mean(found) == pytest.approx(np.mean(expected), rel=0.02)
