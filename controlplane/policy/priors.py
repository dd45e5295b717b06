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
PRIORS_VERSION = 3

# Of an output schema: what JSON takes, where the engine shows it to the model. Most engines only bind the sampling by
# it, which is soon learned.
TOKENS_PER_SCHEMA_BYTE = 0.25

_TOKENS = MappingProxyType(
    {  # feature: (tokens per unit, spread)
        "request": (8.0, 8.0),
        "messages": (2.0, 2.0),
        "tool_lists": (69.0, 60.0),
        "tools": (2.0, 7.0),
        "calls": (5.0, 14.0),
        "images": (1000.0, 1000.0),
        "schema_bytes": (TOKENS_PER_SCHEMA_BYTE, 0.25),
        "letters": (0.177, 0.04),
        "capitals": (0.06, 0.12),
        "digits": (1.36, 0.4),
        "punctuation": (0.175, 0.1),
        "blanks": (0.22, 0.1),
        "newlines": (1.1, 0.5),
        "blank_pairs": (-0.36, 0.2),
        "words": (-0.03, 0.12),
        "joins": (0.75, 0.25),
        "stops": (0.62, 0.2),
        "indents": (0.74, 0.4),
        "triples": (-0.79, 0.4),
        "latin": (1.85, 0.7),
        "cyrillic": (0.29, 0.12),
        "semitic": (0.37, 0.15),
        "indic": (0.67, 0.4),
        "symbols": (0.84, 0.3),
        "marks": (-0.1, 0.5),
        "kana": (0.58, 0.25),
        "han": (0.74, 0.3),
        "hangul": (0.72, 0.3),
        "astral": (4.0, 1.5),
    }
)
PRIOR_COEFFICIENTS = tuple(_TOKENS[name][0] for name in FEATURES)
PRIOR_SPREADS = tuple(_TOKENS[name][1] for name in FEATURES)
# The error that a request's tokens are expected to have for well-known coefficients, as a share.
PRIOR_NOISE = 0.04
# By what factor a long request's tokens are expected to exceed the estimate at most.
PRIOR_MARGIN = 1.2
MOST_MARGIN = 2.0
# What an estimate is off by is partly chance, which a long text averages out: of a request of so many tokens the square
# is twice that of a long one. Fitted to the errors of the same four tokenizers.
CHANCE_TOKENS = 256.0

# Bytes per token of the ratio estimate, and the deviation as a share of them.
PRIOR_RATIOS = MappingProxyType(
    {Category.PROSE: 4.2, Category.CODE: 3.6, Category.CJK: 3.2, Category.MIXED: 3.4, Category.OTHER: 2.2}
)
PRIOR_DEVIATION = 0.25
TOKENS_PER_IMAGE = 2048

# 99.9% of the answers in the public Azure LLM inference trace of 2023 have fewer than 940 tokens.
PRIOR_OUTPUT_TOKENS = 1000
