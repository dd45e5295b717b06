"""From a text to what is told of it: opening it, holding rules against its value, and telling all faults at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from controlplane.config.document import Document, Fault, Path, UnreadableError, parse, spell
from controlplane.config.rules import Broken, Rule
from controlplane.errors import ConfigurationError

T = TypeVar("T")

MAX_FAULTS = 100


def open_document(text: str, name: str) -> Document:
    """The parsed text of a file called `name`. Raises ConfigurationError when it cannot be read to its end."""
    try:
        return parse(text)
    except UnreadableError as error:
        raise ConfigurationError(_tell(name, error.faults)) from None


def conclude(value: T | None, name: str, document: Document, faults: Iterable[Fault]) -> T:
    """The value if there is no fault. Raises ConfigurationError with all faults, in the order of lines, otherwise."""
    every = sorted((*document.faults, *faults), key=lambda fault: fault.line)
    if every or value is None:
        more = [f"{name}: and {len(every) - MAX_FAULTS} more faults"] if len(every) > MAX_FAULTS else []
        raise ConfigurationError([*_tell(name, every[:MAX_FAULTS]), *more])
    return value


def _tell(name: str, faults: Iterable[Fault]) -> list[str]:
    return [
        f"{name}:{fault.line}: {spell(fault.path)}: {fault.message}"
        if fault.path
        else f"{name}:{fault.line}: {fault.message}"
        for fault in faults
    ]


def broken(
    rules: Iterable[Rule[T]], value: T, document: Document, faults: Iterable[Fault], at: Path = ()
) -> list[Fault]:
    """The rules that the value breaks; those about a setting that is faulty itself are left out."""
    faulty = [fault.path for fault in faults]
    return [
        _place(found, document, at)
        for rule in rules
        for found in rule(value)
        if not any(_touch((*at, *path), other) for path in found.paths for other in faulty)
    ]


def _place(found: Broken, document: Document, at: Path) -> Fault:
    """A fault stands where the first of its settings is that the file states."""
    paths = [(*at, *path) for path in found.paths]
    stated = next((path for path in paths if document.has(path)), paths[0])
    return Fault(document.line(stated), paths[0], found.message)


def _touch(one: Path, other: Path) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]
