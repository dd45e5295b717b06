"""How fast the simulator is, against a plain-Python event loop of the same model, and how much memory it takes.

    python bench/simulator.py [--requests 1000000] [--plain 2000]

Both run the same fleet at the same load; the plain loop gets fewer requests, since it generates token by token.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from controlplane.policy.settings import Policy
from planner.hardware.published import PROFILES
from planner.simulation.course import Course
from planner.simulation.fleet import SimulatedFleet, SimulatedPool, with_classes
from planner.simulation.state import REQUEST
from planner.workload.shipped import shipped
from planner.workload.workload import Workload
from support.plain_fleet import PlainFleet

RATE = 400.0


def fleet() -> SimulatedFleet:
    """The papers' two pools on A100, of a size that 400 requests a second use well."""
    engine = next(iter(PROFILES.values()))
    pools = (SimulatedPool(engine.limited(4096, 128), 30), SimulatedPool(engine.limited(16_384, 32), 14))
    return SimulatedFleet(pools, with_classes(Policy(), (4096, 16_384)))


def workload(requests: int) -> Workload:
    return shipped("azure-2023").sample(requests, RATE, np.random.default_rng(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--plain", type=int, default=2000)
    arguments = parser.parse_args()
    simulated = fleet()
    started = time.perf_counter()
    Course(workload(1000), simulated, 1).finish()
    print(f"first course, of 1000 requests, with start-up: {time.perf_counter() - started:.1f} s")
    plain = workload(arguments.plain)
    started = time.process_time()
    PlainFleet(plain, simulated, 1).finish()
    plain_rate = arguments.plain / (time.process_time() - started)
    print(f"plain Python: {plain_rate:,.0f} requests/s, {arguments.plain:,} requests")
    many = workload(arguments.requests)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, started = time.perf_counter(), time.process_time()
    course = Course(many, simulated, 1)
    state = course.finish()
    seconds, wall = time.process_time() - started, time.perf_counter() - wall
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    rate = arguments.requests / seconds
    print(
        f"simulator: {arguments.requests:,} requests in {seconds:.2f} s of one core ({wall:.2f} s), {rate:,.0f} "
        f"requests/s, {rate / plain_rate:,.0f} times the plain loop; {course.decisions:,} decisions asked"
    )
    print(f"{state.instances['occupied'].sum() / float(state.clockwork[0].clock):.0f} sequences ran on average")
    print(f"{REQUEST.itemsize} bytes a request in the state; the process grew by {grown / arguments.requests:.0f} each")


if __name__ == "__main__":
    main()
