"""How many instances of an engine a pool needs so that its requests meet their targets.

An instance is as many servers as it runs sequences, and a request holds one for its iterations, each as long as an
iteration of all of them takes. More sequences serve more requests a second and make each token slower: an instance runs
as many as the time per token, the KV cache and its own limit allow. The wait for a server is that of `erlang`. What
queueing formulas leave out (how instances are chosen, preemption, how prefills of several meet) the simulator has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, exp, sqrt

from planner.hardware.engine import EngineModel
from planner.sizing.demand import Demand
from planner.sizing.erlang import wait_quantile

# Standard deviations above the mean use of the KV cache that it has room for: beyond it is one moment in a hundred.
_KV_DEVIATIONS = 2.33
_NEGLIGIBLE = 1e-6
_NO_BUDGET = 8192


@dataclass(frozen=True, slots=True)
class Targets:
    """What 99% of the requests get: the first token within `ttft_seconds`, further ones each within `tpot_seconds` on
    average. No pool is used above `utilisation` of what it can do, and a share of `availability` of its instances is
    up at any time."""

    ttft_seconds: float = 2.0
    tpot_seconds: float = 0.080
    utilisation: float = 0.85
    availability: float = 1.0


@dataclass(frozen=True, slots=True)
class PoolSize:
    """`engine` as it is to be started, `instances` of it, with at most `token_budget` tokens computed in an iteration
    (vLLM's `max_num_batched_tokens`), which keeps long prompts from holding up all others. `busy` is the share of the
    sequences that run, `ttft_seconds` what 99% do not wait longer for, `tpot_seconds` of an instance with all sequences
    running."""

    engine: EngineModel
    instances: int
    busy: float
    ttft_seconds: float
    tpot_seconds: float
    token_budget: int

    @property
    def gpus(self) -> int:
        return self.instances * self.engine.gpus

    @property
    def dollars_per_hour(self) -> float:
        return self.instances * self.engine.dollars_per_hour

    @property
    def watts(self) -> float | None:
        """None where the engine's power is not known."""
        if self.engine.power is None:
            return None
        return self.instances * self.engine.power.watts(self.busy * self.engine.max_sequences)


def size_pool(engine: EngineModel, demand: Demand, context: int, targets: Targets, most: int = 0) -> PoolSize | None:
    """Instances that are started with this context, and with `most` sequences if that is not 0. None when one sequence
    alone does not meet the targets or does not fit."""
    sequences = most or sequences_at_once(engine, demand, targets)
    if sequences < 1 or context > min(engine.kv_tokens, engine.max_context):
        return None
    token = token_seconds(engine, demand, sequences)
    chunk = token_seconds(engine, demand, sequences, own_chunk=demand.chunk_tokens)
    prefill = prefill_seconds(engine, demand, sequences)
    if prefill > targets.ttft_seconds or token > targets.tpot_seconds:
        return None
    service = demand.chunks * chunk + (demand.iterations - demand.chunks) * token

    def ttft(instances: int) -> float:
        wait = wait_quantile(
            instances * sequences,
            demand.rate,
            service,
            arrival_cv2=demand.arrival_cv2,
            service_cv2=demand.iterations_cv2,
        )
        return wait + prefill

    load = demand.rate * service / sequences
    instances = _least(max(1, ceil(load / targets.utilisation)), lambda n: ttft(n) <= targets.ttft_seconds)
    return PoolSize(
        engine=engine.limited(context, sequences),
        instances=ceil(instances / targets.availability),
        busy=load / instances,
        ttft_seconds=ttft(instances),
        tpot_seconds=token,
        token_budget=max(sequences, token_budget(engine, targets)),
    )


def token_budget(engine: EngineModel, targets: Targets) -> int:
    """As many tokens as are computed within the time per token, and a whole chunk at least."""
    if engine.seconds_per_token <= 0:
        return _NO_BUDGET
    return min(_NO_BUDGET, max(engine.chunk_tokens, int(targets.tpot_seconds / engine.seconds_per_token)))


def sequences_at_once(engine: EngineModel, demand: Demand, targets: Targets) -> int:
    """The most that meet the time per token and fit the KV cache, 0 when not even one does."""

    def is_met(sequences: int) -> bool:
        used = sequences * demand.resident_tokens + _KV_DEVIATIONS * sqrt(sequences) * demand.resident_deviation
        fits = sequences == 1 or used <= engine.kv_tokens
        in_time = token_seconds(engine, demand, sequences) <= targets.tpot_seconds
        return fits and in_time and prefill_seconds(engine, demand, sequences) <= targets.ttft_seconds

    low, high = 0, engine.max_sequences
    while low < high:
        middle = (low + high + 1) // 2
        if is_met(middle):
            low = middle
        else:
            high = middle - 1
    return low


def prefill_seconds(engine: EngineModel, demand: Demand, sequences: int) -> float:
    """Until 99% of the prompts are read, among so many sequences."""
    return demand.p99_chunks * token_seconds(engine, demand, sequences, own_chunk=demand.chunk_tokens)


def token_seconds(engine: EngineModel, demand: Demand, sequences: int, own_chunk: float = 1.0) -> float:
    """What an iteration takes that a sequence decodes in, or reads a chunk of its prompt in, among so many sequences.

    Others read their prompts meanwhile, by chance (Poisson) several at once. While none does, weights and caches are
    read; computing chunks may take longer.
    """
    reading = engine.iteration_seconds(sequences, demand.resident_tokens)
    expected = (sequences - 1) * demand.prefill_share
    longer, left, probability, prompts = 0.0, 1.0, exp(-expected), 0
    while True:
        computed = own_chunk + (sequences - 1 - prompts) + prompts * demand.chunk_tokens
        excess = max(0.0, engine.seconds_per_token * computed - reading)
        if left < _NEGLIGIBLE or prompts >= sequences - 1:
            return reading + longer + left * excess
        longer += probability * excess
        left -= probability
        prompts += 1
        probability *= expected / prompts


def _least(start: int, is_enough: Callable[[int], bool]) -> int:
    """The smallest number from `start` on that is enough, as all above it are."""
    high = start
    while not is_enough(high):
        high *= 2
    low = max(start, high // 2)
    while low < high:
        middle = (low + high) // 2
        if is_enough(middle):
            high = middle
        else:
            low = middle + 1
    return low
