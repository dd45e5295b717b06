"""What is expected of a model's tokenizer and answers before anything is learned.

The coefficients are the means of least-squares fits for four tokenizers (Qwen 2.5 and 3.6, DeepSeek V4, Mistral Tekken)
on English, code, JSON, tool calls, mixed text and eight languages besides; `python bench/estimator_accuracy.py priors`
fits them anew. The spreads say how far another tokenizer may be from them: a prior is given up the sooner, the larger
its spread.
"""

from __future__ import annotations

from types import MappingProxyType

from controlplane.features import FEATURES, Category

# To be raised with every change below and of the features: statistics are relative to them.
PRIORS_VERSION = 2

# Of an output schema: what JSON takes, where the engine shows it to the model. Most engines only bind the sampling by
# it, which is soon learned.
TOKENS_PER_SCHEMA_BYTE = 0.25

_TOKENS = MappingProxyType(
    {  # feature: (tokens per unit, spread)
        "request": (8.0, 8.0),
        "messages": (2.0, 2.0),
        "tool_lists": (70.0, 60.0),
        "tools": (5.0, 4.0),
        "calls": (20.0, 12.0),
        "images": (1000.0, 1000.0),
        "schema_bytes": (TOKENS_PER_SCHEMA_BYTE, 0.25),
        "letters": (0.19, 0.04),
        "capitals": (0.06, 0.12),
        "digits": (1.24, 0.4),
        "punctuation": (0.33, 0.1),
        "blanks": (0.165, 0.06),
        "newlines": (1.33, 0.6),
        "blank_pairs": (-0.12, 0.1),
        "joins": (0.41, 0.2),
        "latin": (1.72, 0.7),
        "cyrillic": (0.30, 0.12),
        "semitic": (0.37, 0.15),
        "indic": (0.67, 0.4),
        "symbols": (0.71, 0.3),
        "kana": (0.57, 0.25),
        "han": (0.72, 0.3),
        "hangul": (0.74, 0.3),
        "astral": (1.85, 0.6),
    }
)
PRIOR_COEFFICIENTS = tuple(_TOKENS[name][0] for name in FEATURES)
PRIOR_SPREADS = tuple(_TOKENS[name][1] for name in FEATURES)
# The error that a request's tokens are expected to have for well-known coefficients, as a share.
PRIOR_NOISE = 0.04
PRIOR_MARGIN = 1.25
MOST_MARGIN = 2.0

# Bytes per token of the ratio estimate, and the deviation as a share of them.
PRIOR_RATIOS = MappingProxyType(
    {Category.PROSE: 4.2, Category.CODE: 3.6, Category.CJK: 3.2, Category.MIXED: 3.4, Category.OTHER: 2.2}
)
PRIOR_DEVIATION = 0.25
TOKENS_PER_IMAGE = 2048

# 99.9% of the answers in the public Azure LLM inference trace of 2023 have fewer than 940 tokens.
PRIOR_OUTPUT_TOKENS = 1000
