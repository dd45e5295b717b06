"""The delta ADS protocol of one stream, without I/O: requests go in, responses come out.

Additions go clusters, endpoints, and when those are acknowledged listeners, routes; removals go the other way, and
nothing is removed while anything that the client holds still needs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace_protos.envoy.config.core.v3 import base_pb2
from headrace_protos.envoy.service.discovery.v3 import discovery_pb2
from xds_server.rejections import Rejections
from xds_server.resource import NEEDED_BY, Key, Resource, ResourceType
from xds_server.snapshot import Snapshot
from xds_server.subscription import Held, InFlight, Subscription

# Each phase begins when the one before is acknowledged. Endpoints do not wait for clusters: an Envoy acknowledges a
# cluster only once it is warm, which takes its endpoints and a health check of each. So routes come to warm clusters.
_PHASES = (
    (ResourceType.CLUSTER, ResourceType.ENDPOINTS),
    (ResourceType.LISTENER, ResourceType.ROUTES),
)
_REMOVAL_ORDER = (ResourceType.LISTENER, ResourceType.ROUTES, ResourceType.CLUSTER, ResourceType.ENDPOINTS)


class ProtocolError(ValueError):
    """A request that this server cannot serve; the stream ends with the message."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    type: ResourceType
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """`versions` are in the order of `names`. Several names: one of them is bad, and which will be found out."""

    type: ResourceType
    names: tuple[str, ...]
    versions: tuple[str, ...]
    message: str


class DeltaStream:
    """`receive` each request, then `respond` until it gives None; `respond` again when the snapshot changes."""

    def __init__(self, rejections: Rejections, identifier: str) -> None:
        self.node = base_pb2.Node()
        self.acknowledged_version = ""
        """Of the last snapshot that the client holds whole; empty before the first."""
        self._rejections = rejections
        self._control_plane = base_pb2.ControlPlane(identifier=identifier)
        self._subscriptions: dict[ResourceType, Subscription] = {}
        self._owed: set[str] = set()
        """Endpoints to send whatever the client holds, once it subscribes to any."""
        self._sent = 0

    def receive(self, request: discovery_pb2.DeltaDiscoveryRequest) -> Acknowledged | Rejected | None:
        """Returns what the request says about the response in flight, if it does. ProtocolError ends the stream."""
        if not self._subscriptions:
            if not request.node.id:
                raise ProtocolError("the first request carries no node.id: set one in the bootstrap's node")
            self.node.CopyFrom(request.node)
        try:
            kind = ResourceType(request.type_url)
        except ValueError:
            served = ", ".join(ResourceType)
            raise ProtocolError(f"type_url {request.type_url!r} is not served here; these are: {served}") from None
        subscription = self._subscriptions.get(kind)
        if subscription is None:
            subscription = Subscription.opened(
                kind, request.resource_names_subscribe, request.initial_resource_versions
            )
            self._subscriptions[kind] = subscription
            if kind is ResourceType.ENDPOINTS:
                for name in self._owed:
                    subscription.forget(name)
            return None
        verdict = self._verdict(subscription, request)
        subscription.change(request.resource_names_subscribe, request.resource_names_unsubscribe)
        return verdict

    def respond(self, snapshot: Snapshot) -> discovery_pb2.DeltaDiscoveryResponse | None:
        """The next response, or None when there is nothing to send, or nothing before an acknowledgement."""
        self._learn_needs(snapshot)
        for kinds in _PHASES:
            open_now = [self._subscriptions[kind] for kind in kinds if kind in self._subscriptions]
            for subscription in open_now:
                if subscription.in_flight is None and (response := self._addition(subscription, snapshot)):
                    return response
            if any(subscription.in_flight is not None for subscription in open_now):
                return None
        for kind in _REMOVAL_ORDER:
            if kind in self._subscriptions and (removed := self._removals(self._subscriptions[kind], snapshot)):
                return self._send(self._subscriptions[kind], snapshot, (), removed)
        if self._holds(snapshot):
            self.acknowledged_version = snapshot.version
        return None

    def _addition(self, subscription: Subscription, snapshot: Snapshot) -> discovery_pb2.DeltaDiscoveryResponse | None:
        """What is new or changed, and what is asked for in vain: saying so ends the wait of a cluster or listener."""
        added, absent = self._wanted(subscription, snapshot)
        absent -= subscription.told_absent
        first = subscription.wildcard and not subscription.answered and not subscription.held
        if not (added or absent or first):
            subscription.batch = None
            return None
        if subscription.type is ResourceType.CLUSTER:
            self._owe_endpoints(added[: subscription.batch])
        return self._send(subscription, snapshot, added[: subscription.batch], sorted(absent))

    def _wanted(self, subscription: Subscription, snapshot: Snapshot) -> tuple[list[Resource], set[str]]:
        """What the client lacks, and the names it waits for that have nothing it could be sent."""
        offered = snapshot.resources[subscription.type]
        lacking, absent = [], subscription.names - offered.keys() - subscription.held.keys()
        for name in offered if subscription.wildcard else sorted(subscription.names & offered.keys()):
            held = subscription.held.get(name)
            if held is not None and held.version == offered[name].version:
                continue
            resource = self._rejections.sendable(offered[name])
            if resource is not None and (held is None or held.version != resource.version):
                lacking.append(resource)
            elif resource is None and held is None and name in subscription.names:
                absent.add(name)
        return lacking, absent

    def _verdict(
        self, subscription: Subscription, request: discovery_pb2.DeltaDiscoveryRequest
    ) -> Acknowledged | Rejected | None:
        flight = subscription.in_flight
        if flight is None or request.response_nonce != flight.nonce:
            return None
        if not request.HasField("error_detail"):
            accepted = subscription.acknowledge()
            for resource in accepted:
                self._rejections.accept(resource)
            return Acknowledged(subscription.type, tuple(r.name for r in accepted))
        refused = subscription.refuse()
        if len(refused) == 1:
            self._rejections.reject(refused[0])
        names, versions = tuple(r.name for r in refused), tuple(r.version for r in refused)
        return Rejected(subscription.type, names, versions, request.error_detail.message)

    def _owe_endpoints(self, clusters: Iterable[Resource]) -> None:
        """An Envoy that gets a cluster's update warms it anew, and waits for its endpoints though they are the same.

        https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/upstream/cluster_manager#cluster-warming
        """
        names = {name for cluster in clusters for kind, name in cluster.needs if kind is ResourceType.ENDPOINTS}
        if (endpoints := self._subscriptions.get(ResourceType.ENDPOINTS)) is not None:
            for name in names:
                endpoints.forget(name)
        else:
            self._owed |= names

    def _removals(self, subscription: Subscription, snapshot: Snapshot) -> list[str]:
        gone = [name for name in subscription.held if snapshot.get((subscription.type, name)) is None]
        if not gone:
            return []
        needed: set[Key] = set()
        for kind in NEEDED_BY[subscription.type]:
            if (other := self._subscriptions.get(kind)) is None:
                continue
            for held in other.held.values():
                if held.needs is None:
                    return []
                needed |= held.needs
        return [name for name in gone if (subscription.type, name) not in needed]

    def _learn_needs(self, snapshot: Snapshot) -> None:
        """What the client kept from another server is understood once it equals what we would send."""
        for kind, subscription in self._subscriptions.items():
            for name, held in subscription.held.items():
                if held.needs is None:
                    resource = snapshot.get((kind, name))
                    if resource is not None and resource.version == held.version:
                        subscription.held[name] = Held(held.version, resource.needs)

    def _holds(self, snapshot: Snapshot) -> bool:
        for kind, name in snapshot.in_use:
            subscription = self._subscriptions.get(kind)
            held = subscription.held.get(name) if subscription is not None else None
            if held is None or held.version != snapshot.resources[kind][name].version:
                return False
        return all(
            snapshot.get((kind, name)) is not None
            for kind, subscription in self._subscriptions.items()
            for name in subscription.held
        )

    def _send(
        self, subscription: Subscription, snapshot: Snapshot, added: Iterable[Resource], removed: Iterable[str]
    ) -> discovery_pb2.DeltaDiscoveryResponse:
        self._sent += 1
        response = discovery_pb2.DeltaDiscoveryResponse(
            system_version_info=snapshot.version,
            type_url=subscription.type,
            nonce=str(self._sent),
            control_plane=self._control_plane,
            removed_resources=removed,
            resources=[discovery_pb2.Resource(name=r.name, version=r.version, resource=r.body) for r in added],
        )
        subscription.in_flight = InFlight(response.nonce, {r.name: r for r in added}, tuple(removed))
        subscription.told_absent.update(subscription.names.intersection(removed))
        subscription.answered = True
        return response
