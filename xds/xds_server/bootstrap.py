"""The file an Envoy starts from: who it is, where its configuration comes from, where its admin listens."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from string import Template

from xds_server.hosts import is_ip

_NAME = "bootstrap.yaml"


def render_bootstrap(
    *,
    node_id: str,
    cluster: str,
    xds_host: str,
    xds_port: int,
    admin_host: str = "127.0.0.1",
    admin_port: int = 19000,
    max_connections: int = 50_000,
    max_heap_bytes: int = 4 << 30,
) -> str:
    """The bootstrap as YAML. `xds_host` may be a name or an address; `max_connections` bounds downstream ones. Near
    `max_heap_bytes` new requests get 503."""
    values = {
        "node_id": node_id,
        "node_cluster": cluster,
        "xds_host": xds_host,
        "xds_port": xds_port,
        "xds_discovery": "STATIC" if is_ip(xds_host) else "STRICT_DNS",
        "admin_host": admin_host,
        "admin_port": admin_port,
        "max_connections": max_connections,
        "max_heap_bytes": max_heap_bytes,
    }
    # JSON's strings are YAML's, so no value can break out of its place.
    return Template(_template()).substitute({name: json.dumps(value) for name, value in values.items()})


def _template() -> str:
    """From the wheel, where it lies in this package, or from a checkout, where it lies in `envoy/`."""
    packaged = resources.files(__package__) / _NAME
    if packaged.is_file():
        return packaged.read_text()
    return (Path(__file__).resolve().parents[2] / "envoy" / _NAME).read_text()
