from __future__ import annotations

import pytest

from planner.quality.judging import Judged
from support.evaluation import judged

_ANIMALS = ("cat", "dog", "fox", "owl", "hen", "cow", "bee", "elk", "emu", "yak")


@pytest.fixture
def stories() -> list[Judged]:
    """Judged tolerant."""
    return [judged(f"Tell me a story about {animal}s.", 0.9, "writing", n) for n, animal in enumerate(_ANIMALS)]


@pytest.fixture
def programs() -> list[Judged]:
    """Judged sensitive."""
    return [judged(f"Write a Python function for {animal}s.", 0, "code", n) for n, animal in enumerate(_ANIMALS)]
