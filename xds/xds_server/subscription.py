"""What one stream asks for of one resource type, what it holds, and what is under way to it. No I/O.

The rules are those of the incremental xDS protocol:
https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#incremental-xds
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from xds_server.resource import Key, Resource, ResourceType

WILDCARD = "*"

# Only these may be subscribed to as a whole by a first request without names.
# https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#how-the-client-specifies-what-resources-to-return
_WILDCARD_TYPES = (ResourceType.CLUSTER, ResourceType.LISTENER)


@dataclass(frozen=True, slots=True)
class Held:
    """A version that the client holds. `needs` is None when another server sent it, so that we cannot know."""

    version: str
    needs: frozenset[Key] | None


@dataclass(slots=True)
class InFlight:
    """A response that is neither acknowledged nor refused yet. A name leaves it when the client subscribes anew."""

    nonce: str
    resources: dict[str, Resource]
    removed: tuple[str, ...]


@dataclass(slots=True)
class Subscription:
    type: ResourceType
    wildcard: bool = False
    names: set[str] = field(default_factory=set)
    held: dict[str, Held] = field(default_factory=dict)
    in_flight: InFlight | None = None
    told_absent: set[str] = field(default_factory=set)
    answered: bool = False
    batch: int | None = None
    """How many resources the next response may carry: halved by a refusal to find the culprit, None when unbounded."""

    @classmethod
    def opened(cls, kind: ResourceType, subscribe: Iterable[str], initial_versions: Mapping[str, str]) -> Subscription:
        """By the first request of its type on a stream; `initial_versions` are what the client kept from another."""
        names = set(subscribe)
        wildcard = WILDCARD in names or (not names and kind in _WILDCARD_TYPES)
        subscription = cls(kind, wildcard, names - {WILDCARD})
        subscription.held = {
            name: Held(version, None) for name, version in initial_versions.items() if subscription.wants(name)
        }
        return subscription

    def change(self, subscribe: Iterable[str], unsubscribe: Iterable[str]) -> None:
        """A later request. What is subscribed to again is sent again: the client may have dropped it meanwhile."""
        for name in unsubscribe:
            if name == WILDCARD:
                self.wildcard = False
            self.names.discard(name)
        for name in subscribe:
            if name == WILDCARD:
                self.wildcard, self.answered = True, False
            else:
                self.names.add(name)
                self.forget(name)
        for name in [name for name in self.held if not self.wants(name)]:
            self.forget(name)
        self.told_absent &= self.names

    def wants(self, name: str) -> bool:
        return self.wildcard or name in self.names

    def forget(self, name: str) -> None:
        """Have the resource sent again, whatever the client holds or is about to."""
        self.held.pop(name, None)
        self.told_absent.discard(name)
        if self.in_flight is not None:
            self.in_flight.resources.pop(name, None)

    def acknowledge(self) -> tuple[Resource, ...]:
        """The response in flight was accepted. Returns what is newly held."""
        assert self.in_flight is not None
        sent, self.in_flight = self.in_flight, None
        for name, resource in sent.resources.items():
            if self.wants(name):
                self.held[name] = Held(resource.version, resource.needs)
        self._drop(sent.removed)
        if self.batch is not None:
            self.batch *= 2
        return tuple(sent.resources.values())

    def refuse(self) -> tuple[Resource, ...]:
        """The response in flight was refused. Returns its resources: one is the culprit, of several one is."""
        assert self.in_flight is not None
        sent, self.in_flight = self.in_flight, None
        self._drop(sent.removed)
        if len(sent.resources) > 1:
            self.batch = len(sent.resources) // 2
        return tuple(sent.resources.values())

    def _drop(self, removed: Iterable[str]) -> None:
        for name in removed:
            self.held.pop(name, None)
