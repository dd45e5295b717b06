"""The calls to etcd that Headrace makes. A thin layer: one method, one request."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Self

import grpc

from controlplane.etcd import records
from controlplane.etcd.connection import Connection, EtcdAccess, Health, Member
from controlplane.etcd.errors import LeaseNotFoundError
from controlplane.etcd.records import Changes, Listing, Outcome, Record, record_of
from controlplane.etcd.watch import watch
from headrace_protos.etcd import rpc_pb2


class EtcdClient:
    """A client of one etcd cluster, connected as long as its context lasts.

    Every method raises UnavailableError when etcd does not answer in time, and EtcdRefusedError when it refuses.
    After an UnavailableError a change may or may not have been made.
    """

    def __init__(self, settings: EtcdAccess, *, connection: Connection | None = None) -> None:
        self._connection = connection or Connection(settings)

    async def __aenter__(self) -> Self:
        await self._connection.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._connection.__aexit__(kind, error, traceback)

    @property
    def health(self) -> Health:
        return self._connection.health

    # --- keys ------------------------------------------------------------------------------------------------------

    async def get(self, key: str) -> Record | None:
        request = rpc_pb2.RangeRequest(key=records.raw(key))
        answer = await self._connection.call(lambda member: member.kv.Range, request, repeatable=True)
        return record_of(answer.kvs[0]) if answer.kvs else None

    async def list(self, prefix: str) -> Listing:
        """All records under a prefix. Watching from the listing's revision + 1 misses nothing."""
        request = rpc_pb2.RangeRequest(key=records.start_of(prefix), range_end=records.end_of(prefix))
        answer = await self._connection.call(lambda member: member.kv.Range, request, repeatable=True)
        return Listing(tuple(map(record_of, answer.kvs)), answer.header.revision)

    async def put(self, key: str, value: bytes, *, lease_id: int = 0) -> int:
        """Writes a key and returns the revision. Raises LeaseNotFoundError when the lease has ended."""
        request = rpc_pb2.PutRequest(key=records.raw(key), value=value, lease=lease_id)
        answer = await self._connection.call(lambda member: member.kv.Put, request)
        return int(answer.header.revision)

    async def delete(self, key: str) -> bool:
        """Deletes a key; False when there was none."""
        request = rpc_pb2.DeleteRangeRequest(key=records.raw(key))
        answer = await self._connection.call(lambda member: member.kv.DeleteRange, request)
        return bool(answer.deleted)

    async def transact(
        self,
        conditions: Sequence[rpc_pb2.Compare],
        then: Sequence[rpc_pb2.RequestOp],
        otherwise: Sequence[rpc_pb2.RequestOp] = (),
    ) -> Outcome:
        """Does `then` if all conditions hold, else `otherwise`, as one revision. See `records` for the parts."""
        request = rpc_pb2.TxnRequest(compare=conditions, success=then, failure=otherwise)
        reads_only = all(op.HasField("request_range") for op in (*then, *otherwise))
        answer = await self._connection.call(lambda member: member.kv.Txn, request, repeatable=reads_only)
        found = tuple(
            record_of(response.response_range.kvs[0]) if response.response_range.kvs else None
            for response in answer.responses
            if response.HasField("response_range")
        )
        return Outcome(answer.succeeded, answer.header.revision, found)

    async def compact(self, revision: int) -> None:
        """Forgets the history before `revision`."""
        await self._connection.call(lambda member: member.kv.Compact, rpc_pb2.CompactionRequest(revision=revision))

    def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[Changes, None]:
        """All changes under `prefix` from a revision on; see `watch.watch`."""
        return watch(self._connection, prefix, from_revision)

    # --- leases ----------------------------------------------------------------------------------------------------

    async def grant_lease(self, seconds: int) -> int:
        """Starts a lease and returns its id. etcd makes it longer when `seconds` is less than its election allows."""
        request = rpc_pb2.LeaseGrantRequest(TTL=seconds)
        answer = await self._connection.call(lambda member: member.lease.LeaseGrant, request)
        return int(answer.ID)

    async def revoke_lease(self, lease_id: int) -> None:
        """Ends a lease and deletes its keys. Raises LeaseNotFoundError when it has ended already."""
        await self._connection.call(lambda member: member.lease.LeaseRevoke, rpc_pb2.LeaseRevokeRequest(ID=lease_id))

    async def renew_lease(self, lease_id: int) -> float:
        """Gives a lease its whole time again and returns that, in seconds.

        Raises LeaseNotFoundError when it has ended.
        """

        async def once(member: Member, metadata: Sequence[tuple[str, str]]) -> rpc_pb2.LeaseKeepAliveResponse | None:
            call = member.lease.LeaseKeepAlive(metadata=metadata)
            try:
                await call.write(rpc_pb2.LeaseKeepAliveRequest(ID=lease_id))
                await call.done_writing()
                answer = await call.read()
                return None if answer is grpc.aio.EOF else answer
            finally:
                call.cancel()

        answer = await self._connection.exchange(once, repeatable=True)
        if answer is None or answer.TTL <= 0:
            raise LeaseNotFoundError(f"lease {lease_id:x} has ended")
        return float(answer.TTL)

    async def lease_seconds_left(self, lease_id: int) -> float:
        """The time that a lease has left. Raises LeaseNotFoundError when it has ended."""
        request = rpc_pb2.LeaseTimeToLiveRequest(ID=lease_id)
        answer = await self._connection.call(lambda member: member.lease.LeaseTimeToLive, request, repeatable=True)
        if answer.TTL < 0:
            raise LeaseNotFoundError(f"lease {lease_id:x} has ended")
        return float(answer.TTL)
