"""The one place where Headrace's errors become gRPC statuses."""

from __future__ import annotations

from typing import Any, NoReturn

import grpc

from controlplane.errors import (
    AddressTakenError,
    ConfigurationError,
    HeadraceError,
    OverrideError,
    RegistrationError,
    UnavailableError,
    UnknownModelError,
    UnknownPoolError,
    UnknownSessionError,
)

# A status travels in HTTP/2 trailers, of which gRPC accepts 8 KiB; there each newline and each byte of what is not
# ASCII takes three. https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#responses
MOST_DETAILS_BYTES = 6000


def code_of(error: HeadraceError) -> grpc.StatusCode:
    match error:
        case RegistrationError() | ConfigurationError() | OverrideError():
            return grpc.StatusCode.INVALID_ARGUMENT
        case AddressTakenError():
            return grpc.StatusCode.ALREADY_EXISTS
        case UnknownSessionError() | UnknownPoolError() | UnknownModelError():
            return grpc.StatusCode.NOT_FOUND
        case UnavailableError():
            return grpc.StatusCode.UNAVAILABLE
        case _:
            return grpc.StatusCode.INTERNAL


async def refuse(context: grpc.aio.ServicerContext[Any, Any], error: HeadraceError) -> NoReturn:
    """Ends the call with the error's code and text."""
    await context.abort(code_of(error), shortened(error))
    raise AssertionError("abort raises")


def shortened(error: HeadraceError) -> str:
    """Its text as a status can carry it: whole lines as far as they fit, and how many more there are."""
    lines = str(error).splitlines()
    shown: list[str] = []
    room = MOST_DETAILS_BYTES
    for line in lines:
        room -= _size(line + "\n")
        if room < 0:
            break
        shown.append(line)
    if not shown and lines:
        shown = [lines[0][: MOST_DETAILS_BYTES // 12]]  # a character takes four bytes at most, each of them three
    if len(shown) < len(lines):
        shown.append(f"and {len(lines) - len(shown)} more")
    return "\n".join(shown)


def _size(text: str) -> int:
    """Bytes when percent-encoded."""
    return sum(1 if 0x20 <= byte <= 0x7E and byte != ord("%") else 3 for byte in text.encode())
