"""What the ledger takes and how fast it answers, on SQLite and PostgreSQL.

    python bench/ledger.py [--rows 1000000] [--stores sqlite,postgresql]

First so many rows are written as fast as it goes; then each kind of filter is asked for in turn, of which the slowest of
a few times counts; then decisions arrive for some seconds at 5,000 a second, and then at far more than it can take.
PostgreSQL is the one of the tests, with its durability as by default.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from controlplane.ledger.row import Row, row_of
from headrace_protos.headrace.v1 import decision_pb2

MODELS = tuple(f"org/model-{n}-instruct" for n in range(8))
TENANTS = tuple(f"name:tenant-{n}" for n in range(200))
REASONS = {
    "sensitive": ("sensitive_needs_full",),
    "neutral": ("neutral_prefers_full",),
    "tolerant": ("tolerant_prefers_quantized",),
}


def decision(dice: random.Random, recorded: int) -> decision_pb2.RecordedDecision:
    """One as the filter makes them: with contributions, four pools that were looked at, and what would change it."""
    model = dice.choice(MODELS)
    tenant = TENANTS[min(int(dice.expovariate(0.05)), len(TENANTS) - 1)]
    verdict = dice.choice(("sensitive", "neutral", "neutral", "tolerant"))
    tier = "quantized" if verdict == "tolerant" else "full"
    pool = f"{model}/{tier}/{dice.choice(('short', 'short', 'long'))}/on_demand"
    status = dice.choices((200, 400, 429, 503, 0), (960, 10, 20, 5, 5))[0]
    reasons = list(REASONS[verdict])
    if dice.random() < 0.3:
        reasons.insert(0, "session_pinned")
    if dice.random() < 0.05:
        reasons.append("spilled_under_load")
    made = decision_pb2.RecordedDecision(
        request_id=f"{dice.getrandbits(128):032x}",
        recorder=7,
        decision=decision_pb2.Decision(
            action="pass" if status != 503 else "reject",
            endpoint="chat",
            model=model,
            pool=pool,
            tier=tier,
            reasons=reasons,
            tenant=tenant,
            session=f"id:{dice.randrange(200_000):032x}",
            stream=True,
            sensitivity=decision_pb2.Sensitivity(
                verdict=verdict,
                score=float(dice.randrange(-150, 200)),
                contributions=[
                    decision_pb2.Contribution(name="greedy", points=70, why="temperature is 0"),
                    decision_pb2.Contribution(
                        name="structured_words", points=48, why="python (code), json (data) in the first user turn"
                    ),
                    decision_pb2.Contribution(
                        name="long_output", points=25, why="more than 1000 output tokens are expected"
                    ),
                ],
            ),
            budget=decision_pb2.Budget(
                prompt_tokens=dice.randrange(50, 9000),
                output_tokens=1000,
                category="prose",
                ratio=3.6,
                output_from="default",
            ),
            alternatives=[
                decision_pb2.Alternative(
                    pool=f"{model}/{t}/{c}/on_demand",
                    scores={
                        "room": dice.random(),
                        "tier": 1.0,
                        "context": 0.5,
                        "gain": dice.random(),
                        "headroom": dice.random(),
                        "fidelity": 0.9,
                        "on_demand": 1.0,
                    },
                    total=25 * dice.random(),
                )
                for t in ("full", "quantized")
                for c in ("short", "long")
            ],
        ),
        outcome=decision_pb2.Outcome(
            status=status,
            upstream="10.0.0.7:8000",
            cluster=pool,
            duration_seconds=dice.expovariate(0.3),
            first_byte_seconds=0.2,
            prompt_tokens=dice.randrange(50, 9000),
            completion_tokens=dice.randrange(1, 2000),
            attempts=1,
            details="via_upstream",
            node_id=f"node-{dice.randrange(40)}",
            node_session_id=f"{dice.getrandbits(64):016x}",
        ),
    )
    made.recorded.FromMicroseconds(recorded)
    made.time.FromMicroseconds(recorded - 3_000_000)
    return made
