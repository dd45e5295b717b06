"""A real llama.cpp engine for a test, with the demo's model."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from controlplane import child
from headrace.demo.models import cache_folder, find_q4_model, make_f16_model
from support.waiting import until

START_SECONDS = 90.0  # from a cold disk on a busy machine
STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RunningLlama:
    """`address` is `ip:port`; `model` the name it is served under."""

    model: str
    url: str
    process: Process

    @property
    def address(self) -> str:
        return self.url.removeprefix("http://")


def model_file(quantization: Literal["q4", "f16"]) -> Path:
    """The demo's own files; the 16-bit one is made when no run has made it yet."""
    source = find_q4_model()
    return source if quantization == "q4" else make_f16_model(source, cache_folder(os.environ), lambda *_: None)


@asynccontextmanager
async def running_llama(
    quantization: Literal["q4", "f16"] = "q4",
    *,
    model: str = "smollm2-135m",
    context: int = 2048,
    slots: int = 2,
    embeddings: bool = True,
) -> AsyncIterator[RunningLlama]:
    """An engine on a free port that is ready to serve. `context` is in tokens for each of `slots` sequences."""
    argv = [sys.executable, "-m", "headrace.demo.engine", str(model_file(quantization)), "0", model]
    argv += ["--context", str(context), "--slots", str(slots), *(["--embeddings"] if embeddings else [])]
    with tempfile.NamedTemporaryFile(prefix="llama-", suffix=".log") as log:

        def started() -> str | None:
            log.seek(0)
            text = log.read().decode(errors="replace")
            assert process.returncode is None, f"the engine ended while starting:\n{text}"
            match = re.search(r" on (http://[0-9.]+:[0-9]+)\n", text)
            return match and match[1]

        process = await child.start(argv, stdout=log)
        try:
            url = await until(started, START_SECONDS)
            yield RunningLlama(model, url, process)
        finally:
            await child.stop(process, STOP_SECONDS)
