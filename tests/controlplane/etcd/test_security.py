"""TLS, client certificates, users and passwords, against a real etcd."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from controlplane.errors import ConfigurationError, UnavailableError
from controlplane.etcd.client import EtcdClient
from controlplane.etcd.connection import EtcdAccess
from controlplane.etcd.errors import EtcdRefusedError
from headrace_protos.etcd import rpc_pb2, rpc_pb2_grpc
from support.certificates import Authority
from support.etcd import RunningEtcd, running_etcd


async def test_mutual_tls_lets_in_who_has_a_certificate_and_nobody_else(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server_certificate, server_key = authority.issue("server")
    certificate, key = authority.issue("client")
    arguments = (
        *("--cert-file", str(server_certificate), "--key-file", str(server_key)),
        *("--trusted-ca-file", str(authority.file), "--client-cert-auth"),
    )
    async with running_etcd(arguments=arguments, scheme="https") as etcd:
        allowed = EtcdAccess((f"https://{etcd.endpoint}",), ca_file=authority.file, cert_file=certificate, key_file=key)
        async with EtcdClient(allowed) as client:
            revision = await client.put("/k", b"v")
            async with aclosing(client.watch("/k", revision)) as watch:
                assert (await anext(watch)).revision == revision
        stranger = replace(allowed, cert_file=None, key_file=None, call_timeout=0.5)
        async with EtcdClient(stranger) as client:
            with pytest.raises(UnavailableError, match="TLS files"):
                await client.get("/k")


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (EtcdAccess(()), "no endpoint"),
        (EtcdAccess(("h:1",), cert_file=Path("c.pem")), "needs both"),
        (EtcdAccess(("h:1",), ca_file=Path("/nowhere/ca.pem")), "cannot read /nowhere/ca.pem: No such file"),
    ],
)
async def test_settings_that_cannot_work_are_refused_at_once(settings: EtcdAccess, fault: str) -> None:
    with pytest.raises(ConfigurationError, match=fault):
        async with EtcdClient(settings):
            pass


def test_the_password_is_not_shown() -> None:
    assert "hunter2" not in repr(EtcdAccess(("h:1",), user="root", password="hunter2"))


@asynccontextmanager
async def etcd_with_users(*arguments: str) -> AsyncIterator[RunningEtcd]:
    """An etcd that lets in root with the password `secret`."""
    async with running_etcd(arguments=arguments) as etcd:
        async with grpc.aio.insecure_channel(etcd.endpoint) as channel:
            auth = rpc_pb2_grpc.AuthStub(channel)
            await auth.RoleAdd(rpc_pb2.AuthRoleAddRequest(name="root"))
            for user in ("root", "nobody"):
                await auth.UserAdd(rpc_pb2.AuthUserAddRequest(name=user, password="secret"))
            await auth.UserGrantRole(rpc_pb2.AuthUserGrantRoleRequest(user="root", role="root"))
            await auth.AuthEnable(rpc_pb2.AuthEnableRequest())
        yield etcd


def as_user(etcd: RunningEtcd, user: str, password: str) -> EtcdClient:
    return EtcdClient(replace(etcd.settings, user=user, password=password))


async def test_a_client_logs_in_again_when_etcd_has_forgotten_its_token() -> None:
    async with etcd_with_users() as etcd, as_user(etcd, "root", "secret") as client:
        first = await client.put("/k", b"1")
        async with aclosing(client.watch("/k", first)) as watch:
            assert (await anext(watch)).revision == first
            # Simple tokens live in etcd's memory only.
            await etcd.kill()
            await etcd.start_again()
            last = await client.put("/k", b"2")
            assert (await anext(watch)).revision == last
            await client.renew_lease(await client.grant_lease(5))


async def test_a_wrong_password_is_refused_without_being_shown() -> None:
    async with etcd_with_users() as etcd, as_user(etcd, "root", "wrong-one") as client:
        with pytest.raises(EtcdRefusedError, match=r"refuses the login of user 'root'.*check the user") as caught:
            await client.get("/k")
        assert "wrong-one" not in str(caught.value)


async def test_a_user_without_rights_is_refused_and_not_kept_waiting() -> None:
    async with etcd_with_users() as etcd, as_user(etcd, "nobody", "secret") as client:
        with pytest.raises(EtcdRefusedError, match="permission denied"):
            await client.get("/k")
        async with aclosing(client.watch("/k", 1)) as watch:
            with pytest.raises(EtcdRefusedError, match="permission denied"):
                await anext(watch)


async def test_without_a_user_an_etcd_that_wants_one_refuses() -> None:
    async with etcd_with_users() as etcd, etcd.client() as client:
        with pytest.raises(EtcdRefusedError, match="user name is empty"):
            await client.get("/k")


async def test_a_user_is_no_harm_where_etcd_asks_for_none(etcd: RunningEtcd) -> None:
    async with as_user(etcd, "root", "secret") as client:
        await client.put("/k", b"v")
