"""Who is compared, in the order of the report."""

from __future__ import annotations

from peers.direct import DIRECT
from peers.headrace import HEADRACE, HEADRACE_GRPC_AIO
from peers.litellm import LITELLM
from peers.plain_envoy import PLAIN_ENVOY
from peers.rust_routers import SGLANG_ROUTER, SGLANG_ROUTER_ROUND_ROBIN, VLLM_ROUTER, VLLM_ROUTER_ROUND_ROBIN

CONTESTANTS = (
    DIRECT,
    PLAIN_ENVOY,
    HEADRACE,
    HEADRACE_GRPC_AIO,
    VLLM_ROUTER,
    VLLM_ROUTER_ROUND_ROBIN,
    SGLANG_ROUTER,
    SGLANG_ROUTER_ROUND_ROBIN,
    LITELLM,
)
