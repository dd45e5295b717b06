"""What etcd holds and tells, as frozen values: records, listings, changes; and transactions as functions.

Keys are text; values are bytes. Revisions count all changes of the whole store, from 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace_protos.etcd import kv_pb2, rpc_pb2


@dataclass(frozen=True, slots=True)
class Record:
    """One key. `lease_id` is 0 without a lease; `version` counts its puts since it was created, from 1."""

    key: str
    value: bytes
    mod_revision: int
    create_revision: int
    version: int = 1
    lease_id: int = 0


@dataclass(frozen=True, slots=True)
class Listing:
    """All records under a prefix, in the order of their keys, as they were at `revision`."""

    records: tuple[Record, ...]
    revision: int


@dataclass(frozen=True, slots=True)
class Put:
    record: Record

    @property
    def key(self) -> str:
        return self.record.key

    @property
    def mod_revision(self) -> int:
        return self.record.mod_revision


@dataclass(frozen=True, slots=True)
class Delete:
    """A key went: by a delete, or because its lease ended."""

    key: str
    mod_revision: int


@dataclass(frozen=True, slots=True)
class Changes:
    """Whole revisions, in order: nothing up to and including `revision` is still to come.

    `events` is empty when etcd merely tells how far it is.
    """

    events: tuple[Put | Delete, ...]
    revision: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a transaction did: `records` holds what each `get` of the branch that ran found, None for no such key."""

    succeeded: bool
    revision: int
    records: tuple[Record | None, ...] = ()


def record_of(pair: kv_pb2.KeyValue) -> Record:
    return Record(
        key=text(pair.key),
        value=pair.value,
        mod_revision=pair.mod_revision,
        create_revision=pair.create_revision,
        version=pair.version,
        lease_id=pair.lease,
    )


def change_of(event: kv_pb2.Event) -> Put | Delete:
    if event.type == kv_pb2.Event.DELETE:
        return Delete(text(event.kv.key), event.kv.mod_revision)
    return Put(record_of(event.kv))


def text(key: bytes) -> str:
    """A key that another program wrote may be no UTF-8; it still has to be told from others."""
    return key.decode("utf-8", "surrogateescape")


def raw(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def start_of(prefix: str) -> bytes:
    """The first key that can have this prefix; etcd takes no empty key."""
    return raw(prefix) or b"\0"


def end_of(prefix: str) -> bytes:
    """The first key after all keys with this prefix, as etcd's `range_end`; a zero byte means the end of the store."""
    stem = raw(prefix).rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b"\0"


# --- the parts of a transaction ------------------------------------------------------------------------------------


def mod_revision_is(key: str, revision: int) -> rpc_pb2.Compare:
    """The key was last changed at this revision; 0 means that it does not exist."""
    return rpc_pb2.Compare(key=raw(key), target=rpc_pb2.Compare.MOD, mod_revision=revision)


def create_revision_is(key: str, revision: int) -> rpc_pb2.Compare:
    """The key was created at this revision; 0 means that it does not exist."""
    return rpc_pb2.Compare(key=raw(key), target=rpc_pb2.Compare.CREATE, create_revision=revision)


def exists(key: str) -> rpc_pb2.Compare:
    return rpc_pb2.Compare(
        key=raw(key), target=rpc_pb2.Compare.CREATE, result=rpc_pb2.Compare.GREATER, create_revision=0
    )


def value_is(key: str, value: bytes) -> rpc_pb2.Compare:
    return rpc_pb2.Compare(key=raw(key), target=rpc_pb2.Compare.VALUE, value=value)


def put(key: str, value: bytes, lease_id: int = 0) -> rpc_pb2.RequestOp:
    return rpc_pb2.RequestOp(request_put=rpc_pb2.PutRequest(key=raw(key), value=value, lease=lease_id))


def delete(key: str) -> rpc_pb2.RequestOp:
    return rpc_pb2.RequestOp(request_delete_range=rpc_pb2.DeleteRangeRequest(key=raw(key)))


def get(key: str) -> rpc_pb2.RequestOp:
    return rpc_pb2.RequestOp(request_range=rpc_pb2.RangeRequest(key=raw(key)))
