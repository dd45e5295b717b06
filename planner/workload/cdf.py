"""Distributions of total tokens, as papers publish them: points (tokens, share of the requests with at most so many).

Between two points totals are taken to be uniform. How a total parts into prompt and answer is not told by them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from controlplane.errors import ConfigurationError
from planner.workload.workload import Integers

# What the papers' simulator splits by. Of Azure's traces the prompt's share is 0.90, of its code alone 0.99.
INPUT_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class TokenCdf:
    """`tokens` and `shares` ascend; the last share is 1, and no request has more than the last tokens."""

    tokens: tuple[int, ...]
    shares: tuple[float, ...]

    def share_up_to(self, tokens: float) -> float:
        """The share of the requests with at most so many tokens in all."""
        return float(np.interp(tokens, (0, *self.tokens), (0.0, *self.shares)))

    def sample(self, requests: int, dice: np.random.Generator) -> Integers:
        """Totals of at least 2 tokens: one of the prompt and one of the answer."""
        drawn = np.interp(dice.random(requests), (0.0, *self.shares), (0, *self.tokens))
        return np.maximum(np.ceil(drawn), 2).astype(np.int32)


def split(totals: Integers, input_share: float) -> tuple[Integers, Integers]:
    """Prompt and answer of each total, at least a token each."""
    prompts = np.clip((totals * input_share).astype(np.int32), 1, totals - 1)
    return prompts, totals - prompts


def read_cdf(text: str, name: str) -> TokenCdf:
    """A JSON list of [tokens, share], or an object with it as `cdf`. Raises ConfigurationError with every fault."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigurationError([f"{name}:{error.lineno}: is no JSON: {error.msg}"]) from None
    points = document.get("cdf") if isinstance(document, dict) else document
    if not isinstance(points, list) or not points or not all(_is_point(point) for point in points):
        raise ConfigurationError([f"{name}: has no list of points [tokens, share of the requests up to them]"])
    return of_points([(int(tokens), float(share)) for tokens, share in points], name)


def of_points(points: Sequence[tuple[int, float]], name: str) -> TokenCdf:
    """Raises ConfigurationError with all that is wrong."""
    faults = [
        f"{name}: point {number} is {point}, and does not follow {before}"
        for number, (before, point) in enumerate(pairwise(points), start=2)
        if point[0] <= before[0] or point[1] < before[1]
    ]
    if points[0][0] < 1 or points[0][1] < 0:
        faults.append(f"{name}: point 1 is {points[0]}; tokens begin at 1, shares at 0")
    if points[-1][1] != 1:
        faults.append(f"{name}: the last share is {points[-1][1]}, and not 1")
    if faults:
        raise ConfigurationError(faults)
    tokens, shares = zip(*points, strict=True)
    return TokenCdf(tokens, shares)


def _is_point(point: object) -> bool:
    return isinstance(point, list) and len(point) == 2 and all(isinstance(each, int | float) for each in point)
