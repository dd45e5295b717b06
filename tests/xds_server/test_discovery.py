"""Real Envoys that get their configuration from the server."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import time
from datetime import timedelta

import grpc
import httpx
import pytest

from headrace_protos.envoy.config.cluster.v3 import cluster_pb2
from headrace_protos.envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from support.gateway import Notes, serving, to_pool
from support.waiting import until
from xds_server.assembly import gateway_snapshot
from xds_server.gateway import Endpoint, PoolCluster
from xds_server.resource import ResourceType
from xds_server.server import DiscoveryService
from xds_server.snapshot import InconsistentSnapshotError, Snapshot

BAD = Endpoint("not-an-address", 1)


@pytest.fixture
async def client():
    async with httpx.AsyncClient(timeout=20) as client:
        yield client


async def serves(client, url, engine):
    """Whether a request is answered by the engine of that name."""
    answer = await client.post(url + "/v1/completions", json={})
    return answer.status_code == 200 and answer.headers["engine"] == engine


async def test_traffic_follows_the_snapshot_within_a_second(world, client):
    one, two = await world.engine("one"), await world.engine("two")
    world.publish()
    envoy = await world.envoy()
    url = await envoy.gateway()
    assert (await client.post(url + "/v1/completions", json={})).status_code == 503
    took = []
    for engine in (one, two, one):
        start = time.perf_counter()
        world.publish(PoolCluster("p1", (engine.endpoint,)))
        await until(lambda engine=engine: serves(client, url, engine.name))
        took.append(time.perf_counter() - start)
    assert min(took) < 1  # the least, as others may work meanwhile
    world.publish()
    await until(world.all_hold_it)
    assert (await client.post(url + "/v1/completions", json={})).status_code == 503
    assert await envoy.error_states() == []
    assert (await envoy.get("/clusters")).text.count("p1::") == 0


async def test_a_route_never_leads_to_a_cluster_that_is_not_warm(world, client):
    one = await world.engine("one")
    world.publish(PoolCluster("p0", (one.endpoint,)))
    envoy = await world.envoy()
    url = await envoy.gateway()
    world.filter.decide = lambda _: to_pool("p1")
    stop = False
    codes = set()

    async def load():
        while not stop:
            answer = await client.post(url + "/v1/completions", json={})
            codes.add(answer.json().get("error", {}).get("code") if answer.status_code != 200 else 200)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(load())
        for _ in range(10):
            world.publish(PoolCluster("p0", (one.endpoint,)), PoolCluster("p1", (one.endpoint,)))
            await until(world.all_hold_it)
            world.publish(PoolCluster("p0", (one.endpoint,)))
            await until(world.all_hold_it)
        stop = True
    assert codes == {200, "pool_unknown"}  # and never a pool without a healthy node


async def test_a_request_that_waited_in_the_filter_may_go_to_a_pool_that_came_meanwhile(world, client):
    one = await world.engine("one")
    world.publish()
    envoy = await world.envoy()
    url = await envoy.gateway()
    world.filter.hold = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        request = tasks.create_task(client.post(url + "/v1/completions", json={}))
        await until(lambda: world.filter.seen)
        world.publish(PoolCluster("p1", (one.endpoint,)))
        await until(world.all_hold_it)
        world.filter.hold.set()
    assert request.result().status_code == 200


async def test_an_update_of_a_cluster_neither_breaks_traffic_nor_waits(world, client):
    one = await world.engine("one")
    pool = PoolCluster("p1", (one.endpoint,))
    world.publish(pool)
    envoy = await world.envoy()
    url = await envoy.gateway()
    for path in (None, "/health", None):
        world.publish(dataclasses.replace(pool, health_path=path))
        await until(world.all_hold_it)
        assert await serves(client, url, "one")
    stats = await envoy.stats("init_fetch_timeout|warming_clusters|update_rejected")
    assert {name: value for name, value in stats.items() if value} == {}


async def test_a_bad_resource_is_reported_and_not_resent_and_the_old_one_stays(world, client):
    one = await world.engine("one")
    good = PoolCluster("p1", (one.endpoint,))
    world.publish(good)
    envoy = await world.envoy()
    url = await envoy.gateway()
    await until(world.all_hold_it)
    version = world.service.states()[0].acknowledged_version
    world.publish(dataclasses.replace(good, endpoints=(BAD,)))
    await until(world.notes.rejections)
    world.service.publish(world.service.snapshot)
    assert await serves(client, url, "one")
    (rejection,) = world.notes.rejections()
    (state,) = world.service.states()
    assert (rejection.type, rejection.names) == (ResourceType.ENDPOINTS, ("p1",))
    assert "not-an-address" in rejection.message
    assert (state.rejected, state.last_rejection, state.acknowledged_version) == (1, rejection, version)
    assert await envoy.stat("cluster.p1.update_rejected") == 1
    two = await world.engine("two")
    world.publish(dataclasses.replace(good, endpoints=(two.endpoint,)))
    await until(world.all_hold_it)
    await until(lambda: serves(client, url, "two"))  # once it is healthy


async def test_one_bad_pool_does_not_hold_up_the_others(world, client):
    one = await world.engine("one")
    world.publish()
    envoy = await world.envoy()
    url = await envoy.gateway()
    pools = [PoolCluster(f"p{number}", (one.endpoint,)) for number in range(1, 6)]
    good = gateway_snapshot(world.gateway, [*pools, PoolCluster("bad", (BAD,))])
    messages = [*_clusters_of(good), *_others_of(good)]
    broken = next(m for m in messages if isinstance(m, cluster_pb2.Cluster) and m.name == "p3")
    broken.connect_timeout.FromTimedelta(timedelta(seconds=-1))
    start = time.perf_counter()
    world.service.publish(Snapshot.of(messages))
    for pool in ("p1", "p2", "p4", "p5"):
        world.filter.decide = lambda _, pool=pool: to_pool(pool)
        await until(lambda: serves(client, url, "one"))
    assert time.perf_counter() - start < 10  # a fraction of a second on an idle machine; who waits for `bad` waits on
    alone = [rejection.names for rejection in world.notes.rejections() if len(rejection.names) == 1]
    assert sorted(alone) == [("bad",), ("p3",)]


async def test_envoys_are_led_to_the_same_snapshot_each(world, client):
    one, two = await world.engine("one"), await world.engine("two")
    world.publish(PoolCluster("p1", (one.endpoint,)))
    envoys = [await world.envoy("envoy-1"), await world.envoy("envoy-2")]
    await until(lambda: len(world.service.states()) == 2 and world.all_hold_it())
    assert [state.node_id for state in world.service.states()] == ["envoy-1", "envoy-2"]
    world.publish(PoolCluster("p1", (two.endpoint,)))
    await until(world.all_hold_it)
    for envoy in envoys:
        url = await envoy.gateway()
        await until(lambda url=url: serves(client, url, "two"))
    envoys[0].process.kill()
    await until(lambda: ("disconnected", "envoy-1") in world.notes.events)
    assert [state.node_id for state in world.service.states()] == ["envoy-2"]


async def test_a_hung_envoy_delays_only_itself(world, client):
    one, two = await world.engine("one"), await world.engine("two")
    world.publish(PoolCluster("p1", (one.endpoint,)))
    hung, other = await world.envoy("hung"), await world.envoy("other")
    hung.process.send_signal(signal.SIGSTOP)
    world.publish(PoolCluster("p1", (two.endpoint,)))
    url = await other.gateway()
    await until(lambda: serves(client, url, "two"))
    hung.process.send_signal(signal.SIGCONT)
    await until(world.all_hold_it)


async def test_a_restarted_server_resends_nothing_and_traffic_goes_on(world, client):
    one = await world.engine("one")
    pools = (PoolCluster("p1", (one.endpoint,)), PoolCluster("p2", (one.endpoint,)))
    snapshot = gateway_snapshot(world.gateway, pools)
    first, second = Notes(), Notes()
    service = DiscoveryService(first, "first")
    service.publish(snapshot)
    async with serving(service) as port:
        world.xds_port = port
        envoy = await world.envoy()
        url = await envoy.gateway()
        await until(lambda: service.states()[0].acknowledged_version == snapshot.version)
    for _ in range(5):
        assert await serves(client, url, "one")
    service = DiscoveryService(second, "second")
    service.publish(snapshot)
    async with serving(service, port):
        await until(lambda: service.states() and service.states()[0].acknowledged_version == snapshot.version)
        assert [event for event in second.events if event[0] == "acknowledged"] == []
        assert await serves(client, url, "one")
        service.publish(gateway_snapshot(world.gateway, pools[:1]))
        await until(lambda: service.states()[0].acknowledged_version == service.snapshot.version)
        assert await serves(client, url, "one")
        assert "p2::" not in (await envoy.get("/clusters")).text
    stats = await envoy.stats("init_fetch_timeout|update_rejected")
    assert {name: value for name, value in stats.items() if value} == {}


async def test_an_inconsistent_snapshot_is_refused_and_the_last_one_stays(world):
    world.publish()
    before = world.service.snapshot
    with pytest.raises(InconsistentSnapshotError, match="CLUSTER nowhere"):
        world.service.publish(gateway_snapshot(dataclasses.replace(world.gateway, default_pool="nowhere"), []))
    assert world.service.snapshot is before


async def test_state_of_the_world_is_refused_with_what_to_do(world):
    async with grpc.aio.insecure_channel(f"127.0.0.1:{world.xds_port}") as channel:
        call = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel).StreamAggregatedResources()
        with pytest.raises(grpc.aio.AioRpcError, match="DELTA_GRPC") as refused:
            await call.read()
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_bad_request_ends_the_stream_with_the_reason(world):
    async with grpc.aio.insecure_channel(f"127.0.0.1:{world.xds_port}") as channel:
        call = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel).DeltaAggregatedResources()
        await call.write(discovery_pb2.DeltaDiscoveryRequest(type_url=ResourceType.CLUSTER))
        with pytest.raises(grpc.aio.AioRpcError, match=r"node\.id") as refused:
            await call.read()
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert world.service.states() == ()


def _clusters_of(snapshot):
    for resource in snapshot.resources[ResourceType.CLUSTER].values():
        message = cluster_pb2.Cluster()
        resource.body.Unpack(message)
        yield message


def _others_of(snapshot):
    from headrace_protos.envoy.config.endpoint.v3 import endpoint_pb2
    from headrace_protos.envoy.config.listener.v3 import listener_pb2
    from headrace_protos.envoy.config.route.v3 import route_pb2

    for kind, type_ in (
        (ResourceType.ENDPOINTS, endpoint_pb2.ClusterLoadAssignment),
        (ResourceType.LISTENER, listener_pb2.Listener),
        (ResourceType.ROUTES, route_pb2.RouteConfiguration),
    ):
        for resource in snapshot.resources[kind].values():
            message = type_()
            resource.body.Unpack(message)
            yield message


async def test_once_an_envoy_holds_a_snapshot_its_new_pool_answers_the_first_request(world, client):
    one = await world.engine("one")
    await world.service.until_held()  # no Envoy, nothing to wait for
    world.publish()
    envoy = await world.envoy()
    url = await envoy.gateway()
    for number in range(10):
        pool = f"p{number}"
        world.filter.decide = lambda _, pool=pool: to_pool(pool)
        world.publish(PoolCluster(pool, (one.endpoint,)))
        async with asyncio.timeout(60):
            await world.service.until_held()
        assert (await client.post(url + "/v1/completions", json={})).status_code == 200


async def test_waiting_until_a_snapshot_is_held_goes_on_while_an_envoy_refuses_it(world):
    world.publish()
    await (await world.envoy()).gateway()
    await world.service.until_held()
    world.publish(PoolCluster("p1", (BAD,)))
    await until(lambda: world.notes.rejections)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await world.service.until_held()
    world.publish()
    async with asyncio.timeout(60):
        await world.service.until_held()
