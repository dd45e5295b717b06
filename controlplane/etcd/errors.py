"""What can go wrong with etcd, beyond `UnavailableError`; the one place where gRPC's errors are mapped.

HeadraceError
  UnavailableError        no member answers now; a retry may succeed
  EtcdRefusedError        etcd answered and refuses: a wrong password, a missing right, a bad request
    LeaseNotFoundError    the lease has run out or was revoked
  WatchLostError          a watch cannot go on where it was: list again
    CompactedError        because etcd has compacted the history that it needs
"""

from __future__ import annotations

import grpc

from controlplane.errors import HeadraceError, UnavailableError


class EtcdRefusedError(HeadraceError):
    """etcd answered, and the same request would be refused again."""


class LeaseNotFoundError(EtcdRefusedError):
    """The lease has run out or was revoked, and its keys are gone."""


class WatchLostError(HeadraceError):
    """A watch has a gap that etcd cannot fill: list again, and watch from that list's revision + 1."""


class CompactedError(WatchLostError):
    """The history up to `revision` is compacted."""

    def __init__(self, revision: int) -> None:
        super().__init__(f"etcd has compacted its history up to revision {revision}")
        self.revision = revision


_REFUSED = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.UNIMPLEMENTED,
}


def mapped(error: grpc.aio.AioRpcError, address: str) -> HeadraceError:
    """The error that callers see for one of gRPC's.

    Every code that is not a plain refusal counts as unavailable: etcd uses UNKNOWN and CANCELLED for what goes wrong
    while it stops, and HTTP/2 resets come as INTERNAL.
    """
    details = error.details() or error.code().name
    if error.code() is grpc.StatusCode.NOT_FOUND and "lease not found" in details:
        return LeaseNotFoundError(details)
    if error.code() in _REFUSED:
        return EtcdRefusedError(f"etcd at {address}: {details}")
    return UnavailableError(f"etcd at {address}: {details}")


def is_about_the_token(error: grpc.aio.AioRpcError) -> bool:
    """Whether a new login may cure it. etcd says all this before it does anything, so the call can be repeated.

    The texts are those of etcd's api/v3rpc/rpctypes/error.go; their codes are shared with other errors.
    """
    details = error.details() or ""
    return any(text in details for text in TOKEN_TROUBLE)


TOKEN_TROUBLE = ("invalid auth token", "revision of auth store is old", "user name is empty")
