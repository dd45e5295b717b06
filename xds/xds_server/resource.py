"""One xDS resource as a value: its type, name, content version, and what else it needs to work.

Does not build resources; see clusters, listener and routes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from google.protobuf import any_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

from headrace_protos.envoy.config.cluster.v3 import cluster_pb2
from headrace_protos.envoy.config.core.v3 import grpc_service_pb2
from headrace_protos.envoy.config.endpoint.v3 import endpoint_pb2
from headrace_protos.envoy.config.route.v3 import route_components_pb2
from headrace_protos.envoy.extensions.clusters.aggregate.v3 import cluster_pb2 as aggregate_pb2
from headrace_protos.envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2

_PREFIX = "type.googleapis.com/"


class ResourceType(StrEnum):
    """The types that are served, by type URL. The order matters: it is the one in which additions are sent.

    https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#eventual-consistency-considerations
    """

    CLUSTER = _PREFIX + "envoy.config.cluster.v3.Cluster"
    ENDPOINTS = _PREFIX + "envoy.config.endpoint.v3.ClusterLoadAssignment"
    LISTENER = _PREFIX + "envoy.config.listener.v3.Listener"
    ROUTES = _PREFIX + "envoy.config.route.v3.RouteConfiguration"


Key: TypeAlias = tuple[ResourceType, str]

# Which types can need a resource of the type.
NEEDED_BY = {
    ResourceType.CLUSTER: (ResourceType.LISTENER, ResourceType.ROUTES),
    ResourceType.ENDPOINTS: (ResourceType.CLUSTER,),
    ResourceType.LISTENER: (),
    ResourceType.ROUTES: (ResourceType.LISTENER,),
}


@dataclass(frozen=True, slots=True)
class Resource:
    """`version` is a hash of `body`, so equal resources have equal versions on every server."""

    type: ResourceType
    name: str
    version: str
    body: any_pb2.Any
    needs: frozenset[Key]

    @property
    def key(self) -> Key:
        return self.type, self.name

    @classmethod
    def of(cls, message: Message) -> Resource:
        """Wrap a Cluster, ClusterLoadAssignment, Listener or RouteConfiguration. ValueError for anything else."""
        kind = ResourceType(_PREFIX + message.DESCRIPTOR.full_name)
        name = message.cluster_name if isinstance(message, endpoint_pb2.ClusterLoadAssignment) else message.name  # type: ignore[attr-defined]
        body = packed(message)
        version = hashlib.sha256(body.value).hexdigest()[:16]
        return cls(kind, name, version, body, frozenset(_needs(message)))


def packed(message: Message) -> any_pb2.Any:
    """The message as an Any; equal messages give equal bytes, which content versions rely on."""
    body = any_pb2.Any()
    body.Pack(message, deterministic=True)
    return body


def _needs(message: Message) -> Iterator[Key]:
    match message:
        case endpoint_pb2.ClusterLoadAssignment():
            return
        case cluster_pb2.Cluster():
            if message.type == cluster_pb2.Cluster.EDS:
                yield ResourceType.ENDPOINTS, message.eds_cluster_config.service_name or message.name
            for part in _parts(message.cluster_type):
                if isinstance(part, aggregate_pb2.ClusterConfig):
                    yield from ((ResourceType.CLUSTER, name) for name in part.clusters)
            return
    for part in _parts(message):
        match part:
            case http_connection_manager_pb2.Rds():
                yield ResourceType.ROUTES, part.route_config_name
            case grpc_service_pb2.GrpcService.EnvoyGrpc():
                yield ResourceType.CLUSTER, part.cluster_name
            case route_components_pb2.RouteAction() if part.cluster:
                yield ResourceType.CLUSTER, part.cluster
            case route_components_pb2.WeightedCluster.ClusterWeight() if part.name:
                yield ResourceType.CLUSTER, part.name


def _parts(message: Message) -> Iterator[Message]:
    """The message and every message inside it, also inside an Any of a known type."""
    if isinstance(message, any_pb2.Any):
        inner = _unpacked(message)
        if inner is not None:
            yield from _parts(inner)
        return
    yield message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for item in value.values():
                    yield from _parts(item)
        elif field.is_repeated:
            for item in value:
                yield from _parts(item)
        else:
            yield from _parts(value)


def _unpacked(body: any_pb2.Any) -> Message | None:
    try:
        descriptor = descriptor_pool.Default().FindMessageTypeByName(body.TypeName())
    except KeyError:
        return None
    message = message_factory.GetMessageClass(descriptor)()
    message.ParseFromString(body.value)
    return message
