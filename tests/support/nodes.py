"""Node descriptions for tests."""

from __future__ import annotations

from controlplane.model import NodeLoad, NodeSpec, ServedModel
from controlplane.policy.settings import FormatRules

FORMATS = FormatRules(full=("fp16",), quantized=("int4-awq",))


def node(node_id: str = "a", address: str = "10.0.0.1:8000", format: str = "fp16") -> NodeSpec:  # noqa: A002
    model = ServedModel(id="llama", format=format, max_context=8192, max_sequences=16, served_name="llama")
    return NodeSpec(node_id=node_id, address=address, models=(model,), labels={"rack": "7"})


def load(running: int = 1, waiting: int = 0) -> NodeLoad:
    return NodeLoad(running=running, waiting=waiting, kv_cache_use=0.5, reported_at=1000.0)
