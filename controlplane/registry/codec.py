"""Node sessions, loads and overrides as JSON, as they lie in etcd.

Fields that this version does not know are skipped and missing ones take their defaults, so that control planes of two
versions can share a fleet while one replaces the other.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import msgspec

from controlplane.etcd.records import Record
from controlplane.model import NodeLoad, NodeSession, Override

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """A load and the session that reported it: an earlier session's load says nothing about the present one."""

    session_id: str
    load: NodeLoad


def encode(value: NodeSession | LoadRecord | Override) -> bytes:
    return msgspec.json.encode(value)


def decode_session(record: Record) -> NodeSession | None:
    """None, and a warning in the log, for what this version cannot read: it must not stand in the way of the others."""
    try:
        session = msgspec.json.decode(record.value, type=NodeSession)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        logger.warning("skipping a node session that cannot be read key=%s fault=%s", record.key, error)
        return None
    if not record.key.endswith(f"/{session.spec.node_id}"):
        logger.warning("skipping a node session of another node key=%s node=%s", record.key, session.spec.node_id)
        return None
    return session


def decode_last(record: Record) -> NodeSession | None:
    """The last session of a node's id or of an address. As `decode_session`."""
    try:
        return msgspec.json.decode(record.value, type=NodeSession)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        logger.warning("skipping a last session that cannot be read key=%s fault=%s", record.key, error)
        return None


def decode_load(record: Record) -> LoadRecord | None:
    """As `decode_session`."""
    try:
        return msgspec.json.decode(record.value, type=LoadRecord)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        logger.warning("skipping a load that cannot be read key=%s fault=%s", record.key, error)
        return None


def decode_override(record: Record) -> Override | None:
    """As `decode_session`."""
    try:
        return msgspec.json.decode(record.value, type=Override)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        logger.warning("skipping an override that cannot be read key=%s fault=%s", record.key, error)
        return None
