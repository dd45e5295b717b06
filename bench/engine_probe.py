"""A short probe of a llama.cpp engine, and the planner's model of it by what the probe found.

Two things are measured: how long prompts of several lengths take to the first token, one at a time, and how long an
iteration takes while 1 to all sequences decode. Asked by the server's own `/completion`, since that tells with each
piece of an answer which token it is.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import fmean

import httpx
import numpy as np

from headrace.demo.fleet import DemoEngine
from planner.hardware.engine import EngineModel

WORDS = (
    "river",
    "stone",
    "window",
    "garden",
    "cloud",
    "table",
    "winter",
    "bridge",
    "meadow",
    "candle",
    "forest",
    "basket",
)
# llama.cpp's `n_batch`, which the demo leaves as it is: an iteration takes all prompts that wait, up to so many tokens.
BATCH_TOKENS = 2048
BLOCK_TOKENS = 16
# Sequences that decode are as long as those of the load are on average, about.
DECODING_WORDS, DECODED_TOKENS = 60, 32
# Of words; about as many tokens.
PREFILL_WORDS = (40, 60, 80, 120)
REPEATS = 2


@dataclass(frozen=True, slots=True)
class Samples:
    """`prefills` are (tokens, seconds to the first token), `iterations` (sequences that decode, seconds of one)."""

    prefills: Sequence[tuple[int, float]]
    iterations: Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer: tokens of its prompt, when it was asked for, and when each token came, by `time.perf_counter`."""

    prompt_tokens: int
    asked: float
    came: Mapping[int, float]


def fitted(engine: DemoEngine, samples: Samples) -> EngineModel:
    """Seconds per prompt token are those of all prompts together; the iteration is a straight line by least squares."""
    tokens, seconds = (sum(values) for values in zip(*samples.prefills, strict=True))
    sequences, iterations = zip(*samples.iterations, strict=True)
    if len(set(sequences)) > 1:
        each, fixed = np.polyfit(sequences, iterations, 1)
    else:
        each, fixed = 0.0, fmean(iterations)
    return EngineModel(
        name=engine.name,
        gpus=1,
        fixed_seconds=max(float(fixed), 0.0),
        per_sequence_seconds=max(float(each), 0.0),
        seconds_per_token=seconds / tokens,
        chunk_tokens=BATCH_TOKENS,
        kv_blocks=engine.slots * engine.context // BLOCK_TOKENS,
        max_sequences=engine.slots,
        max_context=engine.context,
        dollars_per_hour=0.0,
        block_tokens=BLOCK_TOKENS,
        quantization=engine.quantization,
        source="probed",
    )


def iteration_seconds(answers: Sequence[Streamed]) -> float:
    """Of the iterations in which all of them decode: from the first token of the last to begin until the last token of
    the first to end."""
    begin = max(min(answer.came.values()) for answer in answers)
    end = min(max(answer.came.values()) for answer in answers)
    found = []
    for answer in answers:
        within = sorted((token, at) for token, at in answer.came.items() if begin <= at <= end)
        (first, began), (last, ended) = within[0], within[-1]
        found.append((ended - began) / (last - first))
    return fmean(found)


async def probe(http: httpx.AsyncClient, url: str, slots: int, dice: random.Random) -> Samples:
    prefills = []
    for words in (*PREFILL_WORDS,) * REPEATS:
        answer = await _ask(http, url, words, 1, dice)
        prefills.append((answer.prompt_tokens, min(answer.came.values()) - answer.asked))
    iterations = []
    for sequences in range(1, slots + 1):
        asked = (_ask(http, url, DECODING_WORDS, DECODED_TOKENS, dice) for _ in range(sequences))
        iterations.append((sequences, iteration_seconds(await asyncio.gather(*asked))))
    return Samples(prefills, iterations)


@asynccontextmanager
async def kept_busy(http: httpx.AsyncClient, url: str, slots: int, dice: random.Random) -> AsyncIterator[None]:
    """As long as the context lasts all slots of the engine are full, with prompts to read now and then."""

    async def keep_asking() -> None:
        while True:
            await _ask(http, url, DECODING_WORDS, DECODED_TOKENS, dice)

    async with asyncio.TaskGroup() as tasks:
        asking = [tasks.create_task(keep_asking()) for _ in range(slots)]
        yield
        for task in asking:
            task.cancel()


def some_words(count: int, dice: random.Random) -> str:
    return " ".join(dice.choices(WORDS, k=count))


async def _ask(http: httpx.AsyncClient, url: str, words: int, tokens: int, dice: random.Random) -> Streamed:
    body = {
        "prompt": some_words(words, dice),
        "n_predict": tokens,
        "ignore_eos": True,
        "cache_prompt": False,  # the simulator knows no prefix caches
        "stream": True,
    }
    prompt_tokens, asked = 0, time.perf_counter()
    came: dict[int, float] = {}
    async with http.stream("POST", f"{url}/completion", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                piece = json.loads(line.removeprefix("data: "))
                prompt_tokens = piece["tokens_evaluated"]
                if piece["tokens_predicted"]:
                    came.setdefault(piece["tokens_predicted"], time.perf_counter())
    return Streamed(prompt_tokens, asked, came)
