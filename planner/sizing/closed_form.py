"""The closed form of token-budget pool routing: savings = alpha (1 - 1 / rho) (arXiv 2604.09613, 2604.08075).

`alpha` is the share of the requests that fit a short engine, `rho` how many times as many requests a second it serves
as one that is set up for the longest. With an arrival rate L and a long engine's rate m one pool needs L / m engines,
two pools alpha L / (rho m) + (1 - alpha) L / m; the difference over the first is the closed form.
"""

from __future__ import annotations

from planner.hardware.engine import EngineModel

ASSUMPTIONS = (
    "both classes of requests cost a long engine the same, though long requests take longer",
    "engines are used to the full: nothing waits, and pools need no slack",
    "engines can be had in parts",
    "every request is known to be short or long before it is answered",
    "an engine runs as many sequences as hold its whole context, whatever they really use",
)


def saving(alpha: float, rho: float) -> float:
    """The share of the engines that two pools save against one, at most; negative where rho is below 1."""
    return alpha * (1 - 1 / rho)


def throughput_gain(profile: EngineModel, short: tuple[int, float], long: tuple[int, float]) -> float:
    """rho, from the sequences that run at once in each class and their mean tokens, for requests of like length."""

    def speed(sequences: int, mean_tokens: float) -> float:
        return sequences / profile.iteration_seconds(sequences, mean_tokens)

    return speed(*short) / speed(*long)
