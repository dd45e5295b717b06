"""`headrace plan`: what fleet a workload needs, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.commands.options import check_writable, finite
from planner.arrays import check_arrays
from planner.plots import check_plots

WORKLOAD = ("azure-2023",)
GPUS = ("A100", "H100")
INSTANCE_SIZES = (1, 2, 4, 8)
FORMATS = ("fp16", "fp8", "int4")


def plan(
    workload: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE or NAME]...",
            help="Traces of one kind: Azure or BurstGPT (CSV), Mooncake (JSON lines), or what `headrace decisions "
            "--json` prints. Or a summary that comes with Headrace: azure-2023 (the default), azure-2023-code, "
            "azure-2023-conv, lmsys, agent-heavy.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[str, typer.Option("--model", "-m", help="A model of the catalogue.")] = "Llama-3-70B",
    gpu: Annotated[
        list[str] | None, typer.Option("--gpu", "-g", help="GPUs to choose from; repeatable. A100 and H100 without it.")
    ] = None,
    gpus: Annotated[
        list[int] | None,
        typer.Option(min=1, max=1024, help="How many an instance may have; repeatable. 1, 2, 4 and 8 without it."),
    ] = None,
    formats: Annotated[
        list[str] | None, typer.Option("--format", help="Of fp16, fp8, int4 those to choose from; repeatable.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001, max=100_000, callback=finite, help="Requests a second; without it, those of the workload."
        ),
    ] = None,
    max_tokens: Annotated[
        str,
        typer.Option(
            help="What clients set max_tokens to: own (as told, else nothing), actual, p99, absent, or a number."
        ),
    ] = "own",
    tolerant: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            callback=finite,
            help="Share of the requests that quantized engines may serve; else by verdicts.",
        ),
    ] = None,
    classes: Annotated[int, typer.Option(min=1, max=4, help="At most so many context classes.")] = 3,
    context: Annotated[int, typer.Option(min=0, help="Contexts of so many tokens are served, needed or not.")] = 0,
    ttft: Annotated[
        float, typer.Option(min=0.001, callback=finite, help="Seconds to the first token, for 99% of the requests.")
    ] = 2.0,
    tpot: Annotated[float, typer.Option(min=0.001, callback=finite, help="Seconds for each further token.")] = 0.08,
    utilisation: Annotated[
        float, typer.Option(min=0.01, max=0.99, callback=finite, help="No pool is used more than this.")
    ] = 0.85,
    availability: Annotated[
        float, typer.Option(min=0.01, max=1, callback=finite, help="The share of the instances that is up at any time.")
    ] = 1.0,
    price: Annotated[
        list[str] | None, typer.Option(metavar="GPU=DOLLARS", help="What a GPU costs an hour; repeatable.")
    ] = None,
    kwh: Annotated[
        float, typer.Option(min=0, callback=finite, help="Dollars for a kWh, where energy is paid for by itself.")
    ] = 0.0,
    nodes: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What `headrace nodes --json` prints: engines as they are measured."),
    ] = None,
    served: Annotated[str, typer.Option(help="The model's name in that file; without it, the model.")] = "",
    requests: Annotated[
        int, typer.Option(min=1000, max=10_000_000, help="How many are drawn from a summary.")
    ] = 30_000,
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn.")] = 1,
    simulate: Annotated[bool, typer.Option(help="Try the best few in the simulator, and correct them by it.")] = True,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the plan as JSON.")] = None,
    png_file: Annotated[Path | None, typer.Option("--png", metavar="FILE", help="Write costs as a picture.")] = None,
    yaml_file: Annotated[
        Path | None, typer.Option("--yaml", metavar="FILE", help="Write configuration for `headrace up`.")
    ] = None,
) -> None:
    """Choose a fleet for a workload: where contexts part, which engines in which format, and how many of them."""
    check_arrays()
    if png_file is not None:
        check_plots()
    for written in (json_file, png_file, yaml_file):
        if written is not None:
            check_writable(written)
    from headrace.planning import Wishes, run  # noqa: PLC0415 - needs the extra `planner`, and is slow to import

    run(
        Wishes(
            workload=tuple(workload or WORKLOAD),
            model=model,
            gpu=tuple(gpu or GPUS),
            gpus=tuple(gpus or INSTANCE_SIZES),
            formats=tuple(formats or FORMATS),
            rate=rate,
            max_tokens=max_tokens,
            tolerant=tolerant,
            classes=classes,
            context=context,
            ttft_seconds=ttft,
            tpot_seconds=tpot,
            utilisation=utilisation,
            availability=availability,
            prices=tuple(price or ()),
            dollars_per_kwh=kwh,
            nodes=nodes,
            served=served or model,
            requests=requests,
            seed=seed,
            simulate=simulate,
        ),
        json_file=json_file,
        png_file=png_file,
        yaml_file=yaml_file,
    )
