"""Where things lie in etcd, below a prefix such as `/headrace/v1/`.

    nodes/<node_id>          the node session, as JSON
    loads/<node_id>          the node's last load with the id of the session that reported it, as JSON
    sessions/<session_id>    the node's id; exists exactly as long as the session is the node's present one
    addresses/<ip:port>      the node's id; keeps two nodes from holding one address
    remembered/<node_id>     the node session once more, as JSON, without a lease
    last/<node_id>           the last session that the node had, as JSON; kept for a while after it has ended
    last/<ip:port>           the last session at the address, likewise
    workers/<worker_id>      the name of the control plane that the filter worker watches
    policy                   the policy that operators set, as they wrote it
    overrides/<pool>         what an operator has put in the place of a pool's load, as JSON

The policy stays until it is reset. An override has a lease of its own, that of its duration; a worker has its control
plane's. `last/` has none while the session lasts, and that of the quiescence after it: what registers meanwhile is
known to have been there before. `remembered/` outlives the node's lease, so that a control plane that was away for
longer knows whom to wait for: it is written and deleted in one transaction with `nodes/`, and after the lease has
ended, deleted by the control planes that have given the node up. All else belongs to the node's lease and goes with it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    prefix: str = "/headrace/v1/"

    @property
    def nodes(self) -> str:
        return f"{self.prefix}nodes/"

    @property
    def loads(self) -> str:
        return f"{self.prefix}loads/"

    @property
    def remembered(self) -> str:
        return f"{self.prefix}remembered/"

    @property
    def policy(self) -> str:
        return f"{self.prefix}policy"

    @property
    def overrides(self) -> str:
        return f"{self.prefix}overrides/"

    @property
    def workers(self) -> str:
        return f"{self.prefix}workers/"

    def worker(self, worker_id: str) -> str:
        return f"{self.workers}{worker_id}"

    def node(self, node_id: str) -> str:
        return f"{self.nodes}{node_id}"

    def load(self, node_id: str) -> str:
        return f"{self.loads}{node_id}"

    def remembered_node(self, node_id: str) -> str:
        return f"{self.remembered}{node_id}"

    def last(self, node_or_address: str) -> str:
        """Of a node's id, which holds no colon, or of an address, which does."""
        return f"{self.prefix}last/{node_or_address}"

    def session(self, session_id: str) -> str:
        return f"{self.prefix}sessions/{session_id}"

    def override(self, pool: str) -> str:
        return f"{self.overrides}{pool}"

    def address(self, address: str) -> str:
        return f"{self.prefix}addresses/{address}"
