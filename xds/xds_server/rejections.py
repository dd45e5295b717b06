"""Which resource versions an Envoy has refused, shared by all streams of a server.

A version that one Envoy refused is not sent to any other: all of them run the same binary and would refuse it too,
or differ, and then a fleet that stays alike is worth more than the change.
"""

from __future__ import annotations

from xds_server.resource import Key, Resource

# A server that lives for months and is fed bad resources all along stays bounded; the oldest are forgotten.
_REMEMBERED = 10_000


class Rejections:
    def __init__(self) -> None:
        self._rejected: dict[tuple[Key, str], None] = {}
        self._good: dict[Key, Resource] = {}

    def reject(self, resource: Resource) -> None:
        self._rejected[resource.key, resource.version] = None
        if len(self._rejected) > _REMEMBERED:
            del self._rejected[next(iter(self._rejected))]
        good = self._good.get(resource.key)
        if good is not None and good.version == resource.version:
            del self._good[resource.key]

    def accept(self, resource: Resource) -> None:
        if (resource.key, resource.version) not in self._rejected:
            self._good[resource.key] = resource

    def forget_good(self, unless: frozenset[Key]) -> None:
        """Drop the last good versions of resources that are gone."""
        self._good = {key: resource for key, resource in self._good.items() if key in unless}

    def sendable(self, resource: Resource) -> Resource | None:
        """The resource itself, or instead of a refused one the last that an Envoy accepted, if there is one."""
        if (resource.key, resource.version) not in self._rejected:
            return resource
        return self._good.get(resource.key)
