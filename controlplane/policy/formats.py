"""Quantization formats: which tier a format belongs to, and how faithful it is within its tier."""

from __future__ import annotations

from controlplane.model import FormatTier
from controlplane.policy.settings import FormatRules


def tier_of(name: str, rules: FormatRules) -> FormatTier:
    """The tier of a format by its name; `rules.unknown` for a name that no list covers."""
    found = _find(name, rules)
    return rules.unknown if found is None else found[0]


def is_listed(name: str, rules: FormatRules) -> bool:
    """Whether a list covers the format; the tier of one that is not listed is a guess."""
    return _find(name, rules) is not None


def fidelity_of(name: str, rules: FormatRules) -> float:
    """How faithful a format is within its tier, 1 for the best listed one; 0 for a name that no list covers."""
    found = _find(name, rules)
    if found is None:
        return 0.0
    tier, index = found
    return 1.0 - index / len(_names(tier, rules))


def _find(name: str, rules: FormatRules) -> tuple[FormatTier, int] | None:
    """The tier and index of the longest listed name that is `name` or begins it, up to a separator."""
    wanted = name.lower()
    best: tuple[int, FormatTier, int] | None = None
    for tier in FormatTier:
        for index, listed in enumerate(_names(tier, rules)):
            size = len(listed)
            covers = wanted.startswith(listed.lower()) and (len(wanted) == size or wanted[size] in "-_.:")
            if covers and (best is None or size > best[0]):
                best = (size, tier, index)
    return best and best[1:]


def _names(tier: FormatTier, rules: FormatRules) -> tuple[str, ...]:
    return rules.full if tier is FormatTier.FULL else rules.quantized
