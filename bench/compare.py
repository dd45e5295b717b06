"""Headrace beside plain Envoy and other routers, before the same engines, in turns; writes docs/benchmarks.md.

    python bench/compare.py [--rounds 5] [--scenarios REGEX] [--contestants REGEX] [--report]

The other routers are installed from PyPI into environments of their own. All of it, load generator and engines too,
shares this machine, so that ratios mean more than what anything does in a second. Takes about 40 minutes; scenarios
that are left out keep the results of an earlier run.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import machine
import report
import results
from bodies import MODEL, SMALL, write_bodies
from building import built
from contestants import CONTESTANTS
from loading import Measured, measure
from peers.contestant import Contestant, Engines, Running, free_port, program
from results import Result
from rounds import BUSIEST, run_rounds
from scenarios import GAP_MS, SCENARIOS, TOKENS, Scenario

CONTROL = Scenario("control", SMALL, seconds=0.5, warm_up=0.1)


async def compare(
    contestants: Sequence[Contestant], scenarios: Sequence[Scenario], rounds: int, patience: float
) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        bodies = write_bodies(folder / "bodies")
        engines, engine_pids = await _start_engines(stack, folder)
        running: dict[str, Running] = {}
        for contestant in contestants:
            print(f"starting {contestant.name} ...", flush=True)
            (place := folder / re.sub(r"\W+", "-", contestant.name)).mkdir()
            running[contestant.name] = await stack.enter_async_context(contestant.start(engines, place))

        def ours() -> set[int]:
            return {pid for each in running.values() for pids in each.processes().values() for pid in pids}

        def quiet() -> float:
            return machine.wait_until_quiet([*ours(), *engine_pids], BUSIEST, patience)

        async def run(name: str, on: Running, scenario: Scenario, seed: int) -> Measured:
            files = bodies[scenario.size, scenario.streamed]
            return await measure(
                name, on, scenario=scenario, bodies=files, engines=engine_pids, others=ours(), seed=seed
            )

        async def turn(contestant: Contestant, scenario: Scenario, number: int) -> Measured:
            return await run(contestant.name, running[contestant.name], scenario, number + 1)

        async def control() -> float:
            return (await run(CONTROL.name, Running(engines.ports[0], dict), CONTROL, 1)).per_second

        for scenario in scenarios:
            print(f"{scenario.name}:", flush=True)
            turns = [partial(turn, each, scenario) for each in contestants if each.most_rate >= (scenario.rate or 0)]
            done = await run_rounds(rounds, turns, control, quiet, partial(print, flush=True))
            results.keep(Result(scenario, machine.description(), time.strftime("%Y-%m-%d", time.gmtime()), tuple(done)))


async def _start_engines(stack: AsyncExitStack, folder: Path) -> tuple[Engines, list[int]]:
    ports, pids = [], []
    for number in range(2):
        port = free_port()
        argv: list[str | Path] = [built("engine"), str(port), MODEL, str(TOKENS), str(GAP_MS)]
        on = await stack.enter_async_context(program(argv, port, f"engine-{number}", folder))
        ports.append(port)
        pids += [pid for each in on.processes().values() for pid in each]
    return Engines((ports[0], ports[1]), MODEL), pids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scenarios", default="", help="a regular expression that their names have")
    parser.add_argument("--contestants", default="", help="a regular expression that their names have")
    parser.add_argument("--seconds", type=float, help="of each turn; by default 3 to 8")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for a quiet machine, each time")
    parser.add_argument("--report", action="store_true", help="write the report of what was measured before")
    given = parser.parse_args()
    if not given.report:
        contestants = [each for each in CONTESTANTS if re.search(given.contestants, each.name)]
        scenarios = [each for each in SCENARIOS if re.search(given.scenarios, each.name)]
        if given.seconds:
            scenarios = [replace(each, seconds=given.seconds) for each in scenarios]
        asyncio.run(compare(contestants, scenarios, given.rounds, given.patience))
    report.write()


if __name__ == "__main__":
    main()
