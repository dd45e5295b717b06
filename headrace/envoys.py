"""What Envoys say of the configuration that they are sent: logged, counted, and told in status."""

from __future__ import annotations

import logging

from controlplane.metrics import ControlPlaneMetrics
from headrace_protos.headrace.v1 import fleet_pb2
from xds_server.resource import ResourceType
from xds_server.server import EnvoyState
from xds_server.stream import Rejected

_log = logging.getLogger(__name__)


class XdsObserver:
    """Logs and counts what Envoys say."""

    def __init__(self, metrics: ControlPlaneMetrics) -> None:
        self._metrics = metrics

    def connected(self, node_id: str, peer: str) -> None:
        _log.info("envoy connected node=%s peer=%s", node_id, peer)

    def acknowledged(self, node_id: str, kind: ResourceType, names: tuple[str, ...]) -> None:
        _log.debug("xds update taken node=%s type=%s resources=%d", node_id, kind.name, len(names))
        self._metrics.xds_update(kind.name.lower(), "acknowledged")

    def rejected(self, node_id: str, rejection: Rejected) -> None:
        _log.error(
            "xds update REJECTED, the last good one stays node=%s type=%s resources=%s reason=%s",
            node_id,
            rejection.type.name,
            ",".join(rejection.names),
            rejection.message,
        )
        self._metrics.xds_update(rejection.type.name.lower(), "rejected")

    def disconnected(self, node_id: str) -> None:
        _log.info("envoy disconnected node=%s", node_id)


def envoy_status(state: EnvoyState) -> fleet_pb2.EnvoyStatus:
    return fleet_pb2.EnvoyStatus(
        node_id=state.node_id,
        acknowledged_version=state.acknowledged_version,
        rejected_updates=state.rejected,
        last_rejection=state.last_rejection.message if state.last_rejection else "",
    )
