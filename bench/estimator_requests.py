"""Requests of eight kinds, made of texts that any machine with Python has, for measuring the token estimate.

English, from Python's language reference and from licences and descriptions of installed packages; code, from Python's
standard library; Chinese, Japanese and Arabic, from paragraphs of our own (estimator_texts/) and from the message
catalogues (gettext) of this machine and of installed packages, such as Django's; JSON, generated; mixed, of all of
these; tools, chats with tool definitions, calls and results. Documents are split in two: what is learned from is never
measured on. A third source are the documents of `estimator_books`.
"""

from __future__ import annotations

import gettext
import json
import random
import sys
import sysconfig
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any
from zlib import crc32

import estimator_books

KINDS = ("english", "code", "chinese", "japanese", "arabic", "mixed", "json", "tools")
LANGUAGES = {
    "chinese": ("zh", "zh_CN", "zh_Hans"),
    "japanese": ("ja",),
    "arabic": ("ar",),
    "korean": ("ko",),
    "russian": ("ru",),
    "hindi": ("hi",),
    "german": ("de",),
    "french": ("fr",),
}
# Besides these, the priors are fitted on the other languages; they are not measured.
PRIOR_KINDS = (*KINDS, *(language for language in LANGUAGES if language not in KINDS))
OWN = Path(__file__).parent / "estimator_texts"
SYSTEM_LOCALES = Path("/usr/share/locale")
SHORT, LONG = 150, 60_000  # bytes of text of a request: log-uniform between them
# Names of words and places are no text.
_NO_PROSE = ("iso", "xkeyboard", "pycountry", "language", "countr")
_TASKS = (
    "Summarise this in three sentences.",
    "Find the mistakes and explain each one.",
    "What is this about?",
    "Rewrite it so that a beginner understands it.",
    "Translate the following into German.",
)

Request = dict[str, Any]
# Half 0 or 1 of the documents, or where the packages of `estimator_books` are unpacked.
Source = int | Path


def requests(kind: str, source: Source, count: int, seed: int) -> Iterator[Request]:
    """Chat bodies of a kind."""
    dice = random.Random(f"{kind} {source if isinstance(source, int) else 'books'} {seed}")
    for _ in range(count):
        size = int(SHORT * (LONG / SHORT) ** dice.random())
        yield _MAKERS[kind](kind, source, size, dice)


def _plain(kind: str, source: Source, size: int, dice: random.Random) -> Request:
    text = _text(kind, source, size, dice)
    messages = [{"role": "user", "content": f"{dice.choice(_TASKS)}\n\n{text}" if dice.random() < 0.3 else text}]
    if dice.random() < 0.5:
        messages.insert(0, {"role": "system", "content": "You are a helpful assistant."})
    return {"model": "m", "messages": _in_turns(messages, size, dice)}


def _mixed(_: str, source: Source, size: int, dice: random.Random) -> Request:
    """Several kinds in one text, in pieces."""
    pieces: list[str] = []
    left = size
    while left > 0:
        kind = dice.choice(("english", "code", "chinese", "japanese", "arabic", "json"))
        piece = _text(kind, source, min(left, max(100, int(size * dice.uniform(0.1, 0.5)))), dice)
        pieces.append(piece)
        left -= len(piece.encode())
    return {"model": "m", "messages": [{"role": "user", "content": "\n\n".join(pieces)}]}


def _tools(_: str, source: Source, size: int, dice: random.Random) -> Request:
    """An agent's chat: half of it definitions, the rest calls, their results and text."""
    definitions: list[dict[str, Any]] = []
    while len(json.dumps(definitions)) < size // 2 or not definitions:
        definitions.append(_definition(source, len(definitions), dice))
    messages: list[dict[str, Any]] = [{"role": "user", "content": _text("english", source, 200, dice)}]
    left = size // 2
    while left > 0:
        call = f"call{dice.randrange(10**5):05d}"
        function = dice.choice(definitions)["function"]["name"]
        arguments = json.dumps(_record(source, dice, 2))
        result = _text(dice.choice(("english", "json", "code")), source, min(left, dice.randrange(100, 4000)), dice)
        messages += [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {"id": call, "type": "function", "function": {"name": function, "arguments": arguments}}
                ],
            },
            {"role": "tool", "tool_call_id": call, "name": function, "content": result},
            {"role": "assistant", "content": _text("english", source, 120, dice)},
            {"role": "user", "content": _text("english", source, 80, dice)},
        ]
        left -= len(result) + len(arguments)
    return {"model": "m", "messages": messages, "tools": definitions}


_MAKERS: dict[str, Callable[[str, Source, int, random.Random], Request]] = {
    **dict.fromkeys(PRIOR_KINDS, _plain),
    "mixed": _mixed,
    "tools": _tools,
}


def _in_turns(messages: list[dict[str, str]], size: int, dice: random.Random) -> list[dict[str, str]]:
    """Now and then a conversation instead of one long turn."""
    text = messages[-1]["content"]
    if size < 500 or dice.random() < 0.7:
        return messages
    turns = dice.randrange(1, 8)
    cuts = sorted(dice.sample(range(len(text)), 2 * turns))
    parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    roles = ("user", "assistant")
    return [*messages[:-1], *({"role": roles[i % 2], "content": part} for i, part in enumerate(parts))]


# --- text ----------------------------------------------------------------------------------------------------------


def _text(kind: str, source: Source, size: int, dice: random.Random) -> str:
    """About `size` bytes of one kind: of one place in one document, or of several documents when they are short."""
    if kind == "json":
        return _json(source, size, dice)
    documents = _documents_of(kind, source)
    pieces: list[str] = []
    left = size
    while left > 0:
        document = dice.choice(documents)
        characters = max(20, round(left * len(document) / len(document.encode())))
        start = dice.randrange(max(1, len(document) - characters))
        start = document.rfind("\n", 0, start) + 1
        piece = document[start : start + characters]
        pieces.append(piece)
        left -= len(piece.encode()) or left
    return "\n".join(pieces)


def _packages() -> list[Path]:
    return [Path(folder) for folder in sys.path if folder.endswith("-packages")]


def _half(name: str) -> int:
    return crc32(name.encode()) & 1


@cache
def _documents_of(kind: str, source: Source) -> list[str]:
    found = _documents(kind) if isinstance(source, int) else estimator_books.documents(source, kind)
    return [
        text
        for name, text in sorted(found)
        if len(text) >= 300 and (not isinstance(source, int) or _half(name) == source or kind not in KINDS)
    ]


@cache
def _documents(kind: str) -> list[tuple[str, str]]:
    """Name and text of each document of a kind."""
    if kind == "code":
        found = _files([Path(sysconfig.get_path("stdlib"))], ("*.py",))
    elif kind == "english":
        found = _files(_packages(), ("*.dist-info/METADATA", "*.dist-info/**/LICENSE*", "*/README*.md", "*/*.rst"))
        found += [(f"topics {name}", text) for name, text in topics.items()]
    else:
        found = list(_own(kind)) + list(_catalogues(kind))
    return found


def _files(roots: list[Path], patterns: tuple[str, ...]) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for root in roots:
        for pattern in patterns:
            for path in sorted(root.glob(pattern))[:400]:
                text = path.read_text("utf-8", "replace")
                if len(text) - len(text.encode("ascii", "ignore")) < len(text) * 0.02:
                    found[f"{path.parent.name}/{path.name}"] = text[:200_000]
    return list(found.items())


def _own(kind: str) -> Iterator[tuple[str, str]]:
    path = OWN / f"{LANGUAGES[kind][0]}.txt"
    paragraphs = path.read_text("utf-8").split("\n\n") if path.exists() else []
    for half in range(2):
        # One name for each half.
        name = next(f"own {number}" for number in range(99) if _half(f"own {number}") == half)
        yield name, "\n\n".join(paragraphs[half::2])


def _catalogues(kind: str) -> Iterator[tuple[str, str]]:
    own_script = 0.0 if kind in {"german", "french"} else 0.4
    for root in (SYSTEM_LOCALES, *_packages()):
        for language in LANGUAGES[kind]:
            for path in sorted(root.glob(f"**/{language}/LC_MESSAGES/*.mo")):
                if any(part in path.name or part in str(path.parent).lower() for part in _NO_PROSE):
                    continue
                try:
                    with path.open("rb") as file:
                        catalogue = gettext.GNUTranslations(file)
                except UnicodeDecodeError:  # one in an encoding of former times
                    continue
                # The messages are in no public order; the catalogue itself is gettext's documented attribute.
                messages = [value for key, value in catalogue._catalog.items() if key and len(value) > 15]  # type: ignore[attr-defined]
                foreign = [m for m in messages if sum(ord(char) >= 0x370 for char in m) >= own_script * len(m)]
                yield f"{path.parent.parent.parent.parent.name} {path.name}", "\n".join(foreign)


# --- JSON ----------------------------------------------------------------------------------------------------------


def _json(source: Source, size: int, dice: random.Random) -> str:
    records: list[Any] = []
    shape = dice.randrange(2**30)
    indent = dice.choice((None, None, 2, 4))
    while True:
        # Records of one list have one shape.
        shaped = random.Random(shape)
        records.append(_record(source, dice, 3, shaped))
        text = json.dumps(records, indent=indent, separators=(",", ":") if indent is None and shape % 2 else None)
        if len(text) >= size:
            return text


def _record(source: Source, dice: random.Random, depth: int, shape: random.Random | None = None) -> dict[str, Any]:
    shape = shape or dice
    names = shape.sample(_words(source), shape.randrange(3, 9))
    return {name: _value(source, dice, depth, shape) for name in names}


def _value(source: Source, dice: random.Random, depth: int, shape: random.Random) -> Any:
    words = _words(source)
    makers: tuple[Callable[[], Any], ...] = (
        lambda: dice.randrange(10 ** dice.randrange(1, 9)),
        lambda: round(dice.uniform(-180, 180), dice.randrange(1, 7)),
        lambda: f"2024-{dice.randrange(1, 13):02d}-{dice.randrange(1, 29):02d}T{dice.randrange(24):02d}:15:00Z",
        lambda: f"{dice.getrandbits(128):032x}",
        lambda: dice.choice((True, False, None)),
        lambda: " ".join(dice.sample(words, dice.randrange(2, 15))),
        lambda: dice.choice(words),
        lambda: _record(source, dice, depth - 1, shape),
        lambda: [dice.randrange(1000) for _ in range(dice.randrange(1, 6))],
    )
    return makers[shape.randrange(len(makers) if depth > 1 else 7)]()


def _definition(source: Source, number: int, dice: random.Random) -> dict[str, Any]:
    names = dice.sample(_words(source), dice.randrange(2, 8))
    properties = {
        name: {
            "type": dice.choice(("string", "integer", "boolean", "number")),
            "description": " ".join(dice.sample(_words(source), dice.randrange(4, 14))),
        }
        for name in names[1:]
    }
    return {
        "type": "function",
        "function": {
            "name": f"{names[0]}_{number}",
            "description": _text("english", source, dice.randrange(60, 300), dice),
            "parameters": {"type": "object", "properties": properties, "required": names[1:2]},
        },
    }


@cache
def _words(source: Source) -> list[str]:
    text = " ".join(_documents_of("english", source))
    words = {word.lower() for word in text.split() if word.isalpha() and word.isascii() and len(word) > 3}
    return sorted(words)[:6000]
