"""Requests as they were judged, and what was measured of them, without a system."""

from __future__ import annotations

import json

from controlplane.model import Ask, HttpRequest
from controlplane.policy.ask import parse
from controlplane.policy.classify import compile_rules
from controlplane.policy.settings import Policy
from planner.quality.asking import Mode
from planner.quality.judging import Judged
from planner.quality.measured import Comparison, Measured, Versus
from planner.quality.pairs import Pair
from planner.quality.sample import CHAT, Sample
from planner.quality.statistics import Agreement

POLICY = Policy()


def judged(text: str, temperature: float, category: str, number: int = 1) -> Judged:
    """As the default policy judges it."""
    body = {"model": "m", "temperature": temperature, "messages": [{"role": "user", "content": text}]}
    ask = parse(HttpRequest("POST", CHAT, {}, json.dumps(body).encode()), POLICY)
    assert isinstance(ask, Ask)
    found = compile_rules(POLICY.sensitivity).classify(ask, 64)
    return Judged(
        Sample(number, body), "m", category, found.verdict, found.score, found.contributions, ask, output_tokens=64
    )


def pair(steps: int, *, diverged: bool, **more: float) -> Pair:
    agreement = Agreement(steps, diverged)
    return Pair(not diverged, agreement, agreement, **more)  # type: ignore[arg-type]


def measured(of: Judged, steps: int, *, diverged: bool, noise_diverged: bool = False, **more: float) -> Measured:
    """Greedy answers that were the same for so many steps, and the full tier's own that were so for 48. Where there is
    a `prefix_shift`, the full tier's own is 0."""
    noise = {name: 0.0 for name in more if name == "prefix_shift"}
    return Measured(
        of,
        (
            Comparison(Mode.GREEDY, Versus.QUANTIZED, pair(steps, diverged=diverged, **more)),
            Comparison(Mode.GREEDY, Versus.FULL_AGAIN, pair(48, diverged=noise_diverged, **noise)),
        ),
        (),
    )
