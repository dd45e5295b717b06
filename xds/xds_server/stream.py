"""The delta ADS protocol of one stream, without I/O: requests go in, responses come out.

Additions go clusters, endpoints, listeners, routes, each type only after the earlier ones are acknowledged; removals
go the other way, and nothing is removed while anything that the client holds still needs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from headrace_protos.envoy.config.core.v3 import base_pb2
from headrace_protos.envoy.service.discovery.v3 import discovery_pb2

from xds_server.rejections import Rejections
from xds_server.resource import NEEDED_BY, Key, Resource, ResourceType
from xds_server.snapshot import Snapshot
from xds_server.subscription import Held, InFlight, Subscription

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
            self._subscriptions[kind] = Subscription.opened(
                kind, request.resource_names_subscribe, request.initial_resource_versions
            )
            return None
        verdict = self._verdict(subscription, request)
        subscription.change(request.resource_names_subscribe, request.resource_names_unsubscribe)
        return verdict

    def respond(self, snapshot: Snapshot) -> discovery_pb2.DeltaDiscoveryResponse | None:
        """The next response, or None when there is nothing to send, or nothing before an acknowledgement."""
        self._learn_needs(snapshot)
        for kind in ResourceType:
            subscription = self._subscriptions.get(kind)
            if subscription is None:
                continue
            if subscription.in_flight is not None:
                return None
            added = tuple(islice(self._additions(subscription, snapshot), subscription.batch))
            absent = sorted(n for n in subscription.names - subscription.told_absent if self._absent(kind, n, snapshot))
            if added or absent or (subscription.wildcard and not subscription.answered and not subscription.held):
                subscription.told_absent.update(absent)
                return self._send(subscription, snapshot, added, absent)
            subscription.batch = None
        for kind in _REMOVAL_ORDER:
            subscription = self._subscriptions.get(kind)
            if subscription is not None and (removed := self._removals(subscription, snapshot)):
                return self._send(subscription, snapshot, (), removed)
        if self._holds(snapshot):
            self.acknowledged_version = snapshot.version
        return None

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
                self._owe_endpoints(resource)
            return Acknowledged(subscription.type, tuple(r.name for r in accepted))
        refused = subscription.refuse()
        if len(refused) == 1:
            self._rejections.reject(refused[0])
        names, versions = tuple(r.name for r in refused), tuple(r.version for r in refused)
        return Rejected(subscription.type, names, versions, request.error_detail.message)

    def _owe_endpoints(self, resource: Resource) -> None:
        """An Envoy that takes a cluster's update warms it anew, and waits for its endpoints though they are the same.

        https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#xds-ack-nack-and-resource-type-instance-version
        """
        endpoints = self._subscriptions.get(ResourceType.ENDPOINTS)
        if endpoints is not None:
            for kind, name in resource.needs:
                if kind is ResourceType.ENDPOINTS:
                    endpoints.forget(name)

    def _additions(self, subscription: Subscription, snapshot: Snapshot) -> Iterable[Resource]:
        offered = snapshot.resources[subscription.type]
        for name in offered if subscription.wildcard else sorted(subscription.names & offered.keys()):
            held = subscription.held.get(name)
            if held is not None and held.version == offered[name].version:
                continue
            resource = self._rejections.sendable(offered[name])
            if resource is not None and (held is None or held.version != resource.version):
                yield resource

    def _absent(self, kind: ResourceType, name: str, snapshot: Snapshot) -> bool:
        """Whether a name is asked for that does not exist. Saying so ends the wait of a cluster or listener for it."""
        return snapshot.get((kind, name)) is None and name not in self._subscriptions[kind].held

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
        subscription.answered = True
        return response
