"""The calls to the control planes: one at a time, the next one when it fails. What gRPC raises ends here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import grpc

from controlplane.errors import RegistrationError, UnavailableError, UnknownSessionError
from controlplane.grpc_calling import ControlPlaneTarget
from controlplane.messages import node_load_message, node_spec_message
from controlplane.model import NodeLoad, NodeSpec
from headrace_protos.headrace.v1 import registry_pb2, registry_pb2_grpc

CALL_SECONDS = 5.0

# Answers that another try will not change; a person has to.
_REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
}


@dataclass(frozen=True, slots=True)
class Registration:
    """A node session as the control plane began it, and its terms in seconds."""

    session_id: str
    spec: NodeSpec
    lease_seconds: float
    heartbeat_seconds: float
    pools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The report was taken."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Finish what runs; nothing new comes."""


@dataclass(frozen=True, slots=True)
class ReRegister:
    """The session is lost; register again within so many seconds."""

    within_seconds: float


Instruction = Acknowledged | Drain | ReRegister


class RegistryClient:
    """Speaks to the control plane `target`; `turn` goes on to the next one."""

    def __init__(self, targets: Sequence[ControlPlaneTarget]) -> None:
        self._targets = tuple(targets)
        self._turn = 0
        self._channels: dict[ControlPlaneTarget, grpc.aio.Channel] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for channel in self._channels.values():
            await channel.close()

    @property
    def target(self) -> ControlPlaneTarget:
        return self._targets[self._turn % len(self._targets)]

    def __len__(self) -> int:
        return len(self._targets)

    def turn(self) -> None:
        self._turn += 1

    async def register(self, spec: NodeSpec) -> Registration:
        """Raises RegistrationError when it is refused, UnavailableError when it may succeed later."""
        request = registry_pb2.RegisterRequest(node=node_spec_message(spec))
        try:
            answer = await self._stub().Register(request, timeout=CALL_SECONDS, metadata=self.target.metadata)
        except grpc.aio.AioRpcError as error:
            raise self._meant(error) from error
        return Registration(
            session_id=answer.session_id,
            spec=spec,
            lease_seconds=answer.lease_seconds,
            heartbeat_seconds=answer.heartbeat_seconds,
            pools=tuple(answer.pools),
        )

    async def heartbeat(
        self, session_id: str, loads: AsyncIterator[NodeLoad], patience: float
    ) -> AsyncGenerator[Instruction, None]:
        """Sends `loads` and gives what comes back, until `loads` ends.

        Raises UnknownSessionError; RegistrationError when the caller is refused; UnavailableError when the stream
        breaks, or when nothing comes back for `patience` seconds.
        """
        call = self._stub().Heartbeat(_requests(session_id, loads), metadata=self.target.metadata)
        try:
            answers = aiter(call)
            while True:
                try:
                    async with asyncio.timeout(patience):
                        answer = await anext(answers, None)
                except TimeoutError:
                    raise UnavailableError(f"{self.target} has not answered a heartbeat for {patience:g} s") from None
                except grpc.aio.AioRpcError as error:
                    raise self._meant(error) from error
                if answer is None:
                    return
                yield _instruction(answer)
        finally:
            call.cancel()

    async def drain(self, node_id: str) -> None:
        """Raises UnknownSessionError, RegistrationError when the caller is refused, or UnavailableError."""
        try:
            await self._stub().Drain(
                registry_pb2.DrainRequest(node_id=node_id), timeout=CALL_SECONDS, metadata=self.target.metadata
            )
        except grpc.aio.AioRpcError as error:
            raise self._meant(error) from error

    async def deregister(self, session_id: str) -> None:
        """Raises UnknownSessionError, RegistrationError when the caller is refused, or UnavailableError."""
        try:
            await self._stub().Deregister(
                registry_pb2.DeregisterRequest(session_id=session_id),
                timeout=CALL_SECONDS,
                metadata=self.target.metadata,
            )
        except grpc.aio.AioRpcError as error:
            raise self._meant(error) from error

    def _stub(self) -> registry_pb2_grpc.RegistryStub:
        channel = self._channels.get(self.target)
        if channel is None:
            channel = self._channels[self.target] = self.target.open()
        return registry_pb2_grpc.RegistryStub(channel)

    def _meant(self, error: grpc.aio.AioRpcError) -> RegistrationError | UnknownSessionError | UnavailableError:
        text = f"{self.target}: {error.code().name}: {error.details()}"
        if error.code() is grpc.StatusCode.NOT_FOUND:
            return UnknownSessionError(text)
        if error.code() in _REFUSALS:
            details = error.details() or error.code().name
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                details += "; name the file that holds it with --token-file"
            return RegistrationError(details.splitlines())
        return UnavailableError(text)


async def _requests(session_id: str, loads: AsyncIterator[NodeLoad]) -> AsyncIterator[registry_pb2.HeartbeatRequest]:
    async for load in loads:
        yield registry_pb2.HeartbeatRequest(session_id=session_id, load=node_load_message(load))


def _instruction(answer: registry_pb2.HeartbeatResponse) -> Instruction:
    match answer.WhichOneof("instruction"):
        case "drain":
            return Drain()
        case "re_register":
            return ReRegister(answer.re_register.within_seconds)
        case _:
            return Acknowledged()
