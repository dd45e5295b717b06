"""YAML text to plain values that remember their lines. Knows no setting.

Plain values are read by the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema), in which `no` and
`12:30` are text. Tags and merge keys are refused. Size, depth and what aliases unfold to are bounded, so that no text
costs more than its length suggests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

MAX_CHARACTERS = 1 << 20
MAX_DEPTH = 32
MAX_VALUES = 20_000

Path = tuple[str | int, ...]

# The core schema without .inf and .nan, which no setting takes. Digits are bounded as int() itself is.
NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")
BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
INT = re.compile(r"(?:[-+]?[0-9]{1,40}|0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40})\Z")
FLOAT = re.compile(r"[-+]?(?:\.[0-9]{1,40}|[0-9]{1,40}(?:\.[0-9]{0,40})?)(?:[eE][-+]?[0-9]{1,4})?\Z")


@dataclass(frozen=True, slots=True)
class Scalar:
    value: str | int | float | bool | None
    line: int
    size: int = 1


@dataclass(slots=True)
class Items:
    """A list."""

    line: int
    children: list[Node] = field(default_factory=list)
    size: int = 1


@dataclass(slots=True)
class Section:
    """A mapping; `key_lines` holds the line of each key, which is where people look for its fault."""

    line: int
    children: dict[str, Node] = field(default_factory=dict)
    key_lines: dict[str, int] = field(default_factory=dict)
    size: int = 1


Node = Scalar | Items | Section


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong and what to do. `path` is empty for what concerns no setting."""

    line: int
    path: Path
    message: str


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed text; an empty one is an empty section."""

    root: Node
    faults: tuple[Fault, ...]

    @property
    def states_anything(self) -> bool:
        return not isinstance(self.root, Section) or bool(self.root.children)

    def has(self, path: Path) -> bool:
        """Whether the text itself states a value at this path."""
        return self._find(path)[0] == len(path)

    def line(self, path: Path) -> int:
        """The line that states the value at this path, else the nearest section around it. Lines begin at 1."""
        return self._find(path)[1]

    def _find(self, path: Path) -> tuple[int, int]:
        node: Node = self.root
        line = node.line
        for depth, step in enumerate(path):
            if isinstance(node, Section) and isinstance(step, str) and step in node.children:
                line = node.key_lines[step]
                node = node.children[step]
            elif isinstance(node, Items) and isinstance(step, int) and step < len(node.children):
                node = node.children[step]
                line = node.line
            else:
                return depth, line
        return len(path), line


class UnreadableError(Exception):
    """The text cannot be read to its end. Carries the faults found up to there."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        super().__init__()
        self.faults = faults


def parse(text: str) -> Document:
    """Parse one YAML document. Raises UnreadableError."""
    return _Parser().parse(text)


def plain(node: Node) -> Any:
    """The value as str, int, float, bool, None, list and dict."""
    match node:
        case Scalar():
            return node.value
        case Items():
            return [plain(child) for child in node.children]
        case Section():
            return {key: plain(child) for key, child in node.children.items()}


def spell(path: Path) -> str:
    """The path as people write it, such as `caller.control_planes[0]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if re.fullmatch(r"[\w@/:+-]{1,80}", step) else repr(step[:80]))
    return text


class _Parser:
    """Recursive descent over PyYAML's events; `at` is the path, and its length the depth."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._anchors: dict[str, Node | None] = {}  # None while the anchored value is still open
        self._values = 0
        self._events: Iterator[yaml.Event] = iter(())

    def parse(self, text: str) -> Document:
        if len(text) > MAX_CHARACTERS:
            raise self._give_up(1, f"is longer than {MAX_CHARACTERS} characters; a configuration is far shorter")
        try:
            loader = yaml.SafeLoader(text)
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            what = f"holds the character U+{int(error.character):04X}"
            raise self._give_up(
                line, f"{what}, which YAML does not allow; remove it or write it as an escape"
            ) from None
        try:
            self._events = _events(loader)
            return self._document()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise self._give_up(mark.line + 1 if mark else 1, _yaml_fault(error)) from None
        except (ValueError, OverflowError):
            # PyYAML converts escapes such as "\UFFFFFFFF" and version numbers without checking their range.
            line = loader.get_mark().line + 1
            raise self._give_up(line, "is not valid YAML: an escape or number is out of range; correct it") from None
        finally:
            loader.dispose()

    def _document(self) -> Document:
        root: Node = Section(line=1)
        seen = False
        for event in self._events:
            match event:
                case yaml.DocumentStartEvent() if seen:
                    raise self._give_up(_line(event), "begins a second document; keep to one document in a file")
                case yaml.DocumentStartEvent():
                    seen = True
                    content = self._node(next(self._events), ())
                    if not (isinstance(content, Scalar) and content.value is None):
                        root = content
        return Document(root, tuple(self._faults))

    def _node(self, event: Any, at: Path) -> Node:
        line = _line(event)
        if len(at) > MAX_DEPTH:
            raise self._give_up(line, f"is nested more than {MAX_DEPTH} deep; no setting is")
        if isinstance(event, yaml.AliasEvent):
            node = self._alias(str(event.anchor), line, at)
            self._count(node.size, line)
            return node
        self._count(1, line)
        anchor: str | None = event.anchor
        if anchor is not None:
            self._anchors[anchor] = None
        if event.tag is not None:
            self._fault(line, at, f"has the tag {event.tag[:40]}; tags are not supported, write the value without it")
        match event:
            case yaml.MappingStartEvent():
                node = self._section(line, at)
            case yaml.SequenceStartEvent():
                node = self._items(line, at)
            case _:
                node = self._scalar(event, at)
        if anchor is not None:
            self._anchors[anchor] = node
        return node

    def _alias(self, anchor: str, line: int, at: Path) -> Node:
        known = self._anchors.get(anchor)
        if known is not None:
            return known
        inside = anchor in self._anchors
        reason = "refers to the value that it is a part of" if inside else "refers to no anchor before it"
        self._fault(line, at, f"the alias *{anchor[:40]} {reason}; write the value out")
        return Scalar(None, line)

    def _items(self, line: int, at: Path) -> Items:
        node = Items(line)
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            child = self._node(event, (*at, len(node.children)))
            node.children.append(child)
            node.size += child.size
        return node

    def _section(self, line: int, at: Path) -> Section:
        node = Section(line)
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key_line = _line(event)
            key = self._key(event, at)
            child = self._node(next(self._events), (*at, "?" if key is None else key))
            node.size += 1 + child.size
            if key is None:
                continue
            if key in node.children:
                first = node.key_lines[key]
                self._fault(key_line, (*at, key), f"is set twice, first in line {first}; remove one of them")
                continue
            node.children[key] = child
            node.key_lines[key] = key_line
        return node

    def _key(self, event: yaml.Event, at: Path) -> str | None:
        line = _line(event)
        if isinstance(event, yaml.ScalarEvent) and event.tag is None:
            self._count(1, line)
            if event.value == "<<" and event.style is None:
                self._fault(line, at, "merge keys (<<) are not supported; write the settings out")
                return None
            return self._text(event.value, line, at)
        self._node(event, (*at, "?"))
        self._fault(line, at, "a key must be plain text; lists, sections, tags and aliases cannot be keys")
        return None

    def _scalar(self, event: yaml.ScalarEvent, at: Path) -> Scalar:
        line = _line(event)
        text = self._text(event.value, line, at)
        if event.style is not None:  # quoted or a block
            return Scalar(text, line)
        return Scalar(_resolve(text), line)

    def _text(self, text: str, line: int, at: Path) -> str:
        if any("\ud800" <= character <= "\udfff" for character in text):
            self._fault(line, at, "holds half of a surrogate pair, which is no text; write the whole character")
            return ""
        return text

    def _count(self, size: int, line: int) -> None:
        self._values += size
        if self._values > MAX_VALUES:
            raise self._give_up(line, f"holds more than {MAX_VALUES} values with all aliases unfolded; use fewer")

    def _fault(self, line: int, at: Path, message: str) -> None:
        self._faults.append(Fault(line, at, message))

    def _give_up(self, line: int, message: str) -> UnreadableError:
        return UnreadableError((*self._faults, Fault(line, (), message)))


def _resolve(text: str) -> str | int | float | bool | None:
    if NULL.match(text):
        return None
    if BOOL.match(text):
        return text.lower() == "true"
    if INT.match(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if FLOAT.match(text):
        return float(text)
    return text


def _events(loader: yaml.SafeLoader) -> Iterator[yaml.Event]:
    while loader.check_event():
        yield loader.get_event()  # type: ignore[no-untyped-call]


def _line(event: yaml.Event) -> int:
    mark = event.start_mark
    assert mark is not None  # every event of a loader has one
    return mark.line + 1


def _yaml_fault(error: yaml.MarkedYAMLError) -> str:
    problem = str(error.problem or error.context)
    if r"'\t'" in problem:
        return "is not valid YAML: a tab; indent with spaces"
    if "mapping values are not allowed" in problem:
        return "is not valid YAML: a second colon, or wrong indentation; put text that holds ': ' in quotes"
    where = ""
    if error.context and error.context_mark is not None:
        where = f" {error.context} that begins in line {error.context_mark.line + 1}"
    return f"is not valid YAML: {problem}{where}; check quotes, brackets and indentation"
