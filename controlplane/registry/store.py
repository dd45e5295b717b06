"""What changes the fleet: nodes that register, report and leave, and what operators set. `following` shows it."""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from controlplane.errors import AddressTakenError, HeadraceError, UnavailableError, UnknownSessionError
from controlplane.etcd.client import EtcdClient
from controlplane.etcd.errors import LeaseNotFoundError
from controlplane.etcd.records import Record, delete, exists, get, mod_revision_is, put
from controlplane.model import NodeLoad, NodeSession, NodeSpec, Override
from controlplane.policy.settings import FormatRules, QuiescenceRules
from controlplane.registry.codec import LoadRecord, decode_session, encode
from controlplane.registry.former import Ending, LastSessions, Quiescence, quiescence_of, takes_the_same_requests
from controlplane.registry.keys import Keys
from controlplane.registry.validate import check_load, checked
from headrace_protos.etcd import rpc_pb2

logger = logging.getLogger(__name__)

# Each lost race means that another change was made; a node that loses so many is one of many of the same name.
_MOST_RACES = 20


async def _nobody_is_led_here(*_: object) -> None:
    """For where there is nobody to wait for."""


@dataclass(slots=True)
class _Lease:
    """A live session's lease; `renewed_at` is when its last renewal was asked for."""

    node_id: str
    lease_id: int
    renewed_at: float


class NodeStore:
    """Node sessions in etcd. Any number of control planes may share them: a node may turn to another at any time.

    `formats` gives the quantization formats that the fleet knows now; `lease_seconds` is for how long a node is kept
    that sends no heartbeat; `ours` are addresses of Headrace's own ports, where no engine can be. `quiescence` gives
    the rules in force. Before a node registers anew, `until_heard` waits until those who lead requests hear of changes,
    and `until_left` until what is not for a session any more, as it is then, is not sent to it; both for a bounded
    time. Every method raises UnavailableError when etcd does not answer. `known` gives the node sessions that this
    process sees in etcd, and those that it gives time to come back after an outage; None before it has seen any state.

    `clock` gives monotonic seconds, `wall_clock` Unix seconds.
    """

    def __init__(
        self,
        client: EtcdClient,
        keys: Keys,
        *,
        formats: Callable[[], FormatRules],
        lease_seconds: int,
        quiescence: Callable[[], QuiescenceRules] = QuiescenceRules,
        until_heard: Callable[[], Awaitable[None]] = _nobody_is_led_here,
        until_left: Callable[[NodeSession], Awaitable[None]] = _nobody_is_led_here,
        known: Callable[[], Iterable[NodeSession] | None] = tuple,
        ours: Collection[str] = (),
        new_session_id: Callable[[], str] = lambda: secrets.token_hex(16),
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._keys = keys
        self._formats = formats
        self._quiescence = quiescence
        self._until_heard = until_heard
        self._until_left = until_left
        self._last = LastSessions(client, keys, quiescence)
        self._known = known
        self._latest_since = 0.0
        self._ours = frozenset(ours)
        # etcd looks for leases that have run out twice a second: a second less, and nodes leave within the time told.
        self._lease_seconds = max(1, lease_seconds - 1)
        self._new_session_id = new_session_id
        self._clock = clock
        self._wall_clock = wall_clock
        self._leases: dict[str, _Lease] = {}

    # --- nodes -----------------------------------------------------------------------------------------------------

    async def register(self, spec: NodeSpec) -> NodeSession:
        """Starts a node session; it replaces the node's former one in the same instant.

        Raises RegistrationError with every fault of the description, AddressTakenError when another live node holds
        the address.
        """
        spec = checked(spec, self._formats(), self._ours)
        taken_out_at = await self._take_out(spec)
        granted_at = self._clock()
        lease_id = await self._client.grant_lease(self._lease_seconds)
        session = NodeSession(self._new_session_id(), spec, registered_at=self._wall_clock(), lease_id=lease_id)
        try:
            session, former = await self._install(session, taken_out_at)
        except HeadraceError:
            # With the lease goes what etcd may have written without being able to say so, and then followers delete
            # what it remembers.
            await self._end_lease(lease_id)
            raise
        await self._end_lease_of(former)
        self._forget_ended_leases()
        self._leases[session.session_id] = _Lease(spec.node_id, lease_id, granted_at)
        logger.info(
            "node registered node=%s address=%s replaced=%s quiescing=%.0fs",
            spec.node_id,
            spec.address,
            former is not None,
            max(0.0, session.settles_at - session.registered_at),
        )
        return session

    async def heartbeat(self, session_id: str, load: NodeLoad) -> NodeSession:
        """Keeps the session alive and stores its load. Returns the session, which says whether it is to drain.

        Raises UnknownSessionError when the session was replaced, or its lease has run out and no outage explains that;
        RegistrationError when the load is impossible.
        """
        check_load(load)
        try:
            return await self._keep_alive(session_id, load)
        except UnknownSessionError:
            if not await self._revive(session_id):
                raise
            return await self._keep_alive(session_id, load)

    async def _keep_alive(self, session_id: str, load: NodeLoad) -> NodeSession:
        lease = self._leases.get(session_id) or await self._look_up(session_id)
        try:
            await self._renew_if_due(lease)
            outcome = await self._client.transact(
                [exists(self._keys.session(session_id))],
                [
                    put(self._keys.load(lease.node_id), encode(LoadRecord(session_id, load)), lease.lease_id),
                    get(self._keys.node(lease.node_id)),
                ],
            )
        except LeaseNotFoundError:
            raise self._unknown(session_id) from None
        record = outcome.records[0] if outcome.succeeded else None
        session = decode_session(record) if record else None
        if session is None:
            raise self._unknown(session_id)
        return session

    async def drain(self, node_id: str) -> NodeSession:
        """Marks a node as draining. Raises UnknownSessionError when no such node is registered."""
        return await self._mark_as_draining(node_id)

    async def deregister(self, session_id: str) -> None:
        """Ends a session. Raises UnknownSessionError when it has ended already."""
        node_id = (await self._look_up(session_id)).node_id
        # Said first, so that nobody takes its end for one that an outage of etcd may have caused.
        session = await self._mark_as_draining(node_id, session_id)
        ending = await self._last.ending(session)
        outcome = await self._client.transact(
            [exists(self._keys.session(session_id))],
            [
                *ending.changes,
                delete(self._keys.session(session_id)),
                delete(self._keys.node(node_id)),
                delete(self._keys.remembered_node(node_id)),
                delete(self._keys.load(node_id)),
                delete(self._keys.address(session.spec.address)),
            ],
        )
        if not outcome.succeeded:
            raise self._unknown(session_id)
        self._leases.pop(session_id, None)
        await self._end_lease(session.lease_id)
        logger.info("node deregistered node=%s", node_id)

    # --- policy ----------------------------------------------------------------------------------------------------

    async def get_policy(self) -> bytes | None:
        """The document that operators set; None when they set none."""
        record = await self._client.get(self._keys.policy)
        return record.value if record else None

    async def put_policy(self, document: bytes) -> None:
        await self._client.put(self._keys.policy, document)

    async def delete_policy(self) -> None:
        await self._client.delete(self._keys.policy)

    # --- overrides -------------------------------------------------------------------------------------------------

    async def put_override(self, pool: str, override: Override) -> None:
        """Keeps an override until it expires, whether or not a control plane runs then; it replaces the pool's former
        one."""
        lease_id = await self._client.grant_lease(max(1, math.ceil(override.expires_at - self._wall_clock())))
        key = self._keys.override(pool)
        try:
            outcome = await self._client.transact([], [get(key), put(key, encode(override), lease_id)])
        except HeadraceError:
            await self._end_lease(lease_id)
            raise
        await self._end_lease_of(outcome.records[0])

    async def delete_override(self, pool: str) -> bool:
        """False when there was none."""
        key = self._keys.override(pool)
        former = (await self._client.transact([], [get(key), delete(key)])).records[0]
        await self._end_lease_of(former)
        return former is not None

    # --- parts -----------------------------------------------------------------------------------------------------

    async def _take_out(self, spec: NodeSpec) -> float | None:
        """Has a node that registers anew leave first, so that requests meant for its former session do not reach it as
        what it is now. One that serves the same keeps to new sessions, any other one drains.

        Also a session whose lease has ended may be led to still: after an outage it is shown until it comes back.

        Returns since when it is led only sessions that are new to it, as it will be then; None for not yet.
        """
        key = self._keys.node(spec.node_id)
        reading = [get(key), get(self._keys.address(spec.address)), *self._last.reading(spec)]
        live, holder, *last = (await self._client.transact([], reading)).records
        if holder is not None and holder.value != spec.node_id.encode():
            return None  # refused when it is installed
        former = decode_session(live) if live else decode_session(last[0]) if last[0] and not last[0].lease_id else None
        if former is None or former.draining:
            return None
        now, formers = self._wall_clock(), [former, *self._last.found(last)]
        if not quiescence_of(spec, formers, self._quiescence(), now).begins:
            return None
        await self._until_heard()
        due = self._due(spec, formers, self._wall_clock())
        stays = takes_the_same_requests(former.spec, spec)
        leaving = (
            replace(former, settles_at=due.until, quiesces_since=due.since) if stays else replace(former, draining=True)
        )
        lease_id = live.lease_id if live else await self._client.grant_lease(self._lease_seconds)
        unchanged = mod_revision_is(key, live.mod_revision if live else 0)
        with suppress(LeaseNotFoundError):  # it has just ended by itself
            if (await self._client.transact([unchanged], [put(key, encode(leaving), lease_id)])).succeeded:
                await self._until_left(leaving)
                return due.since if stays else None
        return None

    def _due(self, spec: NodeSpec, formers: Iterable[NodeSession], now: float) -> Quiescence:
        """As `quiescence_of`, but what begins now begins later than all that is known, whatever clocks say: one may
        have been set back, or be behind another control plane's."""
        formers = tuple(formers)
        due = quiescence_of(spec, formers, self._quiescence(), now)
        if not due.begins:
            return due
        latest = max((session.quiesces_since for session in (*formers, *(self._known() or ()))), default=0.0)
        # In whole milliseconds, by which clusters are named.
        self._latest_since = math.ceil(1000 * max(now, latest + 0.001, self._latest_since + 0.001)) / 1000
        return replace(due, since=self._latest_since)

    async def _install(self, session: NodeSession, taken_out_at: float | None) -> tuple[NodeSession, Record | None]:
        """Writes a new session in place of the node's former one; gives it as written, and the former one's record.

        Sessions that have begun since `taken_out_at` know the node as it is now.
        """
        spec = session.spec
        node_key, address_key = self._keys.node(spec.node_id), self._keys.address(spec.address)
        reading = [get(node_key), get(address_key), *self._last.reading(spec)]
        for _ in range(_MOST_RACES):
            former, holder, *last = (await self._client.transact([], reading)).records
            if holder is not None and holder.value != spec.node_id.encode():
                raise AddressTakenError(spec.address, holder.value.decode())
            replaced = decode_session(former) if former else None
            formers = [each for each in (replaced, *self._last.found(last)) if each is not None]
            due = self._due(spec, formers, session.registered_at)
            since = due.since if taken_out_at is None else min(due.since, taken_out_at)
            session = replace(session, settles_at=due.until, quiesces_since=since)
            moved = [f for f in formers[:1] if f.spec.node_id == spec.node_id and f.spec.address != spec.address]
            ending = await self._last.moving(moved[0]) if moved else Ending()
            outcome = await self._client.transact(
                [
                    mod_revision_is(node_key, former.mod_revision if former else 0),
                    mod_revision_is(address_key, holder.mod_revision if holder else 0),
                    *ending.conditions,
                ],
                [
                    *self._removal_of(replaced, new_address=spec.address),
                    *ending.changes,
                    put(node_key, encode(session), session.lease_id),
                    put(self._keys.remembered_node(spec.node_id), encode(session)),
                    put(self._keys.session(session.session_id), spec.node_id.encode(), session.lease_id),
                    put(address_key, spec.node_id.encode(), session.lease_id),
                    *self._last.keeping(session),
                ],
            )
            if outcome.succeeded:
                return session, former
        raise UnavailableError(f"node {spec.node_id} changes all the time; give each node an id of its own")

    def _removal_of(self, session: NodeSession | None, *, new_address: str) -> list[rpc_pb2.RequestOp]:
        if session is None:
            return []
        removal = [delete(self._keys.session(session.session_id)), delete(self._keys.load(session.spec.node_id))]
        if session.spec.address != new_address:
            removal.append(delete(self._keys.address(session.spec.address)))
        return removal

    async def _mark_as_draining(self, node_id: str, session_id: str | None = None) -> NodeSession:
        for _ in range(_MOST_RACES):
            record = await self._client.get(self._keys.node(node_id))
            session = decode_session(record) if record else None
            if record is None or session is None:
                raise UnknownSessionError(f"node {node_id} is not registered")
            if session_id is not None and session.session_id != session_id:
                raise self._unknown(session_id)
            draining = replace(session, draining=True)
            outcome = await self._client.transact(
                [mod_revision_is(record.key, record.mod_revision)],
                [
                    put(record.key, encode(draining), record.lease_id),
                    put(self._keys.remembered_node(node_id), encode(draining)),
                ],
            )
            if outcome.succeeded:
                return draining
        raise UnavailableError(f"node {node_id} changes all the time; try again")

    async def _look_up(self, session_id: str) -> _Lease:
        """The lease of a session that another control plane may have started."""
        record = await self._client.get(self._keys.session(session_id))
        if record is None:
            raise self._unknown(session_id)
        lease = _Lease(record.value.decode(), record.lease_id, -math.inf)
        self._leases[session_id] = lease
        return lease

    async def _revive(self, session_id: str) -> bool:
        """Gives a session a lease again that lost its own in an outage, in which it could not be renewed. It has told
        nobody of another engine, and nobody has taken its place: it is what it was, and need not begin anew."""
        known = self._known()
        if known is None:
            raise UnavailableError("the fleet has not been read from etcd yet; try again")
        shown = next((each for each in known if each.session_id == session_id), None)
        if shown is None:
            return False
        node_id, address = shown.spec.node_id, shown.spec.address
        node_key, address_key = self._keys.node(node_id), self._keys.address(address)
        remembered_key = self._keys.remembered_node(node_id)
        reading = [get(remembered_key), *self._last.reading(shown.spec)]
        remembered, *last = (await self._client.transact([], reading)).records
        session = decode_session(remembered) if remembered else None
        if remembered is None or session is None or session.session_id != session_id or session.draining:
            return False
        if any(each.session_id != session_id for each in self._last.found(last)):
            return False  # another one was there meanwhile
        granted_at = self._clock()
        lease_id = await self._client.grant_lease(self._lease_seconds)
        session = replace(session, lease_id=lease_id)
        outcome = await self._client.transact(
            [
                mod_revision_is(node_key, 0),
                mod_revision_is(address_key, 0),
                mod_revision_is(remembered_key, remembered.mod_revision),
            ],
            [
                put(node_key, encode(session), lease_id),
                put(remembered_key, encode(session)),
                put(self._keys.session(session_id), node_id.encode(), lease_id),
                put(address_key, node_id.encode(), lease_id),
                *self._last.keeping(session),
            ],
        )
        if not outcome.succeeded:
            await self._end_lease(lease_id)
            return False
        self._leases[session_id] = _Lease(node_id, lease_id, granted_at)
        logger.info("node is back after an outage node=%s", node_id)
        return True

    async def _renew_if_due(self, lease: _Lease) -> None:
        """With three quarters of its time left at least, a lease outlives a missed renewal or two."""
        now = self._clock()
        if now - lease.renewed_at >= self._lease_seconds / 4:
            await self._client.renew_lease(lease.lease_id)
            lease.renewed_at = now

    async def _end_lease(self, lease_id: int) -> None:
        """Ends a lease that is not needed any more; without an answer from etcd it runs out by itself."""
        with suppress(LeaseNotFoundError, UnavailableError):
            await self._client.revoke_lease(lease_id)

    async def _end_lease_of(self, former: Record | None) -> None:
        if former is not None and former.lease_id:
            await self._end_lease(former.lease_id)

    def _unknown(self, session_id: str) -> UnknownSessionError:
        self._leases.pop(session_id, None)
        return UnknownSessionError("the session was replaced, or its lease has run out; register again")

    def _forget_ended_leases(self) -> None:
        """Of nodes that died or turned to another control plane."""
        oldest = self._clock() - 2 * self._lease_seconds
        self._leases = {name: lease for name, lease in self._leases.items() if lease.renewed_at >= oldest}
