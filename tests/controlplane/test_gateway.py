from __future__ import annotations

from dataclasses import replace

from controlplane.config.settings import Settings
from controlplane.fleet import Fleet, form_fleet
from controlplane.gateway import fills_empty_cluster, gateway_of, is_led_to, pool_clusters, retried
from controlplane.model import NodeLoad, NodeSession, NodeSpec, ServedModel
from controlplane.policy.settings import ContextClass, Policy, Tenant, TenantRules
from headrace_protos.envoy.config.endpoint.v3 import endpoint_pb2
from xds_server.assembly import gateway_snapshot
from xds_server.gateway import PoolCluster
from xds_server.resource import ResourceType
from xds_server.snapshot import Snapshot

POLICY = Policy()
SETTINGS = Settings()
POOL = "llama/full/short/on_demand"
OPEN = f"{POOL}@all"


def node(name: str, port: int, *, sequences: int = 8, health_path: str = "/health") -> NodeSession:
    model = ServedModel("llama", "fp16", 8192, sequences)
    spec = NodeSpec(name, f"10.0.0.1:{port}", (model,), health_path=health_path)
    return NodeSession(f"session-{name}", spec, registered_at=0.0)


def snapshot_of(fleet: Fleet, clusters: tuple[PoolCluster, ...], settings: Settings) -> Snapshot:
    return gateway_snapshot(*gateway_of(fleet, clusters, settings, POLICY.tenants))


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


def sized(name: str, port: int, context: int, *, served: str = "llama", format: str = "fp16") -> NodeSession:  # noqa: A002
    return NodeSession(
        f"session-{name}", NodeSpec(name, f"10.0.0.1:{port}", (ServedModel("llama", format, context, 8, served),)), 0.0
    )


def retries(*sessions: NodeSession, before: Fleet | None = None) -> dict[str, str]:
    """Where the clusters of these nodes are retried, of those that are, by their pools' tier and class."""
    policy = Policy(context_classes=(ContextClass("a", 4096), ContextClass("b", 8192), ContextClass("c")))
    fleet = form_fleet(sessions, {}, policy, 0.0)
    found = retried(pool_clusters(fleet, before), fleet)
    return {_short(cluster.name): _short(cluster.retried_at) for cluster in found if cluster.retried_at}


def _short(name: str) -> str:
    return name.removeprefix("llama/").replace("/on_demand", "")


def test_what_is_refused_is_retried_at_the_largest_context_of_its_tier() -> None:
    small, middle, large = sized("s", 1, 4096), sized("m", 2, 8192), sized("l", 3, 65_536)
    quantized = sized("q", 4, 131_072, format="int4-awq")
    assert retries(small, middle, large, quantized) == {"full/a": "full/c", "full/b": "full/c"}
    assert retries(small, quantized) == {}
    assert retries(small, replace(large, draining=True)) == {}


def test_it_is_retried_only_by_engines_that_know_the_model_by_the_same_name() -> None:
    assert retries(sized("s", 1, 4096), sized("l", 3, 65_536, served="other")) == {}
    both = sized("s", 1, 4096, served="other"), sized("l", 3, 65_536, served="other")
    assert retries(*both) == {"full/a=other": "full/c=other"}


def test_what_needs_settled_nodes_is_retried_at_settled_nodes() -> None:
    small, large = sized("s", 1, 4096), sized("l", 2, 65_536)
    quiescing = [replace(sized(n, p, c), settles_at=60.0) for n, p, c in (("s2", 3, 4096), ("l2", 4, 65_536))]
    assert retries(small, large, quiescing[0]) == {"full/a": "full/c", "full/a@all": "full/c"}
    assert retries(small, large, *quiescing) == {"full/a": "full/c", "full/a@all": "full/c@all"}
    assert retries(small, quiescing[1]) == {}


def test_nothing_is_retried_unless_that_is_configured() -> None:
    fleet = form_fleet([sized("s", 1, 4096), sized("l", 2, 65_536)], {}, POLICY, 0.0)
    plain = snapshot_of(fleet, pool_clusters(fleet), SETTINGS)
    retrying = replace(SETTINGS, gateway=replace(SETTINGS.gateway, retry_refused=True))
    added = snapshot_of(fleet, pool_clusters(fleet), retrying).in_use - plain.in_use
    assert added == {(ResourceType.CLUSTER, "llama/full/short/on_demand@retrying")}


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


# --- quiescence ----------------------------------------------------------------------------------------------------


SINCE = 0.5
NEW = f"{POOL}@500"


def quiescing(name: str, port: int) -> NodeSession:
    return replace(node(name, port), session_id=f"later-{name}", settles_at=60.0, quiesces_since=SINCE)


def clusters(fleet: Fleet, before: Fleet | None = None) -> dict[str, list[int]]:
    """Endpoints' ports by cluster."""
    return {c.name: [e.port for e in c.endpoints] for c in pool_clusters(fleet, before)}


def fleet_of(*sessions: NodeSession, now: float = 0.0) -> Fleet:
    return form_fleet(sessions, {}, POLICY, now)


def test_a_pools_own_cluster_has_no_quiescing_node_and_another_one_has_all() -> None:
    assert clusters(fleet_of(node("a", 1), quiescing("b", 2))) == {POOL: [1], OPEN: [1, 2]}
    assert clusters(fleet_of(node("a", 1), quiescing("b", 2), now=60.0)) == {POOL: [1, 2]}
    assert clusters(fleet_of(node("a", 1), node("b", 2))) == {POOL: [1, 2]}


def test_a_cluster_is_filled_that_was_there_without_endpoints() -> None:
    quiesces, settled = (pool_clusters(fleet_of(quiescing("a", 1), now=now)) for now in (0.0, 60.0))
    assert fills_empty_cluster(settled, quiesces)
    assert not fills_empty_cluster(settled, settled)
    assert not fills_empty_cluster(quiesces, settled)
    assert not fills_empty_cluster(settled, ())  # a new cluster is not used before it is checked


def test_whichever_table_filters_have_no_snapshot_leads_to_a_quiescing_node_by_the_pools_name() -> None:
    before = fleet_of(node("a", 1), node("b", 2))
    after = fleet_of(node("a", 1), quiescing("b", 2))
    assert clusters(after, before)[POOL] == [1]
    assert clusters(after, after)[POOL] == [1]


def test_a_pool_that_quiesces_whole_has_no_endpoint_for_sessions_that_go_on() -> None:
    before, after = fleet_of(node("a", 1)), fleet_of(quiescing("a", 1))
    assert clusters(after, before) == {POOL: [], OPEN: [1], NEW: [1]}
    assert clusters(after, after) == {POOL: [], OPEN: [1], NEW: [1]}


def test_a_node_that_comes_later_is_not_for_sessions_that_began_before_it() -> None:
    later = replace(quiescing("b", 2), quiesces_since=0.75, settles_at=70.0)
    before, after = fleet_of(quiescing("a", 1)), fleet_of(quiescing("a", 1), later)
    assert clusters(after, before) == {POOL: [], OPEN: [1, 2], NEW: [1], f"{POOL}@750": [1, 2]}
    assert clusters(after, after) == {POOL: [], OPEN: [1, 2], f"{POOL}@750": [1, 2]}
    one_settled = fleet_of(quiescing("a", 1), later, now=61.0)
    assert clusters(one_settled, after) == {POOL: [1], OPEN: [1, 2], f"{POOL}@750": [1, 2]}
    assert clusters(one_settled, one_settled) == {POOL: [1], OPEN: [1, 2]}


def test_a_node_that_is_about_to_be_another_one_takes_no_session_that_began_before() -> None:
    leaving = replace(quiescing("a", 1), settles_at=70.0, quiesces_since=10.0)
    before, after = fleet_of(quiescing("a", 1), quiescing("b", 2)), fleet_of(leaving, quiescing("b", 2))
    assert clusters(after, before)[NEW] == [2]
    assert not is_led_to(leaving, pool_clusters(after, before))


def test_the_cluster_of_all_lingers_for_filters_that_still_lead_to_it() -> None:
    before, after = fleet_of(node("a", 1), quiescing("b", 2)), fleet_of(node("a", 1), quiescing("b", 2), now=60.0)
    assert clusters(after, before) == {POOL: [1, 2], OPEN: [1, 2]}
    assert clusters(after, after) == {POOL: [1, 2]}


def test_the_cluster_of_all_outlives_its_last_node_by_one_snapshot() -> None:
    before, gone = fleet_of(quiescing("a", 1)), fleet_of()
    assert clusters(gone, before) == {POOL: [], OPEN: [1], NEW: [1]}
    assert clusters(gone, gone) == {}


def test_a_last_node_that_is_about_to_be_another_one_leaves_a_snapshot_later_than_filters_learn_of_it() -> None:
    before = fleet_of(node("a", 1))
    leaving = fleet_of(replace(node("a", 1), settles_at=60.0, quiesces_since=SINCE))
    assert clusters(leaving, before) == {POOL: [1], OPEN: [1], NEW: [1]}
    assert clusters(leaving, leaving) == {POOL: [], OPEN: [1], NEW: [1]}


def test_a_node_that_came_back_in_another_tier_is_not_kept_for_its_former_pool() -> None:
    before = fleet_of(node("a", 1))
    model = ServedModel("llama", "int4-awq", 8192, 8)
    after = fleet_of(replace(quiescing("a", 1), spec=replace(node("a", 1).spec, models=(model,))))
    quantized = "llama/quantized/short/on_demand"
    assert clusters(after, before) == {quantized: [], f"{quantized}@all": [1], f"{quantized}@500": [1]}


def test_a_session_is_led_to_what_is_not_for_it_until_the_clusters_leave_it_out() -> None:
    leaving = replace(node("a", 1), settles_at=60.0)
    first, second = fleet_of(node("a", 1)), fleet_of(leaving)
    assert is_led_to(leaving, pool_clusters(second, first))
    assert not is_led_to(leaving, pool_clusters(second, second))
    draining = replace(leaving, draining=True)
    assert is_led_to(draining, pool_clusters(second, second))
    assert is_led_to(draining, pool_clusters(fleet_of(draining), second))
    assert not is_led_to(draining, pool_clusters(fleet_of(draining), fleet_of(draining)))


def test_every_cluster_has_a_route_and_the_default_pool_is_its_settled_nodes() -> None:
    settings = replace(SETTINGS, gateway=replace(SETTINGS.gateway, default_pool=POOL))
    fleet = fleet_of(node("a", 1), quiescing("b", 2))
    snapshot = snapshot_of(fleet, pool_clusters(fleet), settings)
    assert snapshot.inconsistencies() == ()
    routes = snapshot.resources[ResourceType.ROUTES]["pools"]
    assert {name for kind, name in routes.needs if kind is ResourceType.CLUSTER} == {POOL, OPEN}


def test_what_envoys_are_told_does_not_change_with_the_nodes_load() -> None:
    sessions = [node("a", 1), node("b", 2)]
    idle = {name: NodeLoad(running=0, waiting=0, reported_at=99.0) for name in ("a", "b")}
    busy = {name: NodeLoad(running=8, waiting=3, kv_cache_use=0.9, reported_at=99.5) for name in ("a", "b")}
    before, after = (form_fleet(sessions, loads, POLICY, 100.0) for loads in (idle, busy))
    assert before != after
    assert gateway_of(before, pool_clusters(before), SETTINGS, POLICY.tenants) == gateway_of(
        after, pool_clusters(after, before), SETTINGS, POLICY.tenants
    )


def test_answers_tell_of_rates_where_anybody_is_held_to_one() -> None:
    def rates(tenants: TenantRules) -> bool:
        return gateway_of(form_fleet([], {}, POLICY, 0.0), (), SETTINGS, tenants)[0].rates

    assert not rates(TenantRules(known=(Tenant("a"),)))
    assert rates(TenantRules(requests_per_minute=60))
    assert rates(TenantRules(known=(Tenant("a"), Tenant("b", tokens_per_minute=1000))))
