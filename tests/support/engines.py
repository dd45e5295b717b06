"""A small engine that the simulator's tests fill quickly."""

from __future__ import annotations

from planner.hardware.engine import EngineModel

ENGINE = EngineModel(
    name="test",
    gpus=1,
    fixed_seconds=0.008,
    per_sequence_seconds=0.00065,
    chunk_tokens=64,
    kv_blocks=128,
    max_sequences=8,
    max_context=2048,
    dollars_per_hour=2.0,
)
