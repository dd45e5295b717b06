"""A fleet written down as YAML, for deciding offline: a list of nodes as they register, some with a load."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from controlplane.config.document import Fault, Items, Path
from controlplane.config.reader import read
from controlplane.config.report import broken, conclude, open_document
from controlplane.config.rules import Broken
from controlplane.errors import RegistrationError
from controlplane.model import NodeLoad, NodeSession, NodeSpec
from controlplane.registry.validate import check_load, checked


@dataclass(frozen=True, slots=True)
class FleetFile:
    """Node sessions in the order of the file, and by node id the loads that it states."""

    sessions: tuple[NodeSession, ...]
    loads: Mapping[str, NodeLoad]


@dataclass(frozen=True, slots=True)
class LoadEntry:
    """A load as the file states it; its time is that of reading."""

    running: int = 0
    waiting: int = 0
    kv_cache_use: float | None = None
    tokens_per_second: float | None = None
    ttft_seconds: float | None = None
    healthy: bool = True

    def at(self, now: float) -> NodeLoad:
        return NodeLoad(**{each.name: getattr(self, each.name) for each in fields(self)}, reported_at=now)


@dataclass(frozen=True, slots=True)
class NodeEntry(NodeSpec):
    """A node as the file states it."""

    draining: bool = False
    load: LoadEntry | None = None

    @property
    def spec(self) -> NodeSpec:
        return NodeSpec(**{each.name: getattr(self, each.name) for each in fields(NodeSpec)})


def load_fleet(text: str, name: str, now: float) -> FleetFile:
    """The fleet of the YAML of a file called `name`, registered and reported at `now`, in Unix seconds.

    Nodes are checked as at registration, save that any quantization format is taken: the policy has a tier for each.
    Raises ConfigurationError with every fault, in the order of lines.
    """
    document = open_document(text, name)
    if not isinstance(document.root, Items) or not document.root.children:
        fault = Fault(document.root.line, (), "must be a list of nodes; begin each with `- node_id:`")
        return conclude(None, name, document, [fault])
    entries: dict[int, NodeEntry] = {}
    faults: list[Fault] = []
    for index in range(len(document.root.children)):
        entry, found = read(NodeEntry, document, (index,))
        if entry is not None:
            found += broken((_registers, _reports_well), entry, document, found, (index,))
            entries[index] = entry
        faults += found
    faults += broken((_name_each_once,), entries, document, faults)
    conclude(entries, name, document, faults)
    sessions = tuple(
        NodeSession(spec.node_id, spec, registered_at=now, draining=entry.draining)
        for entry in entries.values()
        for spec in (checked(entry.spec, None),)
    )
    loads = {entry.node_id: entry.load.at(now) for entry in entries.values() if entry.load is not None}
    return FleetFile(sessions, loads)


def _registers(entry: NodeEntry) -> Iterator[Broken]:
    try:
        checked(entry.spec, None)
    except RegistrationError as error:
        yield from map(_placed, error.faults)


def _reports_well(entry: NodeEntry) -> Iterator[Broken]:
    if entry.load is not None:
        try:
            check_load(entry.load.at(0.0))
        except RegistrationError as error:
            yield from map(_placed, error.faults)


def _name_each_once(entries: Mapping[int, NodeEntry]) -> Iterator[Broken]:
    for field in ("node_id", "address"):
        first: dict[str, int] = {}
        for index, entry in entries.items():
            value = getattr(entry, field)
            if value in first:
                yield Broken(((index, field),), f"{value!r} is that of [{first[value]}] too; give each node its own")
            first.setdefault(value, index)


def _placed(fault: str) -> Broken:
    """A fault of a registration, `models[0].id: what is wrong`, with its path."""
    where, _, message = fault.partition(": ")
    steps = re.findall(r"([a-z_]+)|\[([0-9]+)\]", where)
    path: Path = tuple(name or int(number) for name, number in steps)
    return Broken((path,), message)
