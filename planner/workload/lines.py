"""Reads traces line by line, and names every line that cannot be read, all at once."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite, nan
from typing import Any, NamedTuple

from controlplane.errors import ConfigurationError

_MOST_NAMED = 20
# Of a prompt, an answer or a cap, so that the sum of two fits 32 bits.
MOST_TOKENS = 2**30 - 1


class Request(NamedTuple):
    """One request of a trace. `seconds` count from any moment, the same for the whole trace; `output_cap` is 0 where
    the client set no `max_tokens`, `session` is empty where the trace tells none. No `category` is the empty one."""

    seconds: float
    input_tokens: int
    output_tokens: int
    output_cap: int = 0
    category: str = ""
    session: str = ""
    verdict: str = ""
    qos_tier: str = ""


class LineError(ValueError):
    """What is wrong with a line, in words that follow its number."""


class Faults:
    """Of one file. Names the first few in full and counts the others."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._named: list[str] = []
        self._others = 0

    def add(self, line: int, fault: str) -> None:
        if len(self._named) < _MOST_NAMED:
            self._named.append(f"{self._name}:{line}: {fault}")
        else:
            self._others += 1

    def check(self) -> None:
        """Raises ConfigurationError when there was any."""
        if self._others:
            self._named.append(f"{self._name}: and {self._others} more lines that cannot be read")
        if self._named:
            raise ConfigurationError(self._named)


def read_lines(lines: Iterable[tuple[int, str]], name: str, read: Callable[[str], Request | None]) -> Sequence[Request]:
    """What `read` finds on numbered lines; it raises LineError with what is wrong, and finds None where nothing is.

    Raises ConfigurationError with every line that is wrong, and when no request is found.
    """
    found, faults = [], Faults(name)
    for number, line in lines:
        if not line.strip():
            continue
        try:
            request = read(line)
        except ValueError as error:
            faults.add(number, str(error))
            continue
        if request is not None:
            found.append(request)
    faults.check()
    if not found:
        raise ConfigurationError([f"{name}: has no request with input and output tokens"])
    return found


def read_csv(
    text: str, name: str, columns: Sequence[str], read: Callable[[dict[str, str]], Request | None]
) -> Sequence[Request]:
    """The rows of a CSV file with a header that has these columns, in any order and among others."""
    lines = text.split("\n")
    try:
        header = _cells(lines[0])
    except LineError as error:
        raise ConfigurationError([f"{name}:1: {error}"]) from None
    if missing := [column for column in columns if column not in header]:
        raise ConfigurationError(
            [f"{name}:1: has no column {', '.join(missing)}; its header must name {', '.join(columns)}"]
        )

    def read_row(line: str) -> Request | None:
        cells = _cells(line)
        if len(cells) != len(header):
            raise LineError(f"has {len(cells)} columns where the header has {len(header)}")
        return read(dict(zip(header, cells, strict=True)))

    return read_lines(_numbered(lines[1:], 2), name, read_row)


def read_json_lines(text: str, name: str, read: Callable[[Mapping[str, Any]], Request | None]) -> Sequence[Request]:
    """A JSON object a line."""
    return read_lines(_numbered(text.split("\n"), 1), name, lambda line: read(_json_object(line)))


def whole_number(text: str, column: str, most: int = MOST_TOKENS) -> int:
    """Raises LineError for what is no count of tokens."""
    try:
        number = float(text)
    except ValueError:
        raise LineError(f"{column} is {text!r}, which is no number") from None
    if not (0 <= number <= most and number.is_integer()):
        raise LineError(f"{column} is {text!r}, which is no number of tokens")
    return int(number)


def moment(value: Any, column: str, unit: str) -> float:
    """A time as a number of these units. Raises LineError for what is none."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = nan
    if not isfinite(number):
        raise LineError(f"{column} is {value!r}, which is no number of {unit}")
    return number


def moment_of(text: str, column: str) -> float:
    """Seconds since 1970 of an ISO 8601 time, in UTC unless it says. Raises LineError."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise LineError(f"{column} is {text!r}, which is no time") from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _json_object(line: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise LineError(f"is no JSON: {error.msg}") from None
    if not isinstance(row, dict):
        raise LineError("is no JSON object")
    return row


def _numbered(lines: Iterable[str], first: int) -> Iterator[tuple[int, str]]:
    return enumerate(lines, start=first)


def _cells(line: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line]), [])]
    except csv.Error as error:
        raise LineError(f"is no CSV: {error}") from None
