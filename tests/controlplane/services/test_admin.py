"""Operators replace the policy and override loads for all control planes at once, through a real etcd."""

from __future__ import annotations

import math
import time
from typing import Any

import grpc
import pytest

from controlplane.config.load import load_policy
from controlplane.messages import node_spec_message
from controlplane.model import Override, Pool
from controlplane.policy.settings import Policy
from controlplane.services.admin import AdminServicer
from controlplane.view import CurrentView
from headrace_protos.headrace.v1 import admin_pb2, admin_pb2_grpc, fleet_pb2, registry_pb2
from support.grpc_server import serving
from support.nodes import node
from support.services import Services, status_of
from support.waiting import until

ONE_CLASS = "context_classes: [{name: all}]\n"
FULL = "llama/full/short/on_demand"
INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND


def asked(pool: str = FULL, *, duration_seconds: float = 60, **signals: Any) -> admin_pb2.SetOverrideRequest:
    return admin_pb2.SetOverrideRequest(pool=pool, duration_seconds=duration_seconds, **signals)


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


async def test_a_policy_that_says_nothing_of_tenants_does_not_let_those_go_that_there_are(services: Services) -> None:
    named = "tenants: {header: x-tenant}\n"
    await services.admin.SetPolicy(admin_pb2.SetPolicyRequest(policy_yaml=named))

    async def is_set() -> bool:
        return (await policy(services))[0].tenants.header is not None

    await until(is_set)
    code, details = await status_of(services.admin.SetPolicy(admin_pb2.SetPolicyRequest(policy_yaml=ONE_CLASS)))
    assert code is INVALID
    assert "headrace policy get" in details
    for stated in (named + ONE_CLASS, "tenants: {}\n" + ONE_CLASS):
        await services.admin.SetPolicy(admin_pb2.SetPolicyRequest(policy_yaml=stated))


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

    admin = AdminServicer(CurrentView(None), store, Unused(), Unused(), time.time)
    async with serving(lambda server: admin_pb2_grpc.add_AdminServicer_to_server(admin, server)) as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        for call in (
            stub.GetPolicy(admin_pb2.GetPolicyRequest()),
            stub.ListOverrides(admin_pb2.ListOverridesRequest()),
            stub.SetOverride(admin_pb2.SetOverrideRequest(pool=FULL, waiting=1, duration_seconds=1)),
            stub.ClearOverride(admin_pb2.ClearOverrideRequest(pool=FULL)),
        ):
            code, _ = await status_of(call)
            assert code is grpc.StatusCode.UNAVAILABLE


class Unused:
    """Overrides that must not be asked for."""

    async def put_override(self, pool: str, override: Override) -> None:
        raise AssertionError(pool)

    async def delete_override(self, pool: str) -> bool:
        raise AssertionError(pool)


# --- overrides -----------------------------------------------------------------------------------------------------


@pytest.fixture
async def registered(services: Services) -> Services:
    """With one node, so that FULL is a pool."""
    await services.registry.Register(registry_pb2.RegisterRequest(node=node_spec_message(node(format="fp16"))))
    await until(lambda: pool_of(services))
    return services


def pool_of(services: Services) -> Pool | None:
    view = services.current.value
    return next((pool for pool in view.fleet.pools if pool.name == FULL), None) if view else None


async def overrides(services: Services) -> list[admin_pb2.Override]:
    return list((await services.admin.ListOverrides(admin_pb2.ListOverridesRequest())).overrides)


async def test_an_override_is_in_force_until_it_is_cleared(registered: Services) -> None:
    request = admin_pb2.SetOverrideRequest(pool=FULL, waiting=100, kv_cache_use=0.5, duration_seconds=600)
    began = time.time()
    answer = (await registered.admin.SetOverride(request)).override
    assert (answer.pool, answer.waiting, answer.kv_cache_use, answer.seconds_left) == (FULL, 100, 0.5, 600)
    assert not answer.HasField("running")
    assert began + 599 < answer.expires_at.ToNanoseconds() / 1e9 < time.time() + 601

    async def is_listed() -> list[admin_pb2.Override]:
        return await overrides(registered)

    (listed,) = await until(is_listed)
    assert (listed.pool, listed.waiting, listed.HasField("running")) == (FULL, 100, False)
    assert 0 < listed.seconds_left <= 600
    (pool,) = (await registered.fleet.ListPools(fleet_pb2.ListPoolsRequest())).pools
    assert (pool.load.waiting, pool.load.running, pool.load.kv_cache_use) == (100, 0, 0.5)
    assert list(pool.overridden) == ["waiting", "kv_cache_use"]

    await registered.admin.ClearOverride(admin_pb2.ClearOverrideRequest(pool=FULL))

    async def is_cleared() -> bool:
        return not await overrides(registered)

    await until(is_cleared)
    pool_now = pool_of(registered)
    assert pool_now is not None
    assert pool_now.overridden == ()


@pytest.mark.parametrize(
    ("request_", "code", "faults"),
    [
        (
            asked(),
            INVALID,
            ["no signal is given; give at least one of waiting, running, kv_cache_use, sla_violation_rate"],
        ),
        (asked(waiting=-1), INVALID, ["waiting: -1 is not from 0 to 100000"]),
        (asked(kv_cache_use=1.1), INVALID, ["kv_cache_use: 1.1 is no share from 0 to 1"]),
        (asked(kv_cache_use=math.nan), INVALID, ["kv_cache_use: nan is no share from 0 to 1"]),
        (asked(running=0, duration_seconds=0), INVALID, ["duration_seconds: 0 is not more than 0 and at most 86400"]),
        (
            asked(running=0, duration_seconds=86400.5),
            INVALID,
            ["duration_seconds: 86400.5 is not more than 0 and at most 86400"],
        ),
        (
            asked(running=0, duration_seconds=math.nan),
            INVALID,
            ["duration_seconds: nan is not more than 0 and at most 86400"],
        ),
        (
            asked(waiting=-1, running=-2, kv_cache_use=-0.5, duration_seconds=-1),
            INVALID,
            [
                "waiting: -1 is not from 0 to 100000",
                "running: -2 is not from 0 to 100000",
                "kv_cache_use: -0.5 is no share from 0 to 1",
                "duration_seconds: -1 is not more than 0 and at most 86400",
            ],
        ),
        (asked("no/such", waiting=1), NOT_FOUND, [f"there is no pool 'no/such'; there are: {FULL}"]),
        (asked("", waiting=1), NOT_FOUND, [f"there is no pool ''; there are: {FULL}"]),
    ],
)
async def test_an_override_that_cannot_be_is_refused_with_every_fault(
    registered: Services, request_: admin_pb2.SetOverrideRequest, code: grpc.StatusCode, faults: list[str]
) -> None:
    assert await status_of(registered.admin.SetOverride(request_)) == (code, "\n".join(faults))
    assert await overrides(registered) == []


async def test_the_longest_override_and_idle_signals_are_accepted(registered: Services) -> None:
    request = asked(waiting=0, running=0, kv_cache_use=0.0, duration_seconds=86400)
    answer = (await registered.admin.SetOverride(request)).override
    assert [answer.HasField(name) for name in ("waiting", "running", "kv_cache_use")] == [True, True, True]


async def test_clearing_what_is_not_overridden_names_what_is(registered: Services) -> None:
    code, details = await status_of(registered.admin.ClearOverride(admin_pb2.ClearOverrideRequest(pool="x")))
    assert (code, details) == (NOT_FOUND, "nothing overrides the load of 'x'; there are: none")


async def test_without_etcd_nothing_can_be_overridden(registered: Services) -> None:
    await registered.etcd.kill()
    for call in (
        registered.admin.SetOverride(asked(waiting=1)),
        registered.admin.ClearOverride(admin_pb2.ClearOverrideRequest(pool=FULL)),
    ):
        code, details = await status_of(call)
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "etcd" in details
    assert await overrides(registered) == []
