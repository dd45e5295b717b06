"""Headrace beside plain Envoy and other routers, before the same engines, in turns; writes docs/benchmarks.md.

    python bench/compare.py [--rounds 5] [--scenarios NAME ...] [--contestants NAME ...] [--seconds S] [--report]

The other routers are installed from PyPI into environments of their own. All of it, load generator and engines too,
shares this machine, so that ratios mean more than what anything does in a second. All takes about 40 minutes. On a
machine that is quiet for less, ask for a part, and for the others later: what is measured is kept in bench/measured,
scenario by scenario, and what a later go leaves out is told of an earlier one, with its date. Plain Envoy takes part in
every go.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
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
from peers.plain_envoy import PLAIN_ENVOY
from results import Go, Run
from rounds import BUSIEST, run_rounds
from scenarios import GAP_MS, SCENARIOS, TOKENS, Scenario

CHECKOUT = Path(__file__).resolve().parents[1]
CONTROL = Scenario("control", SMALL, seconds=0.5, warm_up=0.1)


async def compare(
    contestants: Sequence[Contestant], scenarios: Sequence[Scenario], rounds: int, patience: float
) -> None:
    go = Go(time.strftime("%Y-%m-%d %H:%M", time.gmtime()), _commit(), machine.description())
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        bodies = write_bodies(folder / "bodies")
        engines, engine_pids = await _start_engines(stack, folder)
        running: dict[str, Running] = {}
        for contestant in contestants:
            print(f"starting {contestant.name} ...", flush=True)
            (place := folder / contestant.key).mkdir()
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
            if not results.keep(Run(scenario, go, tuple(done))):
                print("  no round was steady: what was measured before stays", flush=True)


def _commit() -> str:
    """The checkout's, with a `+` if its programs were changed since; empty without git."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=CHECKOUT, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs", ":!bench/measured")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


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
    _add_choice(parser, "--scenarios", {each.key: each for each in SCENARIOS})
    _add_choice(parser, "--contestants", {each.key: each for each in CONTESTANTS})
    parser.add_argument("--seconds", type=float, help="of each turn; by default 3 to 8")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for a quiet machine, each time")
    parser.add_argument("--report", action="store_true", help="write the report of what was measured before")
    given = parser.parse_args()
    try:
        if not given.report:
            contestants = [each for each in CONTESTANTS if each is PLAIN_ENVOY or each.key in given.contestants]
            scenarios = [each for each in SCENARIOS if each.key in given.scenarios]
            if given.seconds:
                scenarios = [replace(each, seconds=given.seconds) for each in scenarios]
            asyncio.run(compare(contestants, scenarios, given.rounds, given.patience))
    finally:
        report.write()  # an end before the last scenario leaves what was measured


def _add_choice(parser: argparse.ArgumentParser, flag: str, names: Mapping[str, object]) -> None:
    """Of some of these; by default all."""
    said = f"some of: {', '.join(names)}"
    parser.add_argument(flag, nargs="+", default=[*names], choices=names, metavar="NAME", help=said)


if __name__ == "__main__":
    main()
