"""The command line `headrace`. Errors that a person can mend are told in words, without a traceback."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Annotated

import typer

from controlplane.errors import ConfigurationError, HeadraceError
from headrace.commands import config, decisions, evaluate, explain, fleet, keys, override, serving
from headrace.demo import command as demo

app = typer.Typer(
    name="headrace",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Leads LLM requests to the GPU pool that should serve them.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {metadata.version('headrace')}")
        raise typer.Exit


@app.callback()
def _headrace(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


app.command()(serving.up)
app.command()(demo.demo)
app.command()(explain.explain)
app.command()(evaluate.evaluate)
app.command()(fleet.nodes)
app.command()(fleet.pools)
app.command()(decisions.decisions)
app.command()(fleet.status)
app.command()(fleet.drain)
app.add_typer(fleet.policy, name="policy")
app.add_typer(override.override, name="override")
app.add_typer(keys.keys, name="keys")
app.add_typer(config.config, name="config")
app.command()(serving.controlplane)
app.command("ext-proc")(serving.ext_proc)
app.command()(serving.envoy)
app.command()(serving.node)


def main() -> None:
    """Exit status 2 for a mistake in configuration or flags, 1 for other errors."""
    try:
        app()
    except ConfigurationError as error:
        typer.echo(str(error), err=True)
        sys.exit(2)
    except (HeadraceError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
