"""A watch that resumes by itself: every change from a revision on, in order, once.

The rules it follows are etcd's (https://etcd.io/docs/v3.5/learning/api/#watch-api):
- It resumes at the last event's revision + 1. The revision in a response's header is the store's, which may be ahead of
  what this watch has been sent; it counts only in a progress notice, which says that nothing older is to come.
- One revision is never split, except into fragments, which are put together again here.
- A start that is compacted away ends the watch with `compact_revision`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, cast

import grpc

from controlplane.errors import UnavailableError
from controlplane.etcd.connection import Connection, Member
from controlplane.etcd.errors import TOKEN_TROUBLE, CompactedError, EtcdRefusedError, WatchLostError, mapped
from controlplane.etcd.records import Changes, Delete, Put, change_of, end_of, start_of
from headrace_protos.etcd import rpc_pb2

logger = logging.getLogger(__name__)


async def watch(connection: Connection, prefix: str, from_revision: int) -> AsyncGenerator[Changes, None]:
    """Yields all changes under `prefix` from `from_revision` on, through reconnects, without end.

    Raises CompactedError or WatchLostError when there is a gap that cannot be filled, EtcdRefusedError when the user
    may not watch. Close it (`contextlib.aclosing`), or etcd goes on sending.
    """
    following = from_revision
    pause = connection.pause()
    logged_in_again = False
    while True:
        member = await connection.ready_member()
        metadata: Sequence[tuple[str, str]] = ()
        call = None
        try:
            async with asyncio.timeout(connection.call_timeout):
                metadata = await connection.metadata(member)
                call = member.watch.Watch(metadata=metadata)
                await call.write(_request(prefix, following))
                _check(await _read(call, member), following)
            connection.succeeded()
            logged_in_again = False
            async for changes in _changes(call, member, following):
                pause.reset()
                connection.succeeded()
                following = changes.revision + 1
                yield changes
        except _TokenRefusedError as error:
            if logged_in_again or not connection.has_user:
                raise EtcdRefusedError(f"etcd at {member.address} refuses to watch {prefix}: {error}") from error
            connection.forget_token(metadata)
            logged_in_again = True
            continue
        except TimeoutError:
            _note(connection, member, prefix, UnavailableError(f"etcd at {member.address} starts no watch in time"))
        except UnavailableError as error:
            _note(connection, member, prefix, error)
        except grpc.aio.AioRpcError as error:
            cause = mapped(error, member.address)
            if not isinstance(cause, UnavailableError):
                raise cause from error
            _note(connection, member, prefix, cause)
        finally:
            if call is not None:
                call.cancel()
        await pause.wait()


async def _changes(call: Any, member: Member, from_revision: int) -> AsyncIterator[Changes]:
    events: list[Put | Delete] = []
    while True:
        response = await _read(call, member)
        _check(response, from_revision)
        events += map(change_of, response.events)
        if response.fragment:
            continue
        # Without events it is a progress notice.
        yield Changes(tuple(events), events[-1].mod_revision if events else response.header.revision)
        events.clear()


async def _read(call: Any, member: Member) -> rpc_pb2.WatchResponse:
    response = await call.read()
    if response is grpc.aio.EOF:
        raise UnavailableError(f"etcd at {member.address} ended the watch")
    return cast(rpc_pb2.WatchResponse, response)


def _check(response: rpc_pb2.WatchResponse, from_revision: int) -> None:
    if response.compact_revision:
        raise CompactedError(response.compact_revision)
    if response.canceled:
        if any(text in response.cancel_reason for text in (*TOKEN_TROUBLE, "permission denied")):
            raise _TokenRefusedError(response.cancel_reason)
        raise UnavailableError(f"etcd canceled the watch: {response.cancel_reason or 'no reason given'}")
    if response.created and response.header.revision < from_revision - 1:
        # Restored from a backup, or started anew: a watch would wait in silence for revisions that mean other changes.
        raise WatchLostError(f"etcd is at revision {response.header.revision}, before {from_revision - 1} seen earlier")


def _request(prefix: str, from_revision: int) -> rpc_pb2.WatchRequest:
    return rpc_pb2.WatchRequest(
        create_request=rpc_pb2.WatchCreateRequest(
            key=start_of(prefix),
            range_end=end_of(prefix),
            start_revision=from_revision,
            progress_notify=True,  # so that a quiet watch does not fall behind compactions
            fragment=True,  # so that no response outgrows gRPC's message size
        )
    )


def _note(connection: Connection, member: Member, prefix: str, error: UnavailableError) -> None:
    connection.failed(error)
    connection.turn_from(member)
    logger.info("the watch of %s goes on when etcd answers: %s", prefix, error)


class _TokenRefusedError(Exception):
    """A new login may cure it: to a watch, etcd 3.4 and early 3.5 call a stale token `permission denied`."""
