"""Quantization formats by the names that people and engines give them. Pure; a name that tells nothing gives None."""

from __future__ import annotations

import re

# llama.cpp's names of file types (ggml's llama_ftype_name): F16, Q4_1, "Q4_K - Medium", IQ4_XS - 4.25 bpw, MXFP4 MoE.
_GGUF_TYPE = re.compile(r"(?<![A-Za-z0-9])(?:(BF16|F16|F32)|I?Q([1-8])_[A-Z0-9]+|(MXFP4|NVFP4))(?![A-Za-z0-9])", re.I)
_FLOATS = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}

# Parts of repository names, the ones that say most first.
_NAME_PARTS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(rf"(?<![a-z0-9])(?:{pattern})(?![a-z0-9])"), format_)
    for pattern, format_ in (
        ("awq", "int4-awq"),
        (r"gptq[-_.]?int8|gptq[-_.]?8bit|w8a16", "int8"),
        (r"gptq(?:[-_.]?int4|[-_.]?4bit)?|gptqmodel|w4a16|autoround", "int4-gptq"),
        (r"bnb(?:[-_.]?(?:4bit|int4|nf4))?|nf4", "int4-bnb"),
        (r"nvfp4|fp4", "nvfp4"),
        ("mxfp4", "mxfp4"),
        (r"fp8(?:[-_.]?dynamic|[-_.]?block|[-_.]?kv)?|f8", "fp8"),
        (r"int8|w8a8|8bit|smoothquant", "int8"),
        ("bf16", "bf16"),
        ("fp16|f16", "fp16"),
    )
)


def gguf_format(text: str) -> str | None:
    """The format of a GGUF file by its type's name or its own: `gguf-q4` for Q4_K_M, `fp16` for F16."""
    found = _GGUF_TYPE.findall(text)
    if not found:
        return None
    plain, bits, fp4 = found[-1]
    if plain:
        return _FLOATS[plain.upper()]
    return fp4.lower() if fp4 else f"gguf-q{bits}"


def format_of_name(name: str) -> str | None:
    """The format that a model's or repository's name tells, such as `int4-awq` for Qwen2.5-7B-Instruct-AWQ."""
    lowered = name.lower()
    if "gguf" in lowered:
        return gguf_format(name)
    return next((format_ for pattern, format_ in _NAME_PARTS if pattern.search(lowered)), None)
