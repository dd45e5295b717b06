"""The proxy of LiteLLM with one worker, balancing between the two engines."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from environments import environment

from peers.contestant import Contestant, Engines, Running, free_port, program

VERSION = "1.108.7"

_MODEL = """
  - model_name: {model}
    litellm_params: {{model: openai/{model}, api_base: "{url}/v1", api_key: none}}"""


@asynccontextmanager
async def _start(engines: Engines, folder: Path) -> AsyncIterator[Running]:
    port = free_port()
    config = folder / "litellm.yaml"
    config.write_text("model_list:" + "".join(_MODEL.format(model=engines.model, url=url) for url in engines.urls))
    proxy = environment("litellm", f"litellm[proxy]=={VERSION}") / "bin" / "litellm"
    argv: list[str | Path] = [proxy, "--config", config, "--num_workers", "1"]
    argv += ["--host", "127.0.0.1", "--port", str(port)]
    # Neither keys nor a price list from the network: nothing that it would not need here.
    env = os.environ | {
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
    }
    env.pop("PYTHONPATH", None)
    async with program(argv, port, "proxy", folder, env) as running:
        yield running


LITELLM = Contestant("litellm", f"LiteLLM {VERSION}, one worker", _start, most_rate=60.0)
