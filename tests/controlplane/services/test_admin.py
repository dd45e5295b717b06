"""Operators read and replace the policy of all control planes at once, through a real etcd."""

from __future__ import annotations

import grpc

from controlplane.config.load import load_policy
from controlplane.policy.settings import Policy
from controlplane.services.admin import AdminServicer
from controlplane.view import CurrentView
from headrace_protos.headrace.v1 import admin_pb2, admin_pb2_grpc
from support.grpc_server import serving
from support.services import Services, status_of
from support.waiting import until

ONE_CLASS = "context_classes: [{name: all}]\n"


async def policy(services: Services) -> tuple[Policy, bool]:
    answer = await services.admin.GetPolicy(admin_pb2.GetPolicyRequest())
    return load_policy(answer.policy_yaml, "policy"), answer.overridden


async def test_a_policy_that_is_set_is_in_force_until_it_is_reset(services: Services) -> None:
    assert await policy(services) == (Policy(), False)
    await services.admin.SetPolicy(admin_pb2.SetPolicyRequest(policy_yaml=ONE_CLASS))
    wanted = load_policy(ONE_CLASS, "policy")

    async def is_set() -> bool:
        return await policy(services) == (wanted, True)

    await until(is_set)
    await services.admin.ResetPolicy(admin_pb2.ResetPolicyRequest())

    async def is_reset() -> bool:
        return await policy(services) == (Policy(), False)

    await until(is_reset)
    await services.admin.ResetPolicy(admin_pb2.ResetPolicyRequest())  # again is no error


async def test_a_policy_with_faults_is_refused_with_each_and_its_line(services: Services) -> None:
    bad = "context_classes: [{name: all}]\nsensitivity: 7\nno_such_thing: 1\n"
    code, details = await status_of(services.admin.SetPolicy(admin_pb2.SetPolicyRequest(policy_yaml=bad)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert [line.split(" ")[0] for line in details.splitlines()] == ["policy:2:", "policy:3:"]
    assert await policy(services) == (Policy(), False)


async def test_a_policy_of_a_thousand_faults_is_refused_and_told_in_part(services: Services) -> None:
    bad = "".join(f"no_such_thing_{number}: 1\n" for number in range(1000))
    code, details = await status_of(services.admin.SetPolicy(admin_pb2.SetPolicyRequest(policy_yaml=bad)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details.splitlines()[-1].startswith("and ")


async def test_without_etcd_the_policy_stays_and_cannot_be_set(services: Services) -> None:
    await services.etcd.kill()
    for call in (
        services.admin.SetPolicy(admin_pb2.SetPolicyRequest(policy_yaml=ONE_CLASS)),
        services.admin.ResetPolicy(admin_pb2.ResetPolicyRequest()),
    ):
        code, details = await status_of(call)
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "etcd" in details
    assert await policy(services) == (Policy(), False)


async def test_before_the_policy_is_known_it_is_unavailable() -> None:
    async def store(_: str | None) -> None: ...

    admin = AdminServicer(CurrentView(None), store)
    async with serving(lambda server: admin_pb2_grpc.add_AdminServicer_to_server(admin, server)) as channel:
        code, _ = await status_of(admin_pb2_grpc.AdminStub(channel).GetPolicy(admin_pb2.GetPolicyRequest()))
    assert code is grpc.StatusCode.UNAVAILABLE
