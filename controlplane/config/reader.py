"""A parsed document to a value of a dataclass tree: every fault at its path. Knows no setting and no rule of its own.

Pydantic checks the tree strictly, as JSON: nothing is guessed from a value of another type, and unknown keys are
refused. The dataclasses need no pydantic; annotated-types bounds are enough.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from controlplane.config.document import Document, Fault, Path, plain
from controlplane.config.wording import say, say_unknown

T = TypeVar("T")


def check(kind: type[T], data: str | bytes) -> T:
    """The value of JSON data. Raises pydantic.ValidationError."""
    value: T = _adapter(_any(kind)).validate_json(data)[0]
    return value


def to_plain(value: Any) -> Any:
    """The tree of dicts and lists that JSON and YAML write."""
    return _adapter(_any(type(value))).dump_python((value,), mode="json")[0]


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """The tuple makes pydantic take a configuration for dataclasses, which it else wants them to bring."""
    return TypeAdapter(tuple[kind], config=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False))


def _any(kind: type[Any]) -> Any:
    return kind  # mypy takes a dataclass for unhashable, which caches need


def read(kind: type[T], document: Document, at: Path = ()) -> tuple[T | None, list[Fault]]:
    """The value that stands at a path of the document, and every fault of it.

    Faulty settings are left out and so take their defaults, which lets the caller check the rest against each other.
    The value is None only when that leaves nothing to build it from.
    """
    node = document.root
    for step in at:
        node = node.children[step]  # type: ignore[union-attr, index]
    value = _completed(kind, plain(node), None)
    faults: dict[Path, Fault] = {}
    left_out: set[Path] = set()
    while True:
        try:
            return check(kind, json.dumps([value])), list(faults.values())
        except ValidationError as error:
            described = [_describe(kind, details) for details in error.errors(include_url=False)]
            for path, message in described:
                if path not in left_out:  # what is left out for its faults is not missing
                    faults.setdefault(path, Fault(document.line((*at, *path)), (*at, *path), message))
            gone = {cut for path, _ in described if (cut := _leave_out(value, path)) is not None}
            if not gone:
                return None, list(faults.values())
            left_out |= gone


def leaves(kind: type[Any], before: Path = ()) -> list[Path]:
    """The paths of all settings of a dataclass tree, sections left out."""
    paths: list[Path] = []
    for name, inner in _fields(_any(kind)).items():
        if _is_section(inner):
            paths += leaves(inner, (*before, name))
        else:
            paths.append((*before, name))
    return paths


def _describe(kind: type[Any], details: ErrorDetails) -> tuple[Path, str]:
    path: Path = details["loc"][1:]
    if details["type"] == "unexpected_keyword_argument":
        return path, say_unknown(str(path[-1]), list(_fields(_type_at(kind, path[:-1]))), leaves(kind))
    if details["type"] == "string_type" and (fault := _fault_as_text(kind, path, details["input"])) is not None:
        return path, fault
    while path and _type_at(kind, path) is None:  # the steps after it name a branch of a union, or a mapping's key
        path = path[:-1]
    return path, say(details, path)


def _fault_as_text(kind: Any, path: Path, stated: object) -> str | None:
    """What would be wrong with a number where text is wanted if it were put in quotes, as 50051 for an address."""
    section = _type_at(kind, path[:-1])
    if not isinstance(stated, int | float) or not _is_section(section):
        return None
    declared: Any = typing.get_type_hints(section, include_extras=True).get(str(path[-1]))
    try:
        check(declared, json.dumps([str(stated)]))
    except ValidationError as error:
        return say(error.errors(include_url=False)[0], path)
    return None


def _leave_out(value: Any, path: Path) -> Path | None:
    """Take a faulty setting out of the value and return its path; None when it is not there to be taken.

    A list is taken out whole, since its other items would not stand at their places any more.
    """
    inner = value
    for depth, (step, following) in enumerate(itertools.pairwise((*path, 0)), start=1):
        if not isinstance(inner, dict) or step not in inner:
            return None
        if isinstance(following, int):
            del inner[step]
            return path[:depth]
        inner = inner[step]
    return None


def _completed(kind: Any, value: Any, default: Any) -> Any:
    """A section whose settings are all commented out is null in YAML, and means the defaults. One that states some of
    its settings has the others as they are in `default`, which may be another value than its kind has by itself."""
    if not (_is_section(kind) and isinstance(value, dict)):
        return value
    inner, defaults = _fields(kind), _defaults(kind)
    stated = {
        key: _completed(inner.get(key), child, getattr(default, key, None) or defaults.get(key))
        for key, child in value.items()
        if child is not None or not _is_section(inner.get(key))
    }
    return stated if default is None else to_plain(default) | stated


def _defaults(kind: Any) -> dict[str, Any]:
    """Those that are sections."""
    found = {}
    for each in dataclasses.fields(kind):
        value = each.default
        if each.default_factory is not dataclasses.MISSING:
            value = each.default_factory()
        if _is_section(value) and value is not dataclasses.MISSING:
            found[each.name] = value
    return found


def _type_at(kind: Any, path: Path) -> Any:
    """The type of what stands at a path; None when the tree has no such place."""
    for step in path:
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if _is_section(kind):
            kind = _fields(kind).get(str(step))
        elif isinstance(step, int) and isinstance(origin, type) and issubclass(origin, Sequence):
            kind = arguments[0]
        elif isinstance(step, str) and isinstance(origin, type) and issubclass(origin, Mapping):
            kind = arguments[1]
        else:
            return None
        if kind is None:
            return None
    return kind


def _is_section(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind)


@functools.cache
def _fields(kind: Any) -> dict[str, Any]:
    """Names and types of a dataclass's fields, without bounds and without `| None`."""
    hints = typing.get_type_hints(kind)
    return {each.name: _without_none(hints[each.name]) for each in dataclasses.fields(kind)}


def _without_none(kind: Any) -> Any:
    if typing.get_origin(kind) in {typing.Union, types.UnionType}:
        kinds = [each for each in typing.get_args(kind) if each is not types.NoneType]
        return kinds[0] if len(kinds) == 1 else kind
    return kind
