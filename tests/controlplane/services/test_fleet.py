"""What the Fleet service shows of a real view, and to whom it streams the routing table."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import grpc
import pytest

from controlplane.config.load import policy_from_json
from controlplane.latest import Latest
from controlplane.ledger.decisions import Decisions
from controlplane.ledger.encoding import ended_of
from controlplane.messages import node_spec_message
from controlplane.policy.settings import Policy
from controlplane.services.fleet import LONGEST_REPORTED, MAX_EXPLAINED_BYTES, FleetServicer
from controlplane.view import CurrentView
from headrace_protos.headrace.v1 import calibration_pb2, decision_pb2, fleet_pb2, fleet_pb2_grpc, node_pb2, registry_pb2
from support.grpc_server import serving
from support.nodes import node
from support.services import Services, status_of
from support.waiting import until

FULL, QUANTIZED = "llama/full/short/on_demand", "llama/quantized/short/on_demand"


async def register(services: Services, *nodes: tuple[str, str, str]) -> None:
    """Each as node id, address and format; returns once they are in the view."""
    for node_id, address, format_ in nodes:
        spec = node_spec_message(node(node_id, address, format_))
        await services.registry.Register(registry_pb2.RegisterRequest(node=spec))
    wanted = {node_id for node_id, _, _ in nodes}
    await until(lambda: services.current.value is not None and wanted <= set(services.current.value.sessions))


BOTH = (("b", "10.0.0.2:8000", "int4-awq"), ("a", "10.0.0.1:8000", "fp16"))


async def test_nodes_and_pools_are_listed_in_order_and_by_model(services: Services) -> None:
    await register(services, *BOTH)
    nodes = (await services.fleet.ListNodes(fleet_pb2.ListNodesRequest())).nodes
    assert [each.spec.node_id for each in nodes] == ["a", "b"]
    pools = (await services.fleet.ListPools(fleet_pb2.ListPoolsRequest())).pools
    assert [pool.name for pool in pools] == [FULL, QUANTIZED]
    assert not (await services.fleet.ListNodes(fleet_pb2.ListNodesRequest(model="other"))).nodes
    assert not (await services.fleet.ListPools(fleet_pb2.ListPoolsRequest(model="other"))).pools
    assert len((await services.fleet.ListPools(fleet_pb2.ListPoolsRequest(model="llama"))).pools) == 2


async def test_a_watcher_gets_the_table_and_each_change_once(services: Services) -> None:
    watch = services.fleet.WatchRoutingTable(fleet_pb2.WatchRoutingTableRequest(worker_id="w"))
    first = (await watch.read()).table
    assert not first.pools
    assert policy_from_json(first.policy_json) == Policy()
    assert services.fleet_servicer.filter_workers.value == {"w"}
    await register(services, BOTH[0])
    second = (await watch.read()).table
    assert [pool.name for pool in second.pools] == [QUANTIZED]
    assert first.version != second.version
    watch.cancel()
    await until(lambda: not services.fleet_servicer.filter_workers.value)


async def test_a_worker_that_watches_twice_counts_until_both_have_left(services: Services) -> None:
    request = fleet_pb2.WatchRoutingTableRequest(worker_id="w")
    one, other = services.fleet.WatchRoutingTable(request), services.fleet.WatchRoutingTable(request)
    nameless = services.fleet.WatchRoutingTable(fleet_pb2.WatchRoutingTableRequest())
    for watch in (one, other, nameless):
        await watch.read()
    assert len(services.fleet_servicer.filter_workers.value) == 2
    one.cancel()
    nameless.cancel()
    await until(lambda: services.fleet_servicer.filter_workers.value == {"w"})
    other.cancel()
    await until(lambda: not services.fleet_servicer.filter_workers.value)


async def test_what_a_worker_reports_is_known_as_long_as_it_watches(services: Services) -> None:
    worker = fleet_pb2.WorkerStatus(worker_id="w", session_store="redis://s", session_store_trouble="x" * 10_000)
    made = [fleet_pb2.MadeDecisions(minute=5, decisions=7)]
    request = fleet_pb2.ReportWorkerRequest(worker=worker, name="n", made=made)
    code, _ = await status_of(services.fleet.ReportWorker(request))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    watch = services.fleet.WatchRoutingTable(fleet_pb2.WatchRoutingTableRequest(worker_id="w"))
    await watch.read()
    await services.fleet.ReportWorker(request)
    (known,) = services.fleet_servicer.workers
    assert (known.session_store, known.session_store_trouble) == ("redis://s", "x" * LONGEST_REPORTED)
    assert services.made == [("n", 5, 7)]
    watch.cancel()
    await until(lambda: not services.fleet_servicer.workers)


async def test_a_request_is_explained_by_the_table_in_force(services: Services) -> None:
    await register(services, *BOTH)
    body = json.dumps({"model": "llama", "messages": [{"role": "user", "content": "Write JSON."}], "temperature": 0})
    answer = await services.fleet.Explain(fleet_pb2.ExplainRequest(body=body.encode()))
    assert answer.decision.pool == FULL
    assert answer.decision.sensitivity.contributions
    assert {alternative.pool for alternative in answer.decision.alternatives} == {FULL, QUANTIZED}


async def test_a_request_is_explained_as_of_a_session_that_is_pinned(services: Services) -> None:
    await register(services, *BOTH)
    body = json.dumps({"model": "llama", "messages": [], "temperature": 0}).encode()
    answer = await services.fleet.Explain(fleet_pb2.ExplainRequest(body=body, pinned="quantized"))
    assert (answer.decision.pool, answer.decision.pinned) == (QUANTIZED, "quantized")
    code, details = await status_of(services.fleet.Explain(fleet_pb2.ExplainRequest(body=body, pinned="int4")))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details == "pinned: 'int4' is no format tier; write one of full, quantized"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
async def test_a_body_that_cannot_be_routed_is_explained_as_a_refusal(services: Services, body: bytes) -> None:
    answer = await services.fleet.Explain(fleet_pb2.ExplainRequest(body=body))
    assert answer.decision.action == "reject"
    assert answer.decision.refusal.status in {400, 404}


async def test_a_body_beyond_the_bound_is_not_explained(services: Services) -> None:
    code, details = await status_of(
        services.fleet.Explain(fleet_pb2.ExplainRequest(body=bytes(MAX_EXPLAINED_BYTES + 1)))
    )
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details == "body: 10485761 bytes; at most 10485760 can be explained"


async def test_decisions_are_listed_newest_first(services: Services) -> None:
    for number in range(30):
        services.decisions.record(ended_of(decision_pb2.RecordedDecision(request_id=str(number))))
    listed = (await services.fleet.ListDecisions(fleet_pb2.ListDecisionsRequest())).decisions
    assert [each.request_id for each in listed] == [str(number) for number in range(29, 9, -1)]
    assert len((await services.fleet.ListDecisions(fleet_pb2.ListDecisionsRequest(limit=2**32 - 1))).decisions) == 30


async def test_decisions_are_filtered_and_followed_without_gap_or_repetition(services: Services) -> None:
    def record(number: int, **fields: str) -> None:
        decision = decision_pb2.Decision(**fields)
        services.decisions.record(ended_of(decision_pb2.RecordedDecision(request_id=str(number), decision=decision)))

    for number in range(4):
        record(number, tenant="name:a" if number % 2 else "name:b")
    only_a = fleet_pb2.ListDecisionsRequest(tenant="name:a", limit=1)
    listed = await services.fleet.ListDecisions(only_a)
    assert [each.request_id for each in listed.decisions] == ["3"]
    assert not listed.ledger_trouble
    stream = services.fleet.FollowDecisions(fleet_pb2.FollowDecisionsRequest(filter=only_a))
    assert [each.request_id for each in (await stream.read()).decisions] == ["3"]
    for number in range(4, 8):
        record(number, tenant="name:a" if number % 2 else "name:b")
    followed: list[str] = []
    while len(followed) < 2:
        followed += [each.request_id for each in (await stream.read()).decisions]
    assert followed == ["5", "7"]
    stream.cancel()


async def test_before_the_fleet_is_known_only_the_status_is_told() -> None:
    fleet = FleetServicer(
        CurrentView(None),
        Latest(()),
        Decisions(1, 1, lambda: 0.0),
        lambda: fleet_pb2.GetStatusResponse(version="v"),
        lambda: 0.0,
        heartbeat=1.0,
        calibration_of=lambda _: calibration_pb2.GetCalibrationResponse(),
    )
    async with serving(lambda server: fleet_pb2_grpc.add_FleetServicer_to_server(fleet, server)) as channel:
        stub = fleet_pb2_grpc.FleetStub(channel)
        for call in (
            stub.ListNodes(fleet_pb2.ListNodesRequest()),
            stub.ListPools(fleet_pb2.ListPoolsRequest()),
            stub.Explain(fleet_pb2.ExplainRequest()),
        ):
            code, details = await status_of(call)
            assert code is grpc.StatusCode.UNAVAILABLE
            assert "`headrace status` says why" in details
        assert (await stub.GetStatus(fleet_pb2.GetStatusRequest())).version == "v"


# --- credits -------------------------------------------------------------------------------------------------------


async def report(services: Services, node_id: str, running: int) -> None:
    """One load report of a registered node of 16 sequences."""
    view = services.current.value
    assert view is not None
    session = view.sessions[node_id].session_id
    load = node_pb2.LoadReport(running=running, healthy=True)
    heartbeat = services.registry.Heartbeat()
    await heartbeat.write(registry_pb2.HeartbeatRequest(session_id=session, load=load))
    await heartbeat.read()
    await heartbeat.done_writing()


def watching(services: Services, worker: str, *, credits_: bool = True) -> Any:
    request = fleet_pb2.WatchRoutingTableRequest(worker_id=worker, credits=credits_)
    return services.fleet.WatchRoutingTable(request)


async def until_share(watch: Any, free: int | None) -> None:
    """Reads until the share of the one room that there is, is so; None stands for one that is not known."""
    async with asyncio.timeout(60):
        while True:
            update = await watch.read()
            if update.HasField("credits") and update.credits.rooms:
                (room,) = update.credits.rooms
                assert list(room.clusters) == [FULL]
                assert 0 <= room.report_age_seconds < 6
                if (room.free if room.HasField("free") else None) == free:
                    return


async def test_free_room_is_divided_among_the_workers_that_watch(services: Services) -> None:
    await register(services, BOTH[1])
    one = watching(services, "one")
    await until_share(one, None)  # the node has not reported yet
    await report(services, "a", 6)
    await until_share(one, 10)
    (pool,) = (await services.fleet.ListPools(fleet_pb2.ListPoolsRequest())).pools
    assert pool.free == 10
    other = watching(services, "other")
    await report(services, "a", 6)
    await until_share(one, 5)
    await until_share(other, 5)
    other.cancel()
    await until(lambda: services.fleet_servicer.filter_workers.value == {"one"})
    await report(services, "a", 6)
    await until_share(one, 10)
    one.cancel()


async def test_workers_of_other_control_planes_have_their_share_too(services: Services) -> None:
    await register(services, BOTH[1])
    one = watching(services, "one")
    await until_share(one, None)
    async with services.etcd.client() as client:
        await client.put("/headrace/v1/test/workers/elsewhere", b"another control plane")
        await report(services, "a", 6)
        await until_share(one, 5)
        await client.delete("/headrace/v1/test/workers/elsewhere")
        await report(services, "a", 6)
        await until_share(one, 10)
    one.cancel()


async def test_a_worker_that_knows_no_credits_gets_tables_alone(services: Services) -> None:
    old, new = watching(services, "old", credits_=False), watching(services, "new")
    await register(services, BOTH[1])
    for running in (6, 8):
        await report(services, "a", running)
        await until_share(new, (16 - running) // 2)
    while not (update := await old.read()).table.pools or update.table.pools[0].load.running != 8:
        assert update.HasField("table")
        assert not update.HasField("credits")
    for watch in (old, new):
        watch.cancel()


async def test_explaining_says_that_a_full_pool_is_waited_for(services: Services) -> None:
    await register(services, BOTH[1])
    await report(services, "a", 16)

    async def waits() -> bool:
        body = json.dumps({"model": "llama", "messages": []}).encode()
        decision = (await services.fleet.Explain(fleet_pb2.ExplainRequest(body=body))).decision
        return (decision.action, list(decision.waits_for)) == ("queue", [FULL])

    await until(waits)
