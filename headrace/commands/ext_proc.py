"""`headrace ext-proc`: one filter worker as a process of its own."""

from __future__ import annotations

from typing import Annotated

import typer
import uvloop

from headrace.commands.options import ConfigFile, read_settings
from headrace.run_ext_proc import run_ext_proc


def ext_proc(
    config: ConfigFile = None,
    worker: Annotated[int, typer.Option(min=0, help="Which of `ext_proc.workers` this is, from 0.")] = 0,
) -> None:
    """Run one filter worker: it decides about each request by the routing table of a control plane."""
    uvloop.run(run_ext_proc(read_settings(config), worker))
