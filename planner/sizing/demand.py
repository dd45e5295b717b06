"""What the requests of one pool ask of an engine, as the few numbers that sizing needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Demand:
    """Of requests that arrive `rate` a second, with the squared coefficient of variation `arrival_cv2` of the times
    between. Means over requests:

    An answered request has taken part in `iterations`: `chunks` of its prompt, of `chunk_tokens` on average, and one
    for each token of the answer. `iterations_cv2` is their squared coefficient of variation. Over the time that
    requests run, a sequence has `resident_tokens` in the KV cache, with the standard deviation `resident_deviation`.
    `p99_chunks` of a prompt are not passed by 99% of them; `longest` is the most tokens of any in all.
    """

    rate: float
    arrival_cv2: float
    chunks: float
    chunk_tokens: float
    iterations: float
    iterations_cv2: float
    resident_tokens: float
    resident_deviation: float
    p99_chunks: int
    longest: int
    output_tokens: float

    @property
    def prefill_share(self) -> float:
        """Of a sequence's iterations, those that read its prompt."""
        return self.chunks / self.iterations


def demand(workload: Workload, rate: float, arrival_cv2: float, chunk_tokens: int) -> Demand:
    """Of at least one request, read in chunks of so many tokens."""
    prompts = workload.input_tokens.astype(np.float64)
    answers = workload.output_tokens.astype(np.float64)
    chunks = np.ceil(prompts / chunk_tokens)
    iterations = chunks + answers
    whole = iterations.sum()
    # A prompt grows evenly over its chunks, an answer by one over each of its tokens.
    filled = (chunks * prompts / 2 + answers * (prompts + answers / 2)).sum() / whole
    squared = (chunks * prompts**2 / 3 + answers * (prompts**2 + prompts * answers + answers**2 / 3)).sum() / whole
    return Demand(
        rate=rate,
        arrival_cv2=arrival_cv2,
        chunks=float(chunks.mean()),
        chunk_tokens=float(prompts.sum() / chunks.sum()),
        iterations=float(iterations.mean()),
        iterations_cv2=float(iterations.var() / iterations.mean() ** 2),
        resident_tokens=float(filled),
        resident_deviation=float(np.sqrt(max(squared - filled**2, 0.0))),
        p99_chunks=int(np.quantile(chunks, 0.99, method="higher")),
        longest=int(workload.total_tokens.max()),
        output_tokens=float(answers.mean()),
    )
