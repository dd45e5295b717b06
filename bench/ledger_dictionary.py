"""Trains the dictionary that the ledger compresses decisions by, and says how small they become.

    python bench/ledger_dictionary.py [--write controlplane/ledger/dictionary_N.bin]

The decisions are those that the policy makes for prompts of the tests and fleets drawn at random, half of them to train
by and half to measure by. A dictionary that was released stays as it is: a better one gets the next number.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import zstandard

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from controlplane.ledger.compact import pack, unpack
from controlplane.messages import decision_message
from controlplane.model import Pool, PoolLoad
from controlplane.policy.decide import decide
from headrace_protos.headrace.v1 import decision_pb2
from support.asks import make_ask, make_pool, make_table

PROMPTS = Path(__file__).resolve().parents[1] / "tests" / "controlplane" / "policy" / "labelled_prompts"
DECISIONS = 12_000
BYTES = 16 * 1024
MODELS = ("llama", "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-7B-Instruct", "mistral-small", "org/model-70b")


def recorded(dice: random.Random, prompts: list[str], models: Sequence[str] = MODELS) -> bytes:
    model = dice.choice(models)
    pools = _pools(dice, model)
    fields: dict[str, object] = {"model": model, "stream": dice.random() < 0.6}
    if dice.random() < 0.6:
        fields["temperature"] = dice.choice((0, 0, 0.2, 0.7, 1.0))
    if dice.random() < 0.5:
        fields["max_tokens"] = dice.choice((16, 100, 256, 1000, 4096, 30_000))
    text = "\n".join(dice.choices(prompts, k=dice.choice((1, 1, 2))))
    ask = make_ask({**fields, "messages": [{"role": "user", "content": text}]})
    decision = decision_message(decide(ask, make_table(*pools), None))
    decision.tenant = dice.choice(("", f"name:tenant-{dice.randrange(50)}", f"key:{dice.getrandbits(128):032x}"))
    decision.qos_tier = dice.choice(("guaranteed", "standard", "standard", "best_effort"))
    if dice.random() < 0.5:
        decision.session = f"id:{dice.getrandbits(128):032x}"
    message = decision_pb2.RecordedDecision(
        request_id=_uuid(dice), recorder=dice.getrandbits(31), decision=decision, outcome=_outcome(dice, decision)
    )
    message.recorded.FromMicroseconds(1_790_000_000_000_000 + dice.getrandbits(44))
    message.time.CopyFrom(message.recorded)
    return message.SerializeToString()


def _pools(dice: random.Random, model: str) -> list[Pool]:
    names = [(t, c, k) for t in ("full", "quantized") for c in ("short", "long") for k in ("on_demand", "spot")]
    chosen = dice.sample(names, dice.choice((0, 1, 2, 2, 3, 4, 4, 8)))
    return [
        make_pool(
            tier,
            context,
            model=model,
            capacity=capacity,
            load=PoolLoad(running=dice.randrange(40), waiting=int(dice.expovariate(0.5)), kv_cache_use=dice.random()),
        )
        for tier, context, capacity in chosen
    ]


def _outcome(dice: random.Random, decision: decision_pb2.Decision) -> decision_pb2.Outcome:
    took = dice.expovariate(0.3)
    if not decision.pool:
        return decision_pb2.Outcome(
            status=decision.refusal.status, duration_seconds=took, received_seconds=dice.random() / 1000
        )
    return decision_pb2.Outcome(
        status=200,
        upstream=f"10.{dice.randrange(4)}.{dice.randrange(256)}.{dice.randrange(256)}:8000",
        cluster=decision.pool,
        duration_seconds=took,
        first_byte_seconds=took * dice.random(),
        prompt_tokens=max(0, decision.budget.likely_prompt_tokens + dice.randrange(-20, 20)),
        completion_tokens=dice.randrange(1, 2000),
        attempts=1,
        details="via_upstream",
        node_id=f"node-{dice.randrange(40)}",
        node_session_id=f"{dice.getrandbits(64):016x}",
        received_seconds=dice.random() / 1000,
        first_content_seconds=took * dice.random(),
        last_byte_seconds=took,
    )


def read_prompts() -> list[str]:
    paths = sorted(PROMPTS.rglob("*.jsonl"))
    return [json.loads(line)["text"] for path in paths for line in path.read_text(encoding="utf-8").splitlines()]


def _uuid(dice: random.Random) -> str:
    text = f"{dice.getrandbits(128):032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    dice = random.Random(1)
    prompts = read_prompts()
    messages = [recorded(dice, prompts) for _ in range(DECISIONS)]
    if given.write:
        given.write.write_bytes(zstandard.train_dictionary(BYTES, list(messages[::2]), level=1).as_bytes())
    measured = messages[1::2]
    began = time.thread_time()
    packed = pack(measured)
    took = (time.thread_time() - began) / len(measured)
    assert [unpack(each) for each in packed] == measured
    before, after = (sum(map(len, each)) / len(measured) for each in (measured, packed))
    print(f"{before:.0f} bytes become {after:.0f}, in {took * 1e6:.1f} us each")


if __name__ == "__main__":
    main()
