"""The summaries that come with the package, so that a fleet can be planned without any trace at hand.

Each file of `summaries/` holds a histogram of a public trace, or a published distribution, with its source and licence.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from controlplane.errors import ConfigurationError
from planner.workload.arrivals import poisson
from planner.workload.cdf import TokenCdf, of_points, split
from planner.workload.histogram import TokenHistogram
from planner.workload.workload import NO_CAP, Workload

NAMES = ("agent-heavy", "azure-2023", "azure-2023-code", "azure-2023-conv", "lmsys")


@dataclass(frozen=True, slots=True)
class Summary:
    """`tokens` is a histogram of prompts and answers, or the distribution of their sum, of which `input_share` is
    prompt. `requests_per_second` are those of the trace; 1 where it has no times."""

    name: str
    source: str
    tokens: TokenHistogram | TokenCdf
    input_share: float
    requests_per_second: float

    def sample(self, requests: int, per_second: float, dice: np.random.Generator) -> Workload:
        """So many requests, arriving as a Poisson process, without caps."""
        if isinstance(self.tokens, TokenHistogram):
            prompts, answers = self.tokens.sample(requests, dice)
        else:
            prompts, answers = split(self.tokens.sample(requests, dice), self.input_share)
        return Workload(
            source=f"{self.name}, drawn from a summary of: {self.source}",
            arrival_seconds=poisson(requests, per_second, dice),
            input_tokens=prompts,
            output_tokens=answers,
            output_cap=np.full(requests, NO_CAP, dtype=np.int32),
        )


def shipped(name: str) -> Summary:
    """Raises ConfigurationError for a name that is not among NAMES."""
    if name not in NAMES:
        raise ConfigurationError([f"{name}: is no file, and none of the summaries that there are: {', '.join(NAMES)}"])
    document = json.loads((files("planner.workload") / "summaries" / f"{name}.json").read_text(encoding="utf-8"))
    tokens = of_points(document["cdf"], name) if "cdf" in document else _histogram(document)
    return Summary(
        name=name,
        source=document["source"],
        tokens=tokens,
        input_share=document.get("input_share", 0.0),
        requests_per_second=document.get("requests_per_second", 1.0),
    )


def document_of(histogram: TokenHistogram, source: str, requests_per_second: float) -> dict[str, object]:
    """What a file of `summaries/` holds. Counts are lists [bucket of the prompt, bucket of the answer, requests]."""
    return {
        "source": source,
        "requests_per_second": round(requests_per_second, 4),
        "input_bounds": histogram.input_bounds.tolist(),
        "output_bounds": histogram.output_bounds.tolist(),
        "counts": [[int(i), int(j), int(histogram.counts[i, j])] for i, j in np.argwhere(histogram.counts)],
    }


def _histogram(document: dict[str, Sequence[Sequence[int]]]) -> TokenHistogram:
    prompts, answers = (np.array(document[key], dtype=np.int32) for key in ("input_bounds", "output_bounds"))
    counts = np.zeros((prompts.size - 1, answers.size - 1), dtype=np.int64)
    for i, j, requests in document["counts"]:
        counts[i, j] = requests
    return TokenHistogram(prompts, answers, counts)
