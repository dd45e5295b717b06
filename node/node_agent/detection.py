"""Which kind of engine answers at an address: it says so itself, as the owner of the models it lists."""

from __future__ import annotations

from collections.abc import Callable

from node_agent import llamacpp, sglang, vllm
from node_agent.engine import Engine
from node_agent.http import EngineHttp
from node_agent.model_list import list_models
from node_agent.openai_compatible import OpenAiCompatibleEngine


async def detect_engine(http: EngineHttp, clock: Callable[[], float]) -> Engine | None:
    """The adapter for the engine; None while it does not serve yet. Raises EngineUnavailableError when nothing answers.

    `clock` is monotonic, in seconds.
    """
    if (await http.get("/health")).status >= 500:
        return None
    match {entry.get("owned_by") for entry in await list_models(http)}:
        case owners if vllm.OWNER in owners:
            return vllm.VllmEngine(http, clock)
        case owners if sglang.OWNER in owners:
            return sglang.SglangEngine(http, clock)
        case owners if llamacpp.OWNER in owners:
            return llamacpp.LlamacppEngine(http, clock)
        case _:
            return OpenAiCompatibleEngine(http)
