"""What half a fleet in 4 bits is worth: tokens per second at full load, against the same number of 16-bit engines.

Decoding at an equal batch is `gain` times as fast in 4 bits (published for INT4 over FP16 on A100 SXM4: 1.7 to 1.9).
Reading prompts is not: it is bound by computing, which 4-bit weights do not speed up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from controlplane.model import Verdict
from controlplane.policy.settings import Policy
from planner.hardware.engine import EngineModel
from planner.simulation.fleet import SimulatedFleet, SimulatedPool
from planner.simulation.replications import Interval, interval, replicate
from planner.simulation.report import SimulationReport
from planner.workload.workload import Workload

# Mean tokens of prompts and answers in LMSYS-Chat-1M, by arXiv 2604.09613.
PROMPT_TOKENS, ANSWER_TOKENS = 69.5, 214.5
# Of what all engines could serve together if each were always full, so that none is ever idle.
OVERLOAD = 1.3


@dataclass(frozen=True, slots=True)
class FormatResult:
    """Output tokens per second of three fleets: all in 16 bits, half in 4 bits, and the 16-bit half of that alone."""

    gain: float
    all_full: Interval
    mixed: Interval
    half: Interval
    reports: tuple[SimulationReport, ...]

    @property
    def over_all_full(self) -> float:
        """As a share: the result that the question is about."""
        return self.mixed.mean / self.all_full.mean - 1

    @property
    def over_half(self) -> float:
        """As a share: against the engines that there were before any 4-bit ones were added."""
        return self.mixed.mean / self.half.mean - 1


def compare_formats(
    engine: EngineModel,
    gains: Sequence[float],
    *,
    tolerant: float = 0.6,
    half: int = 4,
    requests: int = 20_000,
    seeds: Sequence[int] = (1, 2, 3),
) -> Iterator[FormatResult]:
    """For each gain: `half` full and `half` quantized engines against twice as many full ones."""
    full = SimulatedPool(engine, half)
    policy = Policy()
    for gain in gains:
        quantized = SimulatedPool(in_4_bits(engine, gain), half, gain=gain)
        rate = OVERLOAD * half * (1 + gain) * _capacity(engine)

        def workload(seed: int, rate: float = rate) -> Workload:
            return chat(requests, rate, tolerant, seed)

        fleets = ((replace(full, instances=2 * half),), (full, quantized), (full,))
        all_full, mixed, alone = (replicate(workload, SimulatedFleet(pools, policy), seeds) for pools in fleets)
        yield FormatResult(gain, _tokens(all_full), _tokens(mixed), _tokens(alone), mixed)


def in_4_bits(engine: EngineModel, gain: float) -> EngineModel:
    return replace(
        engine,
        name=f"{engine.name}, 4 bits",
        quantization="int4",
        fixed_seconds=engine.fixed_seconds / gain,
        per_sequence_seconds=engine.per_sequence_seconds / gain,
    )


def chat(requests: int, rate: float, tolerant: float, seed: int) -> Workload:
    """Chats with the means of LMSYS, their lengths exponential. Of those that are not tolerant half are sensitive."""
    dice = np.random.default_rng(seed)
    rest = (1 - tolerant) / 2
    verdicts = [list(Verdict).index(each) for each in (Verdict.TOLERANT, Verdict.NEUTRAL, Verdict.SENSITIVE)]
    most = 1000  # no chat is longer than the context of the smallest engines
    return Workload(
        source=f"chats of {PROMPT_TOKENS} and {ANSWER_TOKENS} tokens on average, {tolerant:.0%} tolerant",
        arrival_seconds=np.cumsum(dice.exponential(1 / rate, requests)),
        input_tokens=np.minimum(1 + dice.exponential(PROMPT_TOKENS - 1, requests), most).astype(np.int32),
        output_tokens=np.minimum(1 + dice.exponential(ANSWER_TOKENS - 1, requests), most).astype(np.int32),
        output_cap=np.zeros(requests, np.int32),
        verdict=dice.choice(verdicts, requests, p=[tolerant, rest, rest]).astype(np.uint8),
    )


def _capacity(engine: EngineModel) -> float:
    """Requests per second of one that is always full."""
    mean = PROMPT_TOKENS + ANSWER_TOKENS / 2
    iteration = engine.iteration_seconds(engine.max_sequences, mean)
    prefill = engine.seconds_per_token * PROMPT_TOKENS
    return 1 / (ANSWER_TOKENS * iteration / engine.max_sequences + prefill)


def _tokens(reports: Sequence[SimulationReport]) -> Interval:
    return interval(reports, lambda report: report.whole.tokens_per_second)
