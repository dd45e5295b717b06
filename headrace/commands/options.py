"""Options that several commands share, and what stands behind them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from controlplane.config.load import load
from controlplane.config.settings import Settings
from controlplane.errors import ConfigurationError
from controlplane.grpc_calling import ControlPlaneTarget
from headrace.credentials import control_planes

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", envvar="HEADRACE_CONFIG", metavar="FILE", help="YAML configuration; without it, defaults."
    ),
]
ControlPlaneAddress = Annotated[
    str | None,
    typer.Option(
        "--control-plane",
        "-s",
        envvar="HEADRACE_CONTROL_PLANE",
        metavar="HOST:PORT",
        help="gRPC address of a control plane; without it, the configuration's.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file", envvar="HEADRACE_TOKEN_FILE", metavar="FILE", help="File whose first line is the token to show."
    ),
]
RequestHeaders = Annotated[
    list[str] | None, typer.Option("--header", "-H", metavar="'NAME: VALUE'", help="A request header; repeatable.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def read_text(file: Path) -> str:
    """Without the mark of byte order that some programs begin files with.

    Raises ConfigurationError when the file cannot be read as UTF-8.
    """
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError([f"{file}: cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError([f"{file}: is not UTF-8 text: {error}"]) from error


def check_writable(file: Path) -> None:
    """Raises ConfigurationError, before work whose result would have no place."""
    if not file.parent.is_dir():
        raise ConfigurationError([f"{file}: cannot be written: there is no folder {file.parent}"])
    if file.is_dir():
        raise ConfigurationError([f"{file}: cannot be written: it is a folder; name a file in it"])
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise ConfigurationError([f"{file}: cannot be written: no permission"])


Number = TypeVar("Number", float | None, list[float] | None)


def finite(value: Number) -> Number:
    """A callback of options. `nan` is within all bounds that an option has. Raises BadParameter."""
    given = value if isinstance(value, list) else [value]
    if any(each is not None and not isfinite(each) for each in given):
        raise typer.BadParameter("must be a finite number")
    return value


def read_headers(texts: Sequence[str] | None) -> dict[str, str]:
    """By lower-case names. Raises BadParameter."""
    found = {}
    for text in texts or ():
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise typer.BadParameter(f"{text!r} is no header; write 'NAME: VALUE'", param_hint="--header")
        found[name.strip().lower()] = value.strip()
    return found


def read_settings(file: Path | None) -> Settings:
    """All defaults without a file. Raises ConfigurationError with every fault of it."""
    return Settings() if file is None else load(read_text(file), str(file))


def chosen_targets(
    settings: Settings, addresses: Sequence[str], token_file: Path | None
) -> tuple[ControlPlaneTarget, ...]:
    """The control planes at `addresses`, or those of the settings where none is given."""
    caller = settings.caller
    if addresses:
        caller = replace(caller, control_planes=tuple(addresses))
    if token_file is not None:
        caller = replace(caller, token_file=str(token_file))
    return control_planes(replace(settings, caller=caller))


def chosen_target(config: Path | None, address: str | None, token_file: Path | None) -> ControlPlaneTarget:
    return chosen_targets(read_settings(config), [address] if address else [], token_file)[0]
