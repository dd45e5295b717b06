"""From the words of `headrace plan` to a plan, on the terminal and in files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, nan
from pathlib import Path

from controlplane.errors import ConfigurationError
from controlplane.model import FormatTier
from controlplane.policy.formats import tier_of
from controlplane.policy.settings import FormatRules
from headrace import plan_table
from headrace.commands.options import read_text
from headrace.console import console
from headrace.progress import progress
from headrace.workloads import workload_of
from planner.hardware.engine import EngineModel
from planner.hardware.measured import as_measured, read_nodes
from planner.hardware.physics import engine
from planner.plan import plot
from planner.plan.configuration import configuration
from planner.plan.document import document
from planner.plan.planning import Plan, Planner
from planner.plan.search import Asked
from planner.plan.trial import Trials
from planner.sizing.pools import Targets
from planner.workload.arrivals import busy_rate
from planner.workload.caps import CapPolicy, capped
from planner.workload.lines import MOST_TOKENS
from planner.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Wishes:
    """The options of `headrace plan`, as they were given."""

    workload: tuple[str, ...]
    model: str
    gpu: tuple[str, ...]
    gpus: tuple[int, ...]
    formats: tuple[str, ...]
    rate: float | None
    max_tokens: str
    tolerant: float | None
    classes: int
    context: int
    ttft_seconds: float
    tpot_seconds: float
    utilisation: float
    availability: float
    prices: tuple[str, ...]
    dollars_per_kwh: float
    nodes: Path | None
    served: str
    requests: int
    seed: int
    simulate: bool


def run(wishes: Wishes, *, json_file: Path | None, png_file: Path | None, yaml_file: Path | None) -> None:
    """Raises ConfigurationError for what cannot be read, and NoFleetError."""
    drawn = workload_of(wishes.workload, wishes.rate, wishes.requests)(wishes.seed)
    workload = _capped(drawn, wishes.max_tokens)
    asked = Asked(
        rate=workload.requests_per_second,
        busy_rate=busy_rate(workload),
        engines=engines(wishes, float(workload.total_tokens.mean())),
        targets=Targets(wishes.ttft_seconds, wishes.tpot_seconds, wishes.utilisation, wishes.availability),
        context=wishes.context,
        dollars_per_kwh=wishes.dollars_per_kwh,
    )
    planner = Planner(asked, workload, wishes.classes, wishes.tolerant)
    with progress("context classes") as told:
        plan = by_formulas = planner.plan(told)
    if wishes.simulate:
        with progress("fleets simulated") as told:
            plan = planner.tried(plan, Trials(workload, asked.targets, wishes.tolerant, wishes.seed), told)
    about = _about(wishes, workload, plan)
    plan_table.show(console(), plan, about)
    if json_file is not None:
        found = {"model": wishes.model, "workload": workload.source, "requests": len(workload), **document(plan)}
        json_file.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if yaml_file is not None:
        yaml_file.write_text(configuration(plan.fleet, wishes.model), encoding="utf-8")
    if png_file is not None:
        plot.draw(by_formulas, about[0], png_file)


def _capped(workload: Workload, max_tokens: str) -> Workload:
    if max_tokens == "own":
        return workload
    if max_tokens.isdecimal() and 0 < int(max_tokens) <= MOST_TOKENS:
        return capped(workload, CapPolicy.CONSTANT, int(max_tokens))
    if max_tokens in {CapPolicy.ACTUAL, CapPolicy.P99, CapPolicy.ABSENT}:
        return capped(workload, CapPolicy(max_tokens))
    raise ConfigurationError([f"--max-tokens is {max_tokens!r}; give own, actual, p99, absent, or a number of tokens"])


def engines(wishes: Wishes, mean_tokens: float) -> Mapping[FormatTier, Sequence[EngineModel]]:
    """Those that hold the model, by the tier of their format. Raises ConfigurationError when no full one does."""
    prices = dict(_price(text, wishes.gpu) for text in wishes.prices)
    seen = read_nodes(read_text(wishes.nodes), str(wishes.nodes), wishes.served) if wishes.nodes else ()
    found: dict[FormatTier, list[EngineModel]] = {tier: [] for tier in FormatTier}
    faults: dict[str, None] = {}
    for gpu in dict.fromkeys(wishes.gpu):
        for gpus in sorted(set(wishes.gpus)):
            for name in dict.fromkeys(wishes.formats):
                try:
                    made = engine(wishes.model, gpu, gpus, name)
                except ConfigurationError as error:
                    faults |= dict.fromkeys(error.faults)
                    continue
                if gpu.lower() in prices:
                    made = replace(made, dollars_per_hour=gpus * prices[gpu.lower()])
                found[tier_of(made.quantization, FormatRules())].append(as_measured(made, seen, mean_tokens))
    unknown = [fault for fault in faults if "is not in the catalogue" in fault]
    if unknown or not found[FormatTier.FULL]:
        raise ConfigurationError(unknown or list(faults) or ["--format: name a full one, such as fp16"])
    return found


def _price(text: str, gpus: Sequence[str]) -> tuple[str, float]:
    gpu, _, dollars = text.partition("=")
    try:
        price = float(dollars)
    except ValueError:
        price = nan
    if not (0 < price < inf):
        raise ConfigurationError([f"--price is {text!r}; write GPU=DOLLARS, such as H100=2.50, above 0"])
    if gpu.lower() not in {each.lower() for each in gpus}:
        raise ConfigurationError([f"--price {text}: {gpu} is not among {', '.join(gpus)}; see --gpu"])
    return gpu.lower(), price


def _about(wishes: Wishes, workload: Workload, plan: Plan) -> Sequence[str]:
    targets = plan.asked.targets
    tolerant = f", {wishes.tolerant:.0%} tolerant" if wishes.tolerant else ""
    return (
        f"{wishes.model}: {plan.asked.rate:,.4g} requests/s, max_tokens {wishes.max_tokens}{tolerant}; "
        f"first token in {targets.ttft_seconds:g} s, further ones in {1000 * targets.tpot_seconds:g} ms (P99)",
        f"{len(workload)} requests of {workload.source}",
    )
