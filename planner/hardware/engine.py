"""One engine instance as the planner sees it: how long an iteration takes, how much it holds, what it costs.

The model of an iteration is that of continuous batching with chunked prefill, to the first order: weights are read once
and each sequence's KV cache once, unless the tokens that are computed take longer than that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log2


@dataclass(frozen=True, slots=True)
class PowerCurve:
    """Watts of one instance: logistic in the base-2 logarithm of the sequences that run at once, from `idle_watts` to
    `nominal_watts`, steepest at 2 ** `midpoint` sequences."""

    idle_watts: float
    nominal_watts: float
    slope: float
    midpoint: float

    def watts(self, sequences: float) -> float:
        """With so many sequences running on average."""
        if sequences <= 0:
            return self.idle_watts
        reached = 1 / (1 + exp(-self.slope * (log2(sequences) - self.midpoint)))
        return self.idle_watts + (self.nominal_watts - self.idle_watts) * reached


@dataclass(frozen=True, slots=True)
class EngineModel:
    """An instance of `gpus` GPUs that serves one model in one format.

    An iteration over `n` sequences takes

        max(fixed_seconds + per_sequence_seconds * n * scale, seconds_per_token * tokens)

    where `scale` is the mean length of the sequences over `reference_tokens` if `scales_with_length`, else 1, and
    `tokens` are those computed: one for each sequence that decodes, and the chunks of those that prefill. Each
    iteration prefills at most `chunk_tokens` of a sequence.

    `kv_blocks` of `block_tokens` hold the KV cache; at most `max_sequences` run, none longer than `max_context` tokens.
    `dollars_per_hour` are those of the instance. `source` says where the numbers come from.
    """

    name: str
    gpus: int
    fixed_seconds: float
    per_sequence_seconds: float
    chunk_tokens: int
    kv_blocks: int
    max_sequences: int
    max_context: int
    dollars_per_hour: float
    seconds_per_token: float = 0.0
    reference_tokens: int = 8192
    scales_with_length: bool = False
    block_tokens: int = 16
    quantization: str = "fp16"
    power: PowerCurve | None = None
    source: str = ""

    @property
    def kv_tokens(self) -> int:
        return self.kv_blocks * self.block_tokens

    @property
    def worst_case_sequences(self) -> int:
        """How many sequences run when each is given room for `max_context` tokens. 0 when not even one fits."""
        return min(self.max_sequences, self.kv_blocks // blocks(self.max_context, self.block_tokens))

    def iteration_seconds(self, sequences: float, mean_tokens: float, computed_tokens: float = 0.0) -> float:
        """Of one iteration over so many sequences of `mean_tokens` on average."""
        scale = mean_tokens / self.reference_tokens if self.scales_with_length else 1.0
        moved = self.fixed_seconds + self.per_sequence_seconds * sequences * scale
        return max(moved, self.seconds_per_token * computed_tokens)

    def limited(self, max_context: int, max_sequences: int) -> EngineModel:
        """The same instance, started with these limits."""
        return replace(self, max_context=max_context, max_sequences=max_sequences)


def blocks(tokens: int, block_tokens: int) -> int:
    """How many blocks so many tokens fill."""
    return -(-tokens // block_tokens)
