"""The command line `headrace`. Errors that a person can mend are told in words, without a traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from controlplane.errors import ConfigurationError, HeadraceError


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a command is defined: a function, or an application of further commands."""

    module: str
    attribute: str


_COMMANDS = {
    "up": _Place("headrace.commands.up", "up"),
    "demo": _Place("headrace.demo.command", "demo"),
    "explain": _Place("headrace.commands.explain", "explain"),
    "evaluate": _Place("headrace.commands.evaluate", "evaluate"),
    "replay": _Place("headrace.commands.replay", "replay"),
    "plan": _Place("headrace.commands.plan", "plan"),
    "simulate": _Place("headrace.commands.simulate", "simulate"),
    "nodes": _Place("headrace.commands.fleet", "nodes"),
    "pools": _Place("headrace.commands.fleet", "pools"),
    "decisions": _Place("headrace.commands.decisions", "decisions"),
    "status": _Place("headrace.commands.fleet", "status"),
    "drain": _Place("headrace.commands.fleet", "drain"),
    "policy": _Place("headrace.commands.fleet", "policy"),
    "override": _Place("headrace.commands.override", "override"),
    "calibration": _Place("headrace.commands.calibration", "calibration"),
    "keys": _Place("headrace.commands.keys", "keys"),
    "config": _Place("headrace.commands.config", "config"),
    "controlplane": _Place("headrace.commands.controlplane", "controlplane"),
    "ext-proc": _Place("headrace.commands.ext_proc", "ext_proc"),
    "envoy": _Place("headrace.commands.envoy", "envoy"),
    "node": _Place("headrace.commands.node", "node"),
}


class _Commands(MutableMapping[str, Any]):
    """Each is imported when it is asked for, so that none pays for what the others need."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _load(name, _COMMANDS[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


def _load(name: str, place: _Place) -> Any:
    found = getattr(import_module(place.module), place.attribute)
    if isinstance(found, typer.Typer):
        command = get_command(found)
        command.name = name
        return command
    alone = typer.Typer(add_completion=False)
    alone.command(name)(found)
    return get_command(alone)


class _Group(TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands()


app = typer.Typer(
    name="headrace",
    cls=_Group,
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
