"""What every Envoy should hold: an immutable set of resources, replaced whole, versioned by its content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from google.protobuf.message import Message

from xds_server.resource import Key, Resource, ResourceType


class InconsistentSnapshotError(ValueError):
    """A snapshot whose resources do not fit together; `faults` says each thing that is wrong."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(self.faults))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Resources by type and name. Make one with `Snapshot.of`; publish another to change anything."""

    version: str
    resources: Mapping[ResourceType, Mapping[str, Resource]]
    in_use: frozenset[Key]
    """What an Envoy subscribes to: clusters and listeners, and the endpoints and routes they need."""

    @classmethod
    def of(cls, messages: Iterable[Message]) -> Snapshot:
        """From Cluster, ClusterLoadAssignment, Listener and RouteConfiguration messages, in any order.

        InconsistentSnapshotError when two resources of one type have the same name, or none.
        """
        by_type: dict[ResourceType, dict[str, Resource]] = {kind: {} for kind in ResourceType}
        faults = []
        for message in messages:
            resource = Resource.of(message)
            if not resource.name:
                faults.append(f"{resource.type.name}: a resource has no name")
            elif resource.name in by_type[resource.type]:
                faults.append(f"{resource.type.name} {resource.name}: defined twice")
            by_type[resource.type][resource.name] = resource
        if faults:
            raise InconsistentSnapshotError(faults)
        every = [resource for named in by_type.values() for resource in named.values()]
        roots = (r.key for r in every if r.type in (ResourceType.CLUSTER, ResourceType.LISTENER))
        return cls(
            version=_version(every),
            resources=MappingProxyType({kind: MappingProxyType(named) for kind, named in by_type.items()}),
            in_use=frozenset(roots).union(*(r.needs for r in every)),
        )

    def get(self, key: Key) -> Resource | None:
        kind, name = key
        return self.resources[kind].get(name)

    def inconsistencies(self) -> tuple[str, ...]:
        """Every reference to a resource that is not in the snapshot; empty when it may be published."""
        return tuple(
            f"{resource.type.name} {resource.name} needs {kind.name} {name}, which is not in the snapshot"
            for named in self.resources.values()
            for resource in named.values()
            for kind, name in sorted(resource.needs)
            if self.get((kind, name)) is None
        )


def _version(resources: Iterable[Resource]) -> str:
    lines = sorted(f"{r.type} {r.name} {r.version}" for r in resources)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
