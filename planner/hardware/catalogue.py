"""GPUs and models by name, with where their numbers come from.

Prices are by the hour and GPU, on demand, as the fleet simulator of vllm-project/semantic-router lists them
(Apache-2.0) unless another source is named; they differ by cloud and contract, so give your own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_SIMULATOR = "vendor's data sheet; price: vllm-project/semantic-router fleet-sim"


@dataclass(frozen=True, slots=True)
class Gpu:
    """`bandwidth` in bytes/s and `memory` in bytes of one GPU, `flops` dense FP16 or BF16 operations/s, `watts` its
    design power. `eight_bit_compute` is how many times `flops` it computes in FP8 or INT8, 1 where engines do not.

    `four_bit_gain` is how many times as fast 4-bit weights are read, kernels included, as 16-bit ones at equal batch.
    The bytes alone would give nearly 4; measured are 1.7 to 1.9 on A100 and 1.3 to 1.5 on RTX 4090. Where nothing is
    published it is the least of these, as in `policy.gain.default`.
    """

    bandwidth: float
    memory: float
    flops: float
    watts: float
    dollars_per_hour: float
    eight_bit_compute: float = 2.0
    four_bit_gain: float = 1.3
    source: str = _SIMULATOR


@dataclass(frozen=True, slots=True)
class Model:
    """`parameters` in all, of which `active_parameters` compute each token (fewer in a mixture of experts) and
    `embedding_parameters`, of the input's and the output's embedding, stay in 16 bits when the others are quantized."""

    parameters: float
    active_parameters: float
    embedding_parameters: float
    layers: int
    kv_heads: int
    head_dimension: int
    max_context: int
    source: str

    def kv_bytes_per_token(self, gpus: int, bytes_each: float = 2.0) -> float:
        """Of one GPU of `gpus` that share the model: heads are divided, but not below one."""
        return 2 * self.layers * -(-self.kv_heads // gpus) * self.head_dimension * bytes_each


_GB = 1e9
_GIB = 2**30


def _gpu(terabytes: float, gib: float, teraflops: float, watts: float, dollars: float, **others: float) -> Gpu:
    return Gpu(terabytes * 1e12, gib * _GIB, teraflops * 1e12, watts, dollars, **others)  # type: ignore[arg-type]


GPUS: Mapping[str, Gpu] = MappingProxyType(
    {
        "A10G": _gpu(0.600, 24, 70, 150, 1.01, eight_bit_compute=1.0),
        "A100": _gpu(2.039, 80, 312, 400, 2.21, eight_bit_compute=1.0, four_bit_gain=1.8),
        "L40S": _gpu(0.864, 48, 362, 350, 1.80),
        "H100": _gpu(3.35, 80, 989, 700, 4.02),
        "H200": _gpu(4.8, 141, 989, 700, 6.0),
        "B200": _gpu(8.0, 180, 2250, 1000, 8.0),
        "GB200": _gpu(8.0, 186, 2500, 1200, 10.0),
        "GB300": _gpu(8.0, 279, 2500, 1400, 12.0),
        "MI300X": Gpu(
            bandwidth=5.3e12,
            memory=192 * _GIB,
            flops=1307e12,
            watts=750,
            dollars_per_hour=3.67,
            source="AMD's data sheet; price: arXiv 2604.09613",
        ),
    }
)


def _card(name: str) -> str:
    return f"config.json and model card of {name}"


MODELS: Mapping[str, Model] = MappingProxyType(
    {
        "Llama-3-8B": Model(8.03e9, 8.03e9, 1.05e9, 32, 8, 128, 131_072, _card("meta-llama/Llama-3.1-8B")),
        "Llama-2-13B": Model(13.0e9, 13.0e9, 0.33e9, 40, 40, 128, 4096, _card("meta-llama/Llama-2-13b-hf")),
        "Llama-3-70B": Model(70.6e9, 70.6e9, 2.1e9, 80, 8, 128, 131_072, _card("meta-llama/Llama-3.1-70B")),
        "Qwen3-8B": Model(8.19e9, 8.19e9, 1.24e9, 36, 8, 128, 40_960, _card("Qwen/Qwen3-8B")),
        "Qwen3-32B": Model(32.8e9, 32.8e9, 1.56e9, 64, 8, 128, 40_960, _card("Qwen/Qwen3-32B")),
        "Qwen3-235B-A22B": Model(235e9, 22e9, 1.24e9, 94, 4, 128, 40_960, _card("Qwen/Qwen3-235B-A22B")),
        "SmolLM2-135M": Model(135e6, 135e6, 28e6, 30, 3, 64, 8192, _card("HuggingFaceTB/SmolLM2-135M")),
    }
)
