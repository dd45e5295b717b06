"""Where things lie in etcd, below a prefix such as `/headrace/v1/`.

    nodes/<node_id>          the node session, as JSON
    loads/<node_id>          the node's last load with the id of the session that reported it, as JSON
    sessions/<session_id>    the node's id; exists exactly as long as the session is the node's present one
    addresses/<ip:port>      the node's id; keeps two nodes from holding one address
    policy                   the policy that operators set, as they wrote it

All but the policy belong to the node's lease and go with it.
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
    def policy(self) -> str:
        return f"{self.prefix}policy"

    def node(self, node_id: str) -> str:
        return f"{self.nodes}{node_id}"

    def load(self, node_id: str) -> str:
        return f"{self.loads}{node_id}"

    def session(self, session_id: str) -> str:
        return f"{self.prefix}sessions/{session_id}"

    def address(self, address: str) -> str:
        return f"{self.prefix}addresses/{address}"
