"""The format rules' fleet result: what half a fleet in 4 bits gains at a traffic that is mostly tolerant. Facts row:
fleet result.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from itertools import cycle, islice

import pytest

from controlplane.model import Ask, FormatTier, Pool, PoolLoad
from controlplane.policy.decide import decide
from support.asks import make_chat, make_pool, make_table

SENSITIVE = make_chat("Write Python code", temperature=0)
NEUTRAL = make_chat("Go on", temperature=0.5)
TOLERANT = make_chat("Write a short story", temperature=1)
# 60% tolerant, the rest half and half.
MIX = (TOLERANT, NEUTRAL, TOLERANT, SENSITIVE, TOLERANT)
GAIN = 1.8  # within 1.7 to 1.9, of 4-bit over 16-bit decoding on A100 SXM4
SEQUENCES = 16
CLIENTS = 288  # keep all sequences of all nodes busy, and some wait
REQUESTS = 6000


@dataclass
class Engines:
    """A pool's engines: so many sequences at once, the others wait in order. A request takes 1 / speed."""

    pool: Pool
    speed: float
    running: int = 0
    waiting: deque[int] = field(default_factory=deque)

    def with_load(self) -> Pool:
        return replace(self.pool, load=PoolLoad(self.running, len(self.waiting), None))


def throughput(pools: list[Pool]) -> tuple[float, Counter[FormatTier]]:
    """Requests per unit of time once all is busy, and how many each tier served, when clients ask one after another."""
    engines = {pool.name: Engines(pool, GAIN if pool.tier is FormatTier.QUANTIZED else 1.0) for pool in pools}
    asks = cycle(MIX)
    done: list[tuple[float, int, str]] = []
    served: Counter[FormatTier] = Counter()
    started_at = 0.0
    now = 0.0

    def send(ask: Ask, client: int) -> None:
        chosen = decide(ask, make_table(*(each.with_load() for each in engines.values())), None).pool
        assert chosen is not None
        target = engines[chosen.name]
        if target.running < target.pool.max_sequences:
            target.running += 1
            # Clients do not start in step.
            heapq.heappush(done, (now + (1 + client / CLIENTS) / target.speed, client, chosen.name))
        else:
            target.waiting.append(client)

    for client, ask in enumerate(islice(asks, CLIENTS)):
        send(ask, client)
    for count in range(REQUESTS):
        now, client, name = heapq.heappop(done)
        target = engines[name]
        target.running -= 1
        if target.waiting:
            target.running += 1
            heapq.heappush(done, (now + 1 / target.speed, target.waiting.popleft(), name))
        if count == REQUESTS // 4:
            started_at, served = now, Counter()
        served[target.pool.tier] += 1
        send(next(asks), client)
    return sum(served.values()) / (now - started_at), served


def test_four_full_and_four_4_bit_nodes_serve_about_35_percent_more_than_eight_full_ones_at_60_percent_tolerant() -> (
    None
):
    """(4 + 4 * 1.8) / 8 bounds it at +40%; a strict split of the traffic, without spilling, reaches +25%."""
    full = make_pool("full", ready=4)
    quantized = make_pool("quantized", ready=4, gain=GAIN)
    all_full, _ = throughput([replace(full, ready_nodes=8, nodes=8, max_sequences=8 * SEQUENCES)])
    mixed, served = throughput([full, quantized])
    assert 1.25 <= mixed / all_full <= 1.41
    assert mixed / all_full == pytest.approx(1.35, abs=0.06)
    assert served[FormatTier.QUANTIZED] / sum(served.values()) > 0.6  # neutral requests spill
