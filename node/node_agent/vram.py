"""The GPUs of this machine, read through NVML where there are any."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_VENDORS = {"nvidia", "geforce", "tesla", "quadro", "amd", "instinct"}
_NOISE = {"generation", "edition", "gpu"}
_MEMORY = re.compile(r"\d+gb|hbm\d+e?")


@dataclass(frozen=True, slots=True)
class Gpu:
    """`name` as the driver reports it, `memory` in bytes."""

    uuid: str
    name: str
    memory: int


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of a node: the first one's name, how many, and their memory in bytes together."""

    name: str = ""
    count: int = 0
    memory: int = 0

    @property
    def hardware_class(self) -> str:
        return hardware_class(self.name)


def read_gpus(visible: str | None) -> Gpus:
    """The GPUs that a process with CUDA_VISIBLE_DEVICES=`visible` sees; none without a GPU or its driver."""
    import pynvml  # noqa: PLC0415 - machines without a GPU need none of it

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return Gpus()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        gpus = [
            Gpu(
                uuid=pynvml.nvmlDeviceGetUUID(handle),
                name=pynvml.nvmlDeviceGetName(handle),
                memory=pynvml.nvmlDeviceGetMemoryInfo(handle).total,
            )
            for handle in handles
        ]
    except pynvml.NVMLError:
        return Gpus()
    finally:
        pynvml.nvmlShutdown()
    return sum_up(visible_gpus(gpus, visible))


def visible_gpus(gpus: Sequence[Gpu], visible: str | None) -> tuple[Gpu, ...]:
    """By the rules of CUDA_VISIBLE_DEVICES: indices or beginnings of UUIDs, ended by the first that fits no GPU."""
    if visible is None:
        return tuple(gpus)
    seen: list[Gpu] = []
    for raw in visible.split(","):
        part = raw.strip()
        if part.isdecimal():
            found = gpus[int(part)] if int(part) < len(gpus) else None
        else:
            found = next((gpu for gpu in gpus if part and gpu.uuid.startswith(part)), None)
        if found is None:
            break
        seen.append(found)
    return tuple(seen)


def sum_up(gpus: Sequence[Gpu]) -> Gpus:
    return Gpus(gpus[0].name, len(gpus), sum(gpu.memory for gpu in gpus)) if gpus else Gpus()


def hardware_class(name: str) -> str:
    """A GPU's class by its name: `a100-sxm4` for NVIDIA A100-SXM4-80GB, `rtx-4090` for NVIDIA GeForce RTX 4090."""
    words = re.split(r"[\s\-_/]+", name.strip().lower())
    return "-".join(w for w in words if w and w not in _VENDORS | _NOISE and not _MEMORY.fullmatch(w))
