from __future__ import annotations

from dataclasses import replace

from controlplane.config.settings import Settings
from controlplane.fleet import Fleet, form_fleet
from controlplane.gateway import pool_clusters, snapshot_of
from controlplane.model import NodeSession, NodeSpec, ServedModel
from controlplane.policy.settings import Policy
from headrace_protos.envoy.config.endpoint.v3 import endpoint_pb2
from xds_server.resource import ResourceType
from xds_server.snapshot import Snapshot

POLICY = Policy()
SETTINGS = Settings()


def node(name: str, port: int, *, sequences: int = 8, health_path: str = "/health") -> NodeSession:
    model = ServedModel("llama", "fp16", 8192, sequences)
    spec = NodeSpec(name, f"10.0.0.1:{port}", (model,), health_path=health_path)
    return NodeSession(f"session-{name}", spec, registered_at=0.0)


def published(fleet: Fleet, before: Fleet | None) -> Snapshot:
    return snapshot_of(fleet, pool_clusters(fleet, before), SETTINGS)


def endpoints(snapshot: Snapshot) -> list[int]:
    resource = snapshot.resources[ResourceType.ENDPOINTS].get("llama/full/short/on_demand")
    assignment = endpoint_pb2.ClusterLoadAssignment()
    if resource is not None:
        resource.body.Unpack(assignment)
    return [e.endpoint.address.socket_address.port_value for group in assignment.endpoints for e in group.lb_endpoints]


def test_a_pool_that_lost_its_last_node_keeps_it_for_one_more_snapshot() -> None:
    full = form_fleet([node("a", 1)], {}, POLICY, 0.0)
    empty = form_fleet([], {}, POLICY, 0.0)
    assert endpoints(published(full, None)) == [1]
    assert endpoints(published(empty, full)) == [1]
    assert endpoints(published(empty, empty)) == []


def test_a_pool_whose_last_node_drains_keeps_it_for_one_more_snapshot() -> None:
    before = form_fleet([node("a", 1)], {}, POLICY, 0.0)
    drained = form_fleet([replace(node("a", 1), draining=True)], {}, POLICY, 0.0)
    assert endpoints(published(drained, before)) == [1]
    assert endpoints(published(drained, drained)) == []


def test_a_node_that_leaves_others_behind_goes_at_once() -> None:
    before = form_fleet([node("a", 1), node("b", 2)], {}, POLICY, 0.0)
    after = form_fleet([node("b", 2)], {}, POLICY, 0.0)
    assert endpoints(published(after, before)) == [2]


def test_endpoints_weigh_by_the_sequences_that_they_run() -> None:
    fleet = form_fleet([node("a", 1, sequences=8), node("b", 2, sequences=64)], {}, POLICY, 0.0)
    (cluster,) = pool_clusters(fleet)
    assert [(e.port, e.weight) for e in cluster.endpoints] == [(1, 125), (2, 1000)]


def test_where_engines_differ_in_their_health_path_a_connection_is_the_check() -> None:
    fleet = form_fleet([node("a", 1), node("b", 2, health_path="/")], {}, POLICY, 0.0)
    (cluster,) = pool_clusters(fleet)
    assert cluster.health_path is None


def test_a_default_pool_without_a_node_does_not_keep_the_rest_from_being_published() -> None:
    settings = replace(SETTINGS, gateway=replace(SETTINGS.gateway, default_pool="gone"))
    fleet = form_fleet([node("a", 1)], {}, POLICY, 0.0)
    snapshot = snapshot_of(fleet, pool_clusters(fleet), settings)
    assert snapshot.inconsistencies() == ()
