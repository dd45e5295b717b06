"""`headrace controlplane`: one control plane as a process of its own."""

from __future__ import annotations

import uvloop

from headrace.commands.options import ConfigFile, read_settings
from headrace.run_controlplane import run_controlplane


def controlplane(config: ConfigFile = None) -> None:
    """Run one control plane: it registers nodes, forms pools and tells Envoys and filters."""
    uvloop.run(run_controlplane(read_settings(config)))
