"""Which decisions are asked for, in the words that people write: on the command line, and in the query of a URL."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from controlplane.config.quantities import parse_duration
from controlplane.digests import session_digest
from controlplane.ledger.mistakes import Misroute
from controlplane.messages import timestamp
from controlplane.model import FormatTier, Reason, Verdict
from controlplane.policy.identity import tenant_of_name
from headrace_protos.headrace.v1 import fleet_pb2

_DIGEST = re.compile(r"id:[0-9a-f]{32}")
_MOST_NAMED = 10
_TENANT = re.compile(r"(?:name|key):.*")

_Reader = Callable[[str, str, float], dict[str, Any]]


class UnreadableError(ValueError):
    """`name` is the word's that cannot be read; the message says why."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def decisions_asked(words: Mapping[str, str], now: float) -> fleet_pb2.ListDecisionsRequest:
    """`words` by the names of WORDS; empty ones ask for nothing. `now` in Unix seconds. Raises UnreadableError."""
    asked: dict[str, Any] = {}
    for name, text in words.items():
        read = _READERS.get(name)
        if read is None:
            raise UnreadableError(name, f"is not known; known are {', '.join(WORDS)}")
        if text:
            try:
                asked |= read(name, text, now)
            except ValueError as error:
                raise UnreadableError(name, str(error)) from None
    if "since" in asked and "until" in asked and asked["since"].ToMicroseconds() >= asked["until"].ToMicroseconds():
        raise UnreadableError("until", f"{words['until']!r} is no later than since, so that nothing is in between")
    return fleet_pb2.ListDecisionsRequest(**asked)


def _text(name: str, text: str, _: float) -> dict[str, Any]:
    return {name: text}


def _limit(_: str, text: str, __: float) -> dict[str, Any]:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ValueError(f"{text!r} is no whole number")
    return {"limit": int(text)}


def _tenant(_: str, text: str, __: float) -> dict[str, Any]:
    return {"tenant": text if _TENANT.fullmatch(text) else tenant_of_name(text)}


def _session(_: str, text: str, __: float) -> dict[str, Any]:
    return {"session": text if _DIGEST.fullmatch(text) else session_digest(text)}


def _status(_: str, text: str, __: float) -> dict[str, Any]:
    if re.fullmatch(r"[1-5]xx", text):
        return {"status_from": int(text[0]) * 100, "status_to": int(text[0]) * 100 + 99}
    if re.fullmatch(r"[1-5][0-9][0-9]", text):
        return {"status_from": int(text), "status_to": int(text)}
    raise ValueError(f"{text!r} is no HTTP status; write one as 429, or a class as 5xx")


def _mistake(_: str, text: str, __: float) -> dict[str, Any]:
    return {"misroute": _one_of(Misroute, text)}


def _closed(kind: type[StrEnum]) -> _Reader:
    return lambda name, text, _: {name: _one_of(kind, text)}


def _one_of(kind: type[StrEnum], text: str) -> str:
    """One word of a closed list; another would find nothing for ever."""
    known = [member.value for member in kind]
    if text in known:
        return text
    near = difflib.get_close_matches(text, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    if len(known) > _MOST_NAMED:
        raise ValueError(f"{text!r} is none{hint or '; docs/reasons.md lists them all'}")
    raise ValueError(f"{text!r} is none of {', '.join(known)}{hint}")


def _errors(_: str, text: str, __: float) -> dict[str, Any]:
    if text not in {"true", "false"}:
        raise ValueError(f"{text!r} is neither true nor false")
    return {"errors_only": text == "true"}


def _moment(name: str, text: str, now: float) -> dict[str, Timestamp]:
    with suppress(ValueError):
        seconds = parse_duration(text)
        assert isinstance(seconds, float)
        return {name: timestamp(max(now - seconds, 0.0))}
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time; write how long ago, as 10m, or when, as 2026-11-30T08:00") from None
    return {name: timestamp((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())}


_READERS: Mapping[str, _Reader] = {
    "limit": _limit,
    "model": _text,
    "pool": _text,
    "tier": _closed(FormatTier),
    "tenant": _tenant,
    "verdict": _closed(Verdict),
    "reason": _closed(Reason),
    "mistake": _mistake,
    "status": _status,
    "session": _session,
    "request_id": _text,
    "errors": _errors,
    "since": _moment,
    "until": _moment,
}
WORDS = tuple(_READERS)
