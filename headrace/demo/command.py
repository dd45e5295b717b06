"""`headrace demo`."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from headrace.demo.fleet import running_demo
from headrace.demo.models import cache_folder, find_q4_model, make_f16_model
from headrace.demo.requests import DEMO_REQUESTS
from headrace.demo.sending import Answered, send_requests
from headrace.demo.showing import show_answered, show_next_steps, show_summary
from headrace.signals import run_until_stopped


def demo(
    exit_at_end: Annotated[
        bool, typer.Option("--exit", help="End after the requests; status 0 only if every one went as decided.")
    ] = False,
) -> None:
    """Run everything with two real engines, in 4 and in 16 bits, and show request by request what is decided."""
    console = Console()
    files = _model_files(console)
    log_dir = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    answered: list[Answered] = []

    async def run() -> None:
        console.print("Starting etcd, control plane, filter, Envoy, and two llama.cpp engines with their agents ...")
        async with running_demo(files, log_dir) as system:
            console.print(f"Up: gateway http://{system.addresses.gateway}, logs in {log_dir}\n", highlight=False)
            async for each in send_requests(system.addresses):
                answered.append(each)
                show_answered(console, len(answered), each)
            show_summary(console, answered)
            if not exit_at_end:
                show_next_steps(console, system.addresses)
                console.print("\nCtrl-C ends it.")
                await asyncio.Event().wait()

    uvloop.run(run_until_stopped(run()))
    if len(answered) < len(DEMO_REQUESTS) or any(each.faults for each in answered):
        console.print(f"The logs stay in {log_dir}", highlight=False)
        raise typer.Exit(1)
    shutil.rmtree(log_dir, ignore_errors=True)


def _model_files(console: Console) -> dict[str, Path]:
    """GGUF files by quantization format; the 16-bit one is made on the first run."""
    quantized = find_q4_model()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("Making the 16-bit model", total=1.0)
        full = make_f16_model(
            quantized, cache_folder(os.environ), lambda done, total: progress.update(task, completed=done, total=total)
        )
    return {"gguf-q4": quantized, "fp16": full}
