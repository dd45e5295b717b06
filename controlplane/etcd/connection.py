"""Channels to etcd's members: which one to use now, logging in, and calling with a deadline.

It does not know what is called; `client` and `watch` do.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from controlplane.errors import ConfigurationError, HeadraceError, UnavailableError
from controlplane.etcd.errors import EtcdRefusedError, is_about_the_token, mapped
from headrace_protos.etcd import rpc_pb2, rpc_pb2_grpc

logger = logging.getLogger(__name__)

# gRPC's own first reconnect comes after a second and grows to two minutes; an etcd that restarts is back in less.
_CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Finds members that vanish without closing their connections. etcd allows a ping each 5 s at most, and none without
    # a call (--grpc-keepalive-min-time).
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),  # a listing of a large fleet
    ("grpc.enable_http_proxy", 0),
)

# Ends calls and watches on a member that has lost its leader, rather than letting them hang (etcd's WithRequireLeader).
_REQUIRE_LEADER = ("hasleader", "true")

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_QUIET = 0.5  # seconds without a connection that are no trouble yet


@dataclass(frozen=True, slots=True)
class EtcdAccess:
    """Where etcd is and how to be let in.

    `endpoints` are `host:port`, optionally with http:// or https:// in front. TLS is used when any of them says https
    or a CA or certificate is given; without `ca_file` the system's roots count. `call_timeout` is in seconds and covers
    finding a member, logging in and the call.
    """

    endpoints: tuple[str, ...]
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    call_timeout: float = 5.0


@dataclass(frozen=True, slots=True)
class Health:
    """The state of the connection: `trouble` says what is wrong, None when nothing is.

    `failed_at` is the last moment (by the connection's clock) at which etcd was known not to answer; None when it
    always did.
    """

    trouble: str | None = None
    failed_at: float | None = None


class Member:
    """One member of the cluster, as reached by one endpoint."""

    def __init__(self, address: str, channel: grpc.aio.Channel) -> None:
        self.address = address
        self.channel = channel
        self.kv: Any = rpc_pb2_grpc.KVStub(channel)
        self.lease: Any = rpc_pb2_grpc.LeaseStub(channel)
        self.watch: Any = rpc_pb2_grpc.WatchStub(channel)
        self.auth: Any = rpc_pb2_grpc.AuthStub(channel)

    def is_ready(self) -> bool:
        return self.channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY


class Pause:
    """Growing waits with jitter, so that many clients do not come back in one instant."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._next = _FIRST_PAUSE

    def reset(self) -> None:
        self._next = _FIRST_PAUSE

    async def wait(self) -> None:
        length = self._next * (0.5 + 0.5 * self._draw())
        self._next = min(2 * self._next, _LONGEST_PAUSE)
        await asyncio.sleep(length)


class Connection:
    """The connection to a whole cluster: one channel per endpoint, one of them in use.

    `clock` gives monotonic seconds, `draw` numbers in 0..1 for jitter.
    """

    def __init__(
        self,
        settings: EtcdAccess,
        *,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._draw = draw
        self._members: list[Member] = []
        self._current = 0
        self._token: str | None = None
        self._logging_in = asyncio.Lock()
        self.health = Health("not connected yet")

    async def __aenter__(self) -> Self:
        credentials = _channel_credentials(self._settings)
        for endpoint in self._settings.endpoints:
            address = endpoint.split("://", 1)[-1].rstrip("/")
            if credentials is None:
                channel = grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)
            else:
                channel = grpc.aio.secure_channel(address, credentials, options=_CHANNEL_OPTIONS)
            self._members.append(Member(address, channel))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for member in self._members:
            await member.channel.close()
        self._members.clear()

    @property
    def call_timeout(self) -> float:
        return self._settings.call_timeout

    @property
    def has_user(self) -> bool:
        return self._settings.user is not None

    def pause(self) -> Pause:
        return Pause(self._draw)

    async def call(self, method: Callable[[Member], Any], request: Any, *, repeatable: bool = False) -> Any:
        """Calls one unary method and returns its answer.

        A `repeatable` call is tried on one member after the other until the deadline; any other is tried once, since
        etcd may have done it without being able to say so.

        Raises UnavailableError when no member answers in time, EtcdRefusedError when etcd refuses.
        """

        async def once(member: Member, metadata: Sequence[tuple[str, str]]) -> Any:
            # With other members to turn to, failing at once is better than waiting for one that has just gone.
            return await method(member)(request, metadata=metadata, wait_for_ready=len(self._members) == 1)

        return await self.exchange(once, repeatable=repeatable)

    async def exchange(
        self, once: Callable[[Member, Sequence[tuple[str, str]]], Awaitable[Any]], *, repeatable: bool = False
    ) -> Any:
        """As `call`, for a short exchange of any shape; `once` gets the member and the metadata to send."""
        try:
            async with asyncio.timeout(self._settings.call_timeout):
                return await self._attempts(once, repeatable)
        except TimeoutError:
            self.turn_from(self._members[self._current])
            raise self.failed(UnavailableError(self._silence())) from None

    async def _attempts(
        self, once: Callable[[Member, Sequence[tuple[str, str]]], Awaitable[Any]], repeatable: bool
    ) -> Any:
        pause = self.pause()
        logged_in_again = False
        while True:
            member = await self.ready_member()
            metadata: Sequence[tuple[str, str]] = ()
            try:
                metadata = await self.metadata(member)
                answer = await once(member, metadata)
            except grpc.aio.AioRpcError as error:
                if self.has_user and not logged_in_again and is_about_the_token(error):
                    self.forget_token(metadata)
                    logged_in_again = True
                    continue
                cause = mapped(error, member.address)
                if not isinstance(cause, UnavailableError) or error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                    self.succeeded()  # at answering: a full store is no outage
                    raise cause from error
                self.failed(cause)
                self.turn_from(member)
                if not repeatable:
                    raise cause from error
                await pause.wait()
            else:
                self.succeeded()
                return answer

    # --- members ---------------------------------------------------------------------------------------------------

    async def ready_member(self) -> Member:
        """The member in use, or the first other one that can be connected to. Waits for as long as there is none."""
        while True:
            for offset in range(len(self._members)):
                index = (self._current + offset) % len(self._members)
                if self._members[index].is_ready():
                    self._current = index
                    return self._members[index]
            await self._some_change()

    async def _some_change(self) -> None:
        waits = [asyncio.ensure_future(member.channel.channel_ready()) for member in self._members]
        try:
            while not (await asyncio.wait(waits, timeout=_QUIET, return_when=asyncio.FIRST_COMPLETED))[0]:
                self.failed(UnavailableError(f"no connection to etcd at {self._where()}"))
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    def turn_from(self, member: Member) -> None:
        """Prefers the next member from now on, if `member` is still the one in use."""
        if self._members[self._current] is member:
            self._current = (self._current + 1) % len(self._members)

    # --- logging in ------------------------------------------------------------------------------------------------

    async def metadata(self, member: Member) -> Sequence[tuple[str, str]]:
        """What to send along with a call: the token of a login, where there is a user.

        Raises gRPC's own error when the login gets no answer, EtcdRefusedError when it is refused.
        """
        if not self.has_user:
            return (_REQUIRE_LEADER,)
        async with self._logging_in:
            if self._token is None:
                self._token = await self._log_in(member)
        return (_REQUIRE_LEADER, ("token", self._token)) if self._token else (_REQUIRE_LEADER,)

    def forget_token(self, metadata: Sequence[tuple[str, str]]) -> None:
        """Logs in anew before the next call, unless another call has already done so since `metadata` was made."""
        if dict(metadata).get("token", "") == (self._token or ""):
            self._token = None

    async def _log_in(self, member: Member) -> str:
        request = rpc_pb2.AuthenticateRequest(name=self._settings.user or "", password=self._settings.password or "")
        try:
            answer = await member.auth.Authenticate(request, metadata=(_REQUIRE_LEADER,))
        except grpc.aio.AioRpcError as error:
            if "authentication is not enabled" in (error.details() or ""):
                return ""
            if isinstance(mapped(error, member.address), EtcdRefusedError):
                raise EtcdRefusedError(
                    f"etcd at {member.address} refuses the login of user {self._settings.user!r}: {error.details()}; "
                    "check the user and the password"
                ) from error
            raise
        return str(answer.token)

    # --- health ----------------------------------------------------------------------------------------------------

    def succeeded(self) -> None:
        if self.health.trouble is not None:
            was_down = self.health.failed_at is not None
            if was_down:
                logger.info("etcd answers again")
            self.health = Health(None, self._clock() if was_down else None)

    def failed(self, error: HeadraceError) -> HeadraceError:
        """Notes that etcd does not answer, and hands the error back."""
        if self.health.trouble is None or self.health.failed_at is None:
            logger.warning("etcd does not answer: %s", error)
        self.health = Health(str(error), self._clock())
        return error

    def _where(self) -> str:
        return ", ".join(member.address for member in self._members)

    def _silence(self) -> str:
        secure = " and the TLS files" if _wants_tls(self._settings) else ""
        return (
            f"etcd at {self._where()} did not answer within {self._settings.call_timeout:g} s; "
            f"check that it runs, the endpoints{secure}"
        )


def _wants_tls(settings: EtcdAccess) -> bool:
    files = (settings.ca_file, settings.cert_file, settings.key_file)
    return any(files) or any(endpoint.startswith("https://") for endpoint in settings.endpoints)


def _channel_credentials(settings: EtcdAccess) -> grpc.ChannelCredentials | None:
    if not settings.endpoints:
        raise ConfigurationError(["etcd: no endpoint is given"])
    if not _wants_tls(settings):
        return None
    if (settings.cert_file is None) != (settings.key_file is None):
        raise ConfigurationError(["etcd: a client certificate needs both its certificate file and its key file"])
    try:
        root, key, certificate = (
            path.read_bytes() if path else None for path in (settings.ca_file, settings.key_file, settings.cert_file)
        )
    except OSError as error:
        raise ConfigurationError([f"etcd: cannot read {error.filename}: {error.strerror}"]) from error
    return grpc.ssl_channel_credentials(root, key, certificate)
