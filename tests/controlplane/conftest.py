"""An etcd, and a client of it, for whoever asks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from controlplane.etcd.client import EtcdClient
from support.etcd import RunningEtcd, running_etcd


@pytest.fixture
async def etcd() -> AsyncIterator[RunningEtcd]:
    async with running_etcd() as etcd:
        yield etcd


@pytest.fixture
async def client(etcd: RunningEtcd) -> AsyncIterator[EtcdClient]:
    async with etcd.client() as client:
        yield client
