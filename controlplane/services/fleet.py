"""headrace.v1.Fleet: shows the view in force, streams the routing table, explains and lists decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

import grpc

from controlplane.errors import UnavailableError, UnknownModelError
from controlplane.fleet import pools_by_node
from controlplane.latest import Latest, changes_of_both
from controlplane.learning.rooms import Room, free_of, share_of
from controlplane.ledger.decisions import Decisions
from controlplane.ledger.query import DecisionQuery
from controlplane.messages import decision_message, node_load_message, node_spec_message, pool_message, timestamp
from controlplane.model import FormatTier, HttpRequest
from controlplane.policy.explain import explain_request
from controlplane.services.refusing import refuse
from controlplane.view import CurrentView, View
from headrace_protos.headrace.v1 import calibration_pb2, decision_pb2, fleet_pb2, fleet_pb2_grpc

SERVICE = "headrace.v1.Fleet"

DEFAULT_DECISIONS = 20
MOST_DECISIONS = 10_000  # some 20 MB
MAX_EXPLAINED_BYTES = 10 * 2**20
LONGEST_WORKER_ID = 200
LONGEST_REPORTED = 500
LONGEST_WORKER_NAME = 40
MOST_REPORTED_MINUTES = 24 * 60


class FleetServicer(fleet_pb2_grpc.FleetServicer):
    """`rooms` is what the fleet has room for, `heartbeat` how often its nodes report, in seconds. `clock` gives Unix
    seconds. `status_of` sums up the process around this service, `calibration_of` what is learned of one model's
    tokens, or of all models' when its name is empty; it raises UnknownModelError. `made` is told how many decisions a
    filter worker has made in a Unix minute, so far."""

    def __init__(
        self,
        current: CurrentView,
        rooms: Latest[tuple[Room, ...]],
        decisions: Decisions,
        status_of: Callable[[], fleet_pb2.GetStatusResponse],
        clock: Callable[[], float],
        *,
        heartbeat: float,
        calibration_of: Callable[[str], calibration_pb2.GetCalibrationResponse],
        made: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self._current = current
        self._rooms = rooms
        self._heartbeat = heartbeat
        self._calibration_of = calibration_of
        self._made = made
        self._decisions = decisions
        self._status_of = status_of
        self._clock = clock
        self._watchers: Counter[str] = Counter()
        self._reported: dict[str, fleet_pb2.WorkerStatus] = {}
        self._table_update = fleet_pb2.WatchRoutingTableResponse()
        self.filter_workers = Latest[frozenset[str]](frozenset())
        """The ids of those that watch the routing table here now."""

    async def ListNodes(  # noqa: N802
        self, request: fleet_pb2.ListNodesRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> fleet_pb2.ListNodesResponse:
        view = await self._view(context)
        return fleet_pb2.ListNodesResponse(nodes=list_nodes(view, request.model, self._clock()))

    async def ListPools(  # noqa: N802
        self, request: fleet_pb2.ListPoolsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> fleet_pb2.ListPoolsResponse:
        view = await self._view(context)
        listed = []
        for pool in view.fleet.pools:
            if request.model in ("", pool.model):
                message = pool_message(pool)
                free = free_of(pool.open_cluster, self._rooms.value)
                if free is not None:
                    message.free = free
                listed.append(message)
        return fleet_pb2.ListPoolsResponse(pools=listed)

    async def WatchRoutingTable(  # noqa: N802
        self, request: fleet_pb2.WatchRoutingTableRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[fleet_pb2.WatchRoutingTableResponse]:
        worker = (request.worker_id or context.peer())[:LONGEST_WORKER_ID]
        self._count_watcher(worker, 1)
        sent, shared = "", None
        try:
            async with aclosing(changes_of_both(self._current, self._rooms)) as changes:
                async for view, rooms in changes:
                    if view is None:
                        continue
                    if view.table.version != sent:
                        sent = view.table.version
                        yield self._update_to(view)
                    if request.credits and rooms is not shared:
                        shared = rooms
                        yield fleet_pb2.WatchRoutingTableResponse(credits=self._credits_of(worker, rooms, view))
        finally:
            self._count_watcher(worker, -1)

    def _update_to(self, view: View) -> fleet_pb2.WatchRoutingTableResponse:
        """One message for all who watch: to copy a table costs more than to write it."""
        if self._table_update.table.version != view.table.version:
            self._table_update = fleet_pb2.WatchRoutingTableResponse(table=view.table_message)
        return self._table_update

    async def ReportWorker(  # noqa: N802
        self, request: fleet_pb2.ReportWorkerRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> fleet_pb2.ReportWorkerResponse:
        worker = request.worker
        if worker.worker_id not in self._watchers:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no such worker watches the routing table here")
        worker.session_store = worker.session_store[:LONGEST_REPORTED]
        worker.session_store_trouble = worker.session_store_trouble[:LONGEST_REPORTED]
        self._reported[worker.worker_id] = worker
        if self._made is not None and request.name:
            for each in request.made[:MOST_REPORTED_MINUTES]:
                self._made(request.name[:LONGEST_WORKER_NAME], each.minute, each.decisions)
        return fleet_pb2.ReportWorkerResponse()

    @property
    def workers(self) -> tuple[fleet_pb2.WorkerStatus, ...]:
        """The last report of each worker that watches here."""
        return tuple(self._reported[worker] for worker in sorted(self._reported))

    def _credits_of(self, worker: str, rooms: tuple[Room, ...], view: View) -> fleet_pb2.Credits:
        """What cannot be divided goes to others each time that all nodes of a room have reported."""
        workers = sorted(view.workers | self.filter_workers.value)
        place, now = workers.index(worker), self._clock()
        return fleet_pb2.Credits(
            rooms=[
                fleet_pb2.Room(
                    clusters=room.clusters,
                    free=None
                    if room.free is None
                    else share_of(room.free, place, len(workers), int(room.first_report // self._heartbeat)),
                    report_age_seconds=max(now - room.mean_report, 0.0),
                )
                for room in rooms
            ]
        )

    def _count_watcher(self, worker: str, more: int) -> None:
        self._watchers[worker] += more
        self._watchers = +self._watchers
        if worker not in self._watchers:
            self._reported.pop(worker, None)
        self.filter_workers.put(frozenset(self._watchers))

    async def Explain(  # noqa: N802
        self, request: fleet_pb2.ExplainRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> fleet_pb2.ExplainResponse:
        view = await self._view(context)
        if len(request.body) > MAX_EXPLAINED_BYTES:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"body: {len(request.body)} bytes; at most {MAX_EXPLAINED_BYTES} can be explained",
            )
        if request.pinned not in {"", *FormatTier}:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"pinned: {request.pinned!r} is no format tier; write one of {', '.join(FormatTier)}",
            )
        decision = explain_request(
            HttpRequest(
                method=request.method or "POST",
                path=request.path or "/v1/chat/completions",
                headers={name.lower(): value for name, value in request.headers.items()},
                body=request.body,
            ),
            view.table,
            lambda cluster: free_of(cluster, self._rooms.value) != 0,
            FormatTier(request.pinned) if request.pinned else None,
        )
        weights = asdict(view.table.policy.selection.weights)
        return fleet_pb2.ExplainResponse(decision=decision_message(decision), weights=weights)

    async def ListDecisions(  # noqa: N802
        self, request: fleet_pb2.ListDecisionsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> fleet_pb2.ListDecisionsResponse:
        listing = await self._decisions.newest(
            query_of(request), min(request.limit or DEFAULT_DECISIONS, MOST_DECISIONS)
        )
        return fleet_pb2.ListDecisionsResponse(
            decisions=[decision_pb2.RecordedDecision.FromString(found.message) for found in listing.found],
            ledger_trouble=listing.trouble,
            unrecorded=await self._decisions.unrecorded(query_of(request)),
        )

    async def FollowDecisions(  # noqa: N802
        self, request: fleet_pb2.FollowDecisionsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[fleet_pb2.FollowDecisionsResponse]:
        query = query_of(request.filter)
        with self._decisions.following(query) as follower:
            shown: set[tuple[int, int]] = set()
            if limit := min(request.filter.limit, MOST_DECISIONS):
                listing = await self._decisions.newest(query, limit)
                shown = {(found.recorded, found.recorder) for found in listing.found}
                yield fleet_pb2.FollowDecisionsResponse(
                    decisions=[
                        decision_pb2.RecordedDecision.FromString(found.message) for found in reversed(listing.found)
                    ],
                    ledger_trouble=listing.trouble,
                )
            async with aclosing(follower.batches()) as batches:
                async for rows, missed in batches:
                    decisions = [
                        decision_pb2.RecordedDecision.FromString(row.message) for row in rows if row.key not in shown
                    ]
                    if decisions or missed:
                        yield fleet_pb2.FollowDecisionsResponse(decisions=decisions, missed=missed)

    async def GetStatus(  # noqa: N802
        self, request: fleet_pb2.GetStatusRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> fleet_pb2.GetStatusResponse:
        return self._status_of()

    async def GetCalibration(  # noqa: N802
        self, request: calibration_pb2.GetCalibrationRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> calibration_pb2.GetCalibrationResponse:
        try:
            return self._calibration_of(request.model)
        except UnknownModelError as error:
            await refuse(context, error)

    async def _view(self, context: grpc.aio.ServicerContext[Any, Any]) -> View:
        view = self._current.value
        if view is None:
            await refuse(
                context, UnavailableError("the fleet has not been read from etcd yet; `headrace status` says why")
            )
        return view


def query_of(request: fleet_pb2.ListDecisionsRequest) -> DecisionQuery:
    return DecisionQuery(
        model=request.model,
        pool=request.pool,
        tier=request.tier,
        tenant=request.tenant,
        verdict=request.verdict,
        reason=request.reason,
        session=request.session,
        request_id=request.request_id,
        status_from=request.status_from,
        status_to=request.status_to,
        since=request.since.ToMicroseconds() if request.HasField("since") else None,
        until=request.until.ToMicroseconds() if request.HasField("until") else None,
        errors_only=request.errors_only,
        misroute=request.misroute,
    )


def list_nodes(view: View, model: str, now: float) -> list[fleet_pb2.Node]:
    """The node sessions of the view that serve `model` (all when empty), ordered by node id. `now` in Unix seconds."""
    pools = pools_by_node(view.fleet)
    ready = {member.session.spec.node_id for member in view.fleet.members if member.ready}
    nodes = []
    for node_id, session in sorted(view.sessions.items()):
        if model and all(model != served.id for served in session.spec.models):
            continue
        load = view.loads.get(node_id)
        nodes.append(
            fleet_pb2.Node(
                session_id=session.session_id,
                spec=node_spec_message(session.spec),
                registered_at=timestamp(session.registered_at),
                draining=session.draining,
                ready=node_id in ready,
                load=node_load_message(load) if load else None,
                load_age_seconds=max(now - load.reported_at, 0.0) if load else 0.0,
                pools=pools.get(node_id, ()),
                quiescing_seconds=max(session.settles_at - now, 0.0),
            )
        )
    return nodes
