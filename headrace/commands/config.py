"""`headrace config check`: whether a configuration is whole, before anything runs by it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from controlplane.policy.faults import doubts
from headrace.commands.options import read_settings

config = typer.Typer(no_args_is_help=True, add_completion=False, help="Check configuration files.")


@config.callback()
def _group() -> None:
    """A group of one command for now; without a callback typer would run it by the group's name."""


@config.command("check")
def check(file: Annotated[Path, typer.Argument(help="A YAML configuration file.")]) -> None:
    """Check a configuration file: every fault at once, each with its line and what to do."""
    for doubt in doubts(read_settings(file).policy):
        typer.echo(f"{file}: warning: policy.{doubt}", err=True)
    typer.echo(f"{file}: good")
