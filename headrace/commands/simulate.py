"""`headrace simulate`: what a fleet does under a workload, before it is bought."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from controlplane.config.settings import Settings
from headrace.commands.options import ConfigFile, check_writable, finite, read_settings
from headrace.console import console
from planner.arrays import check_arrays
from planner.plots import check_plots

simulate = typer.Typer(add_completion=False, help="Simulate a fleet: its engines, and the policy that routes to them.")

# Shares of the workload's rate that are drawn.
_LOADS = (0.4, 0.6, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5)

_JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the figures as JSON.")]


@simulate.callback(invoke_without_command=True)
def fleet(
    context: typer.Context,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            "-w",
            metavar="FILE or NAME",
            help="A trace, or a summary that comes with Headrace, as for `headrace plan`; repeatable. azure-2023 "
            "without it.",
        ),
    ] = None,
    pool: Annotated[
        list[str] | None,
        typer.Option(
            "--pool",
            "-p",
            metavar="WORDS",
            help="instances=4,gpu=A100,gpus=8,format=fp16,context=8192,sequences=128,token_budget=2048,"
            "capacity=on_demand; repeatable.",
        ),
    ] = None,
    fleet_file: Annotated[
        Path | None, typer.Option("--fleet", "-f", metavar="FILE", help="YAML with a list `pools` of the same words.")
    ] = None,
    model: Annotated[str, typer.Option("--model", "-m", help="A model of the catalogue.")] = "Llama-3-70B",
    config_file: ConfigFile = None,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001, max=100_000, callback=finite, help="Requests a second; without it, those of the workload."
        ),
    ] = None,
    tier: Annotated[
        list[str] | None, typer.Option(metavar="TIER=SHARE", help="QoS tiers of a workload without any; repeatable.")
    ] = None,
    requests: Annotated[int, typer.Option(min=100, max=10_000_000, help="How many are drawn from a summary.")] = 30_000,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Courses, each with its own seed.")] = 3,
    json_file: _JsonFile = None,
    png_file: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="Draw it under loads from 40% to 150% of the rate.")
    ] = None,
) -> None:
    """Simulate one fleet: requests come as in the workload and are routed by the policy of `-c`."""
    if context.invoked_subcommand is not None:
        return
    check_arrays()
    if png_file is not None:
        check_plots()
    for written in (json_file, png_file):
        if written is not None:
            check_writable(written)
    from headrace import simulation_table  # noqa: PLC0415
    from headrace.progress import progress  # noqa: PLC0415
    from headrace.simulating import build_fleet, read_pools, read_shares, tiered  # noqa: PLC0415 - needs NumPy
    from headrace.workloads import workload_of  # noqa: PLC0415
    from planner.simulation import plot  # noqa: PLC0415
    from planner.simulation.document import document  # noqa: PLC0415
    from planner.simulation.report import SimulationReport  # noqa: PLC0415
    from planner.simulation.simulate import simulate as one_course  # noqa: PLC0415
    from planner.workload.arrivals import scaled  # noqa: PLC0415

    settings = Settings() if config_file is None else read_settings(config_file)
    simulated = build_fleet(read_pools(pool or (), fleet_file), model, settings.policy, own_classes=config_file is None)
    of_seed = workload_of(workload or ("azure-2023",), rate, requests)
    shares = read_shares(tier or ())
    with progress("courses") as told:
        reports: list[SimulationReport] = []
        loads: list[plot.Load] = []
        courses = seeds + (len(_LOADS) if png_file is not None else 0)
        for seed in range(1, seeds + 1):
            told(len(reports), courses)
            reports.append(one_course(tiered(of_seed(seed), shares, seed), simulated, seed))
        drawn = tiered(of_seed(1), shares, 1)
        for share in _LOADS if png_file is not None else ():
            told(len(reports) + len(loads), courses)
            report = one_course(scaled(drawn, share), simulated, 1)
            loads.append(plot.Load(share * drawn.requests_per_second, report))
    simulation_table.show(console(), reports)
    if json_file is not None:
        json_file.write_text(json.dumps([document(each) for each in reports], indent=1) + "\n", encoding="utf-8")
    if png_file is not None:
        pools = ", ".join(f"{each.instances} x {each.name}" for each in reports[0].pools)
        plot.draw(loads, drawn.requests_per_second, f"{model}: {pools}", png_file)


@simulate.command("formats")
def formats(
    model: Annotated[str, typer.Option("--model", "-m", help="A model of the catalogue.")] = "Llama-2-13B",
    gpu: Annotated[str, typer.Option("--gpu", "-g", help="A GPU of the catalogue.")] = "A100",
    sequences: Annotated[int, typer.Option(min=1, help="How many an engine runs at once.")] = 32,
    tolerant: Annotated[
        float, typer.Option(min=0, max=1, callback=finite, help="Share of requests that 4 bits may serve.")
    ] = 0.6,
    half: Annotated[int, typer.Option(min=1, help="Engines of each format.")] = 4,
    gain: Annotated[
        list[float] | None,
        typer.Option(
            min=0.1, max=10, callback=finite, help="Of decoding in 4 bits; repeatable. 1.7, 1.8 and 1.9 without it."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Courses, each with its own seed.")] = 3,
    json_file: _JsonFile = None,
) -> None:
    """What 4-bit engines are worth: half a fleet of them against as many full ones, and against the full half alone."""
    check_arrays()
    if json_file is not None:
        check_writable(json_file)
    from headrace.simulation_table import show_formats  # noqa: PLC0415
    from planner.hardware.physics import engine  # noqa: PLC0415 - needs NumPy
    from planner.simulation.formats import compare_formats  # noqa: PLC0415

    base = engine(model, gpu, 1)
    base = base.limited(min(base.max_context, 2048), sequences)
    results = list(
        compare_formats(base, gain or (1.7, 1.8, 1.9), tolerant=tolerant, half=half, seeds=range(1, seeds + 1))
    )
    show_formats(console(), results, base.name, half=half, tolerant=tolerant)
    if json_file is not None:
        told = [
            {
                "gain": each.gain,
                "tokens_per_second": {
                    "all_full": each.all_full.mean,
                    "mixed": each.mixed.mean,
                    "half_alone": each.half.mean,
                },
                "over_all_full": each.over_all_full,
                "over_half_alone": each.over_half,
            }
            for each in results
        ]
        json_file.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
