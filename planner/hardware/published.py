"""Engines with the constants that papers' authors used, to compute their tables again. Not measured by us.

The iteration model t(n) = W + H n of arXiv 2604.09613 and 2604.08075, with the profiles of their fleet simulator
(vllm-project/semantic-router, src/fleet-sim, Apache-2.0). They charge the price of one GPU for what holds 70B with
eight: what their tables call a GPU is an instance.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from planner.hardware.engine import EngineModel, PowerCurve

_SOURCE = "profile of vllm-project/semantic-router fleet-sim"

PROFILES: Mapping[str, EngineModel] = MappingProxyType(
    {
        "A100-80GB": EngineModel(
            name="A100-80GB (Llama-3-70B, TP8)",
            gpus=1,
            fixed_seconds=0.008,
            per_sequence_seconds=0.00065,
            chunk_tokens=512,
            kv_blocks=65_536,
            max_sequences=128,
            max_context=65_536,
            dollars_per_hour=2.21,
            power=PowerCurve(175, 385, 1.0, 2.5),
            source=_SOURCE,
        ),
        "H100-80GB": EngineModel(
            name="H100-80GB (Llama-3-70B, TP8)",
            gpus=1,
            fixed_seconds=0.004,
            per_sequence_seconds=0.00032,
            chunk_tokens=1024,
            kv_blocks=65_536,
            max_sequences=256,
            max_context=65_536,
            dollars_per_hour=4.02,
            power=PowerCurve(300, 600, 1.0, 4.2),
            source=_SOURCE,
        ),
        "A10G": EngineModel(
            name="A10G (7B)",
            gpus=1,
            fixed_seconds=0.012,
            per_sequence_seconds=0.0009,
            chunk_tokens=256,
            kv_blocks=32_768,
            max_sequences=64,
            max_context=8192,
            dollars_per_hour=1.01,
            power=PowerCurve(75, 120, 0.7, 3.0),
            source=_SOURCE,
        ),
    }
)


def published_sequences(profile: EngineModel, max_context: int) -> int:
    """How many sequences the authors run at a context: as many as hold it in the KV cache, and the profile's number at
    8,192 tokens times how much shorter the context is."""
    held = profile.kv_blocks // -(-max_context // profile.block_tokens)
    return min(profile.max_sequences * profile.reference_tokens // max_context, held)
