"""The requests that the comparison sends: chats of several sizes, tasks and temperatures, as files.

Prompts differ from their first words on, so that a router that keeps the beginnings of prompts has something to keep.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

MODEL = "llama"
KILOBYTES = (2, 50, 500)
SMALL, MIDDLE, LARGE = (f"{size} KB" for size in KILOBYTES)
MIXED = "mixed"
# Of each size; of the mixed set, by how common such prompts are: 80% small, 18% middle, 2% large.
PROMPTS = {SMALL: 64, MIDDLE: 32, LARGE: 16}
MIXED_SHARES = {SMALL: 40, MIDDLE: 9, LARGE: 1}

_TASKS = (
    ("You are a careful programmer.", "Write a Python function that reads this, and return the result as JSON.", 0.0),
    ("You are a helpful assistant.", "Write a short story about the people of the harbour.", 1.0),
    ("You answer from the text alone.", "Which of the two years had the higher costs, and by how much?", 0.2),
    ("You are a friendly companion.", "What do you think of it? Just chat with me about it.", 0.9),
)
_SENTENCES = (
    "the council met on Tuesday to discuss plans for its harbour trade and several members asked how costs of two "
    "years had been worked out since figures did not agree with what was reported before"
)


def write_bodies(folder: Path) -> dict[tuple[str, bool], list[Path]]:
    """The files by size and whether the answer is to be streamed."""
    folder.mkdir(parents=True, exist_ok=True)
    dice = random.Random(1)
    files: dict[tuple[str, bool], list[Path]] = {}
    for streamed in (False, True):
        for (size, count), kilobytes in zip(PROMPTS.items(), KILOBYTES, strict=True):
            files[size, streamed] = []
            for number in range(count):
                file = folder / f"{kilobytes}-{'stream' if streamed else 'whole'}-{number}.json"
                file.write_bytes(_chat(kilobytes * 1000, number, streamed, dice))
                files[size, streamed].append(file)
        files[MIXED, streamed] = [f for size, count in MIXED_SHARES.items() for f in files[size, streamed][:count]]
    return files


def _chat(size: int, number: int, streamed: bool, dice: random.Random) -> bytes:
    system, task, temperature = _TASKS[number % len(_TASKS)]
    body = {
        "model": MODEL,
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": ""}],
        "temperature": temperature,
        "max_tokens": 100,
        "stream": streamed,
    }
    room = size - len(json.dumps(body)) - len(task) - 2
    body["messages"] = [
        {"role": "system", "content": system},
        {"role": "user", "content": _prose(room, dice) + ". " + task},
    ]
    return json.dumps(body).encode()


def _prose(length: int, dice: random.Random) -> str:
    return " ".join(dice.choices(_SENTENCES.split(), k=length // 3))[:length]
