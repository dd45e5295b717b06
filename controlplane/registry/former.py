"""What a registration follows on: the sessions that its node's id and its address had before, and what that means.

They lie in etcd below `last/`, see `keys`. Not known are sessions that ended longer ago than the quiescence lasts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from controlplane.etcd.client import EtcdClient
from controlplane.etcd.records import Record, delete, get, mod_revision_is, put
from controlplane.model import NodeSession, NodeSpec
from controlplane.policy.settings import QuiescenceRules
from controlplane.registry.codec import decode_last, encode
from controlplane.registry.keys import Keys
from headrace_protos.etcd import rpc_pb2


@dataclass(frozen=True, slots=True)
class Quiescence:
    """As in NodeSession; both 0 for none. It `begins` now, or is what is left of a former one."""

    since: float = 0.0
    until: float = 0.0
    begins: bool = False


def quiescence_of(spec: NodeSpec, formers: Iterable[NodeSession], rules: QuiescenceRules, now: float) -> Quiescence:
    """How a node quiesces that registers `now`.

    One that was never seen before does not. One that proves to be the same engine goes on with what its former session
    has left, where the rules say so.
    """
    formers = tuple(formers)
    if not formers or not rules.seconds:
        return Quiescence()
    if rules.exempt_same_engine and all(is_same_engine(former.spec, spec) for former in formers):
        left = max(former.settles_at for former in formers)
        return Quiescence(max(former.quiesces_since for former in formers), left) if left > now else Quiescence()
    return Quiescence(now, now + rules.seconds, begins=True)


def is_same_engine(former: NodeSpec, spec: NodeSpec) -> bool:
    """Whether the engine proves that it neither started nor loaded a model since, and is described as before."""
    return bool(spec.engine_instance) and former == spec


def takes_the_same_requests(former: NodeSpec, spec: NodeSpec) -> bool:
    """Whether what is meant for the former session would be served alike by the new one."""
    return (former.address, former.models, former.capacity_type) == (spec.address, spec.models, spec.capacity_type)


@dataclass(frozen=True, slots=True)
class Ending:
    """The parts of the transaction that ends a session. A lease that it does not use comes to its own end."""

    conditions: tuple[rpc_pb2.Compare, ...] = ()
    changes: tuple[rpc_pb2.RequestOp, ...] = ()


class LastSessions:
    """The last session of each node's id and of each address; `rules` gives the rules in force."""

    def __init__(self, client: EtcdClient, keys: Keys, rules: Callable[[], QuiescenceRules]) -> None:
        self._client = client
        self._keys = keys
        self._rules = rules

    def reading(self, spec: NodeSpec) -> list[rpc_pb2.RequestOp]:
        """What to read in a transaction; `found` understands what it gives."""
        return [get(self._keys.last(spec.node_id)), get(self._keys.last(spec.address))]

    def found(self, records: Iterable[Record | None]) -> tuple[NodeSession, ...]:
        return tuple(session for record in records if record and (session := decode_last(record)) is not None)

    def keeping(self, session: NodeSession) -> list[rpc_pb2.RequestOp]:
        """What a session that begins leaves behind, whatever becomes of it."""
        if not self._rules().seconds:
            return []
        return [put(key, encode(session)) for key in self._keys_of(session)]

    async def ending(self, session: NodeSession) -> Ending:
        """Has a session that ends now remembered for as long as the quiescence lasts.

        A node that has registered anew meanwhile, and an address that another node has taken, are left alone.
        """
        return await self._ending(session, self._keys_of(session))

    async def moving(self, session: NodeSession) -> Ending:
        """As `ending`, of a node that goes on at another address: the one that it leaves."""
        return await self._ending(session, (self._keys.last(session.spec.address),))

    async def _ending(self, session: NodeSession, keys: Sequence[str]) -> Ending:
        seconds = self._rules().seconds
        lease_id = await self._client.grant_lease(math.ceil(seconds)) if seconds else 0
        records = (await self._client.transact([], [get(key) for key in keys])).records
        conditions: list[rpc_pb2.Compare] = []
        changes: list[rpc_pb2.RequestOp] = []
        for key, record in zip(keys, records, strict=True):
            held = decode_last(record) if record else None
            if held is not None and held.session_id != session.session_id:
                continue
            conditions.append(mod_revision_is(key, record.mod_revision if record else 0))
            changes.append(put(key, encode(session), lease_id) if lease_id else delete(key))
        return Ending(tuple(conditions), tuple(changes))

    def _keys_of(self, session: NodeSession) -> tuple[str, str]:
        return self._keys.last(session.spec.node_id), self._keys.last(session.spec.address)
