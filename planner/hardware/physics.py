"""An engine from first principles: what its GPUs can read, hold and compute, against what the model asks of them.

Decoding is bound by memory: each iteration reads the weights once and every sequence's KV cache once, at the share of
the bandwidth that kernels reach. Prefill is bound by computing: two operations for each active parameter and token, at
the share of the peak that engines reach. These shares are assumptions, the same for all GPUs; measured numbers are
better (`planner.hardware.measured`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

from controlplane.errors import ConfigurationError
from planner.hardware.catalogue import GPUS, MODELS, Gpu, Model
from planner.hardware.engine import EngineModel, PowerCurve

_Entry = TypeVar("_Entry")

REACHED_BANDWIDTH = 0.80
REACHED_FLOPS = 0.50
# Kernel launches and the all-reduce of each layer.
LAYER_SECONDS = 3e-6
# The share of the memory that an engine uses at all, as vLLM's --gpu-memory-utilization; and what activations and the
# buffers of collectives take of it on each GPU.
USED_MEMORY = 0.90
ACTIVATION_BYTES = 2e9
BLOCK_TOKENS = 16
CHUNK_TOKENS = 512
MAX_SEQUENCES = 256
REFERENCE_TOKENS = 8192
_LARGE_MEMORY = 70 * 2**30

# Bits for each weight. 4-bit formats store a 16-bit scale and a 4-bit zero for each group of 128 (AWQ, GPTQ).
BITS: Mapping[str, float] = MappingProxyType({"fp16": 16.0, "fp8": 8.0, "int4": 4 + (16 + 4) / 128})
# Watts without a request, of the design power, and where the curve of the load rises: measured on H100 by ML.ENERGY
# (Chung et al., NeurIPS 2025), as the fleet simulator of vllm-project/semantic-router fits it.
IDLE_POWER, NOMINAL_POWER, POWER_SLOPE, POWER_MIDPOINT = 300 / 700, 600 / 700, 1.0, 4.2


def engine(model_name: str, gpu_name: str, gpus: int, quantization: str = "fp16") -> EngineModel:
    """An instance of `gpus` GPUs that divide the model (tensor parallel), in fp16, fp8 or int4. Names are of any case.

    Raises ConfigurationError for an unknown name, and when the weights leave no room for a KV cache.
    """
    model_name, model = _known(MODELS, model_name, "model")
    gpu_name, gpu = _known(GPUS, gpu_name, "GPU")
    quantization, bits = _known(BITS, quantization, "format")
    if gpus < 1:
        raise ConfigurationError([f"an instance has at least 1 GPU, and not {gpus}"])
    name = f"{model_name} {quantization} on {gpus} x {gpu_name}"
    free = USED_MEMORY * gpu.memory - weight_bytes(model, bits) / gpus - ACTIVATION_BYTES
    kv_bytes = model.kv_bytes_per_token(gpus)
    kv_blocks = int(free // (kv_bytes * BLOCK_TOKENS))
    if kv_blocks < 1:
        raise ConfigurationError([f"{name}: its weights leave no memory for a KV cache; take more GPUs or fewer bits"])
    bandwidth = REACHED_BANDWIDTH * gpu.bandwidth
    return EngineModel(
        name=name,
        gpus=gpus,
        fixed_seconds=weights_seconds(model, gpu, gpus, quantization) + LAYER_SECONDS * model.layers,
        per_sequence_seconds=REFERENCE_TOKENS * kv_bytes / bandwidth,
        chunk_tokens=CHUNK_TOKENS,
        kv_blocks=kv_blocks,
        max_sequences=MAX_SEQUENCES,
        max_context=min(model.max_context, kv_blocks * BLOCK_TOKENS),
        dollars_per_hour=gpus * gpu.dollars_per_hour,
        seconds_per_token=2 * model.active_parameters / (gpus * _flops(gpu, quantization) * REACHED_FLOPS),
        reference_tokens=REFERENCE_TOKENS,
        scales_with_length=True,
        block_tokens=BLOCK_TOKENS,
        quantization=quantization,
        power=PowerCurve(gpus * IDLE_POWER * gpu.watts, gpus * NOMINAL_POWER * gpu.watts, POWER_SLOPE, POWER_MIDPOINT),
        source=f"first principles; {gpu_name}: {gpu.source}; {model_name}: {model.source}",
    )


def weight_bytes(model: Model, bits: float) -> float:
    """Of all GPUs together."""
    return (model.parameters - model.embedding_parameters) * bits / 8 + model.embedding_parameters * 2


def weights_seconds(model: Model, gpu: Gpu, gpus: int, quantization: str) -> float:
    """To read all weights once. Of a mixture of experts too: a batch of some size wakes nearly all of them."""
    reads = REACHED_BANDWIDTH * gpu.bandwidth * gpus
    if quantization == "int4":
        return weight_bytes(model, 16) / reads / gpu.four_bit_gain
    return weight_bytes(model, BITS[quantization]) / reads


def _flops(gpu: Gpu, quantization: str) -> float:
    """4-bit weights are multiplied in 16 bits (Marlin and its like), 8-bit ones in 8 where the GPU can."""
    return gpu.flops * (gpu.eight_bit_compute if quantization == "fp8" else 1.0)


def default_token_budget(gpu_name: str) -> int:
    """What vLLM's server computes at most in an iteration, if not told otherwise (`get_batch_defaults` of its
    `EngineArgs`): more on large GPUs, but for A100, where it would be slower. Raises ConfigurationError."""
    name, gpu = _known(GPUS, gpu_name, "GPU")
    return 8192 if gpu.memory >= _LARGE_MEMORY and name != "A100" else 2048


def _known(entries: Mapping[str, _Entry], name: str, what: str) -> tuple[str, _Entry]:
    """As the catalogue spells it, and what it is."""
    for key, entry in entries.items():
        if key.lower() == name.lower():
            return key, entry
    raise ConfigurationError([f"{what} {name!r} is not in the catalogue; there are: {', '.join(entries)}"])
