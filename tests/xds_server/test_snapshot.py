from __future__ import annotations

import dataclasses

import pytest

from xds_server.assembly import gateway_snapshot
from xds_server.clusters import ext_proc_cluster, pool_cluster, pool_endpoints, usage_log_cluster
from xds_server.gateway import Endpoint, Gateway, PoolCluster
from xds_server.listener import gateway_listener
from xds_server.resource import Resource, ResourceType
from xds_server.routes import pool_routes
from xds_server.snapshot import InconsistentSnapshotError, Snapshot

GATEWAY = Gateway(ext_proc=("127.0.0.1:1",))
POOL = PoolCluster("p1", (Endpoint("10.0.0.1", 8000), Endpoint("10.0.0.2", 8000)))
OTHER = PoolCluster("p2", (Endpoint("10.0.0.3", 8000),))


def test_what_a_gateway_makes_is_consistent():
    assert gateway_snapshot(GATEWAY, [POOL, OTHER]).inconsistencies() == ()


def test_a_gateway_without_pools_is_consistent():
    assert gateway_snapshot(GATEWAY, []).inconsistencies() == ()


def test_equal_content_has_equal_versions_in_any_order():
    assert (
        gateway_snapshot(GATEWAY, [POOL, OTHER]).version
        == Snapshot.of(
            reversed(
                [
                    *map(pool_cluster, (POOL, OTHER)),
                    *map(pool_endpoints, (POOL, OTHER)),
                    pool_routes(GATEWAY, ["p1", "p2"]),
                    gateway_listener(GATEWAY),
                    ext_proc_cluster(GATEWAY.ext_proc),
                    usage_log_cluster(GATEWAY.ext_proc),
                ]
            )
        ).version
    )


def test_a_change_of_endpoints_changes_the_version_of_these_endpoints_and_the_whole_only():
    before = gateway_snapshot(GATEWAY, [POOL, OTHER])
    after = gateway_snapshot(GATEWAY, [dataclasses.replace(POOL, endpoints=POOL.endpoints[:1]), OTHER])
    assert before.version != after.version
    assert {
        resource.key
        for kind, named in after.resources.items()
        for name, resource in named.items()
        if resource.version != before.resources[kind][name].version
    } == {(ResourceType.ENDPOINTS, "p1")}


def test_routes_are_the_same_whatever_order_the_pools_come_in():
    assert Resource.of(pool_routes(GATEWAY, ["a", "b", "c"])).version == (
        Resource.of(pool_routes(GATEWAY, ["c", "a", "b"])).version
    )


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([pool_cluster(POOL)], "CLUSTER p1 needs ENDPOINTS p1"),
        ([gateway_listener(GATEWAY)], "LISTENER gateway needs ROUTES pools"),
        ([gateway_listener(GATEWAY)], "LISTENER gateway needs CLUSTER headrace-ext-proc"),
        ([pool_routes(GATEWAY, ["p1"])], "ROUTES pools needs CLUSTER p1"),
        ([pool_routes(dataclasses.replace(GATEWAY, default_pool="p9"), [])], "ROUTES pools needs CLUSTER p9"),
    ],
)
def test_a_reference_to_what_is_not_there_is_an_inconsistency(messages, fault):
    assert f"{fault}, which is not in the snapshot" in Snapshot.of(messages).inconsistencies()


def test_two_resources_of_one_name_are_refused():
    with pytest.raises(InconsistentSnapshotError, match="ENDPOINTS p1: defined twice"):
        Snapshot.of([pool_endpoints(POOL), pool_endpoints(POOL)])


def test_a_resource_without_a_name_is_refused():
    with pytest.raises(InconsistentSnapshotError, match="CLUSTER: a resource has no name"):
        Snapshot.of([pool_cluster(PoolCluster("", ()))])
