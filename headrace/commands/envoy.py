"""`headrace envoy`: an Envoy that the control plane configures."""

from __future__ import annotations

import os

from headrace.commands.options import ConfigFile, read_settings
from headrace.run_envoy import envoy_argv


def envoy(config: ConfigFile = None) -> None:
    """Run Envoy, configured by the control plane over xDS."""
    argv = envoy_argv(read_settings(config))
    os.execv(argv[0], argv)  # noqa: S606 - the process becomes Envoy, so that signals and exit status are its own
