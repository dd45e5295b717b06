"""Errors as gRPC statuses: the right code, and a text that gRPC can carry."""

from __future__ import annotations

import grpc
import pytest

from controlplane.errors import (
    AddressTakenError,
    ConfigurationError,
    HeadraceError,
    OverrideError,
    RegistrationError,
    UnavailableError,
    UnknownPoolError,
    UnknownSessionError,
)
from controlplane.services.refusing import code_of, refuse, shortened
from headrace_protos.headrace.v1 import admin_pb2, admin_pb2_grpc
from support.grpc_server import serving


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RegistrationError(["a"]), grpc.StatusCode.INVALID_ARGUMENT),
        (ConfigurationError(["a"]), grpc.StatusCode.INVALID_ARGUMENT),
        (OverrideError(["a"]), grpc.StatusCode.INVALID_ARGUMENT),
        (UnknownPoolError("a", "b", []), grpc.StatusCode.NOT_FOUND),
        (AddressTakenError("1.2.3.4:5", "n"), grpc.StatusCode.ALREADY_EXISTS),
        (UnknownSessionError("a"), grpc.StatusCode.NOT_FOUND),
        (UnavailableError("a"), grpc.StatusCode.UNAVAILABLE),
        (HeadraceError("a"), grpc.StatusCode.INTERNAL),
    ],
)
def test_each_error_has_its_code(error: HeadraceError, code: grpc.StatusCode) -> None:
    assert code_of(error) is code


def test_a_short_text_stays_whole() -> None:
    faults = [f"field {n}: is wrong; write 100 % ø" for n in range(20)]
    assert shortened(RegistrationError(faults)) == "\n".join(faults)
    assert shortened(HeadraceError("")) == ""


@pytest.mark.parametrize("character", ["x", "\n", "%", "ø", "\N{GRINNING FACE}"])
@pytest.mark.parametrize("faults", [1, 2, 5000])
async def test_a_long_text_reaches_the_client_as_far_as_it_fits(character: str, faults: int) -> None:
    error = RegistrationError([f"{n}: {character * (10_000 // faults + 50)}" for n in range(faults)])

    class Admin(admin_pb2_grpc.AdminServicer):
        async def SetPolicy(self, request: object, context: grpc.aio.ServicerContext[object, object]) -> object:  # noqa: N802
            return await refuse(context, error)

    async with serving(lambda server: admin_pb2_grpc.add_AdminServicer_to_server(Admin(), server)) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await admin_pb2_grpc.AdminStub(channel).SetPolicy(admin_pb2.SetPolicyRequest())
    details = refused.value.details()
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert details == shortened(error)
    assert details.startswith("0: ")
    if faults > 1:
        last = details.splitlines()[-1]
        assert last == f"and {len(str(error).splitlines()) - len(details.splitlines()) + 1} more"
