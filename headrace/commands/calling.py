"""One call of a command to a control plane, with errors that say what to do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
import typer
from google.protobuf.message import Message

from controlplane.errors import HeadraceError, UnavailableError
from controlplane.grpc_calling import ControlPlaneTarget
from controlplane.messages import as_fields

Answer = TypeVar("Answer")

CALL_SECONDS = 10.0


class RefusedError(HeadraceError):
    """The control plane refused the call; the message is its own."""


def call(
    target: ControlPlaneTarget,
    stub: Callable[[grpc.aio.Channel], Any],
    method: Callable[[Any], Callable[..., Awaitable[Answer]]],
    request: Message,
) -> Answer:
    """Calls `method` of `stub` once. Raises UnavailableError or RefusedError."""

    async def run() -> Answer:
        async with target.open() as channel:
            return await method(stub(channel))(request, metadata=target.metadata, timeout=CALL_SECONDS)

    try:
        return asyncio.run(run())
    except grpc.aio.AioRpcError as error:
        raise told(error, target) from None


def told(error: grpc.aio.AioRpcError, target: ControlPlaneTarget) -> HeadraceError:
    """What a person is told of a failed call."""
    details = error.details() or error.code().name.lower()
    match error.code():
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.DEADLINE_EXCEEDED:
            return UnavailableError(
                f"the control plane at {target} cannot answer: {details}\n"
                "start `headrace up` or `headrace controlplane`, or name another with --control-plane"
            )
        case grpc.StatusCode.UNAUTHENTICATED:
            return RefusedError(f"{details}; name the file that holds it with --token-file")
        case _:
            return RefusedError(details)


def print_json(message: Message) -> None:
    """The message with the names of its proto, and zero values where they mean something."""
    typer.echo(json.dumps(as_fields(message), indent=2, ensure_ascii=False))
