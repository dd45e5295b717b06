"""`headrace up`: the whole system on one machine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from headrace.commands.options import ConfigFile, read_settings
from headrace.signals import run_until_stopped
from headrace.telemetry import telemetry
from headrace.up import System, running_system, write_ready_file

StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir", metavar="DIR", help="Keeps etcd's data and the ledger over runs; without it they go at the end."
    ),
]
LogDir = Annotated[
    Path | None,
    typer.Option("--log-dir", metavar="DIR", help="Logs of the parts go there, not to this terminal."),
]


def up(
    config: ConfigFile = None,
    ready_file: Annotated[
        Path | None,
        typer.Option("--ready-file", metavar="FILE", help="Gets the addresses as JSON once traffic can flow."),
    ] = None,
    state_dir: StateDir = None,
    log_dir: LogDir = None,
) -> None:
    """Run the whole system on this machine: etcd unless one is configured, control plane, filter and Envoy."""
    settings = read_settings(config)
    if ready_file is not None:
        ready_file.unlink(missing_ok=True)  # of a former run, whose addresses are not these

    came_up = False

    async def serve() -> None:
        nonlocal came_up
        async with running_system(settings, state_dir=state_dir, log_dir=log_dir) as system:
            came_up = True
            typer.echo(_welcome(system, keeps_state=state_dir is not None), err=True)
            if ready_file is not None:
                write_ready_file(ready_file, system.addresses)
            await asyncio.Event().wait()

    with telemetry(settings.telemetry, "up"):
        uvloop.run(run_until_stopped(serve(), stopping=lambda: typer.echo("stopping ...", err=True)))
    if not came_up:
        typer.echo("it was stopped before it was up", err=True)
        raise typer.Exit(1)


def _welcome(system: System, *, keeps_state: bool) -> str:
    addresses, ledger = system.addresses, system.settings.ledger.url
    kept = "" if keeps_state else " (gone at the end; --state-dir keeps it)"
    return (
        f"Headrace is up: requests to http://{addresses.gateway}, nodes and operators to {addresses.grpc}. "
        "Ctrl-C ends it.\n"
        f"State is in {system.state_dir}{kept}, decisions in {ledger}."
    )
