"""Any other OpenAI-compatible engine: the names it lists and whether it lives. Flags tell the rest; load is unknown."""

from __future__ import annotations

from node_agent.engine import EngineLoad, Found, FoundModel
from node_agent.formats import format_of_name
from node_agent.http import EngineHttp
from node_agent.model_list import list_models


class OpenAiCompatibleEngine:
    def __init__(self, http: EngineHttp) -> None:
        self._http = http

    async def describe(self) -> Found:
        entries = await list_models(self._http)
        return Found(
            engine="openai-compatible",
            models=tuple(FoundModel(served_name=e["id"], format=format_of_name(e["id"])) for e in entries),
            health_path="/health" if (await self._http.get("/health")).ok else "",
        )

    async def healthy(self) -> bool:
        """An engine without a health check is healthy when it answers at all; server errors are what they say."""
        return (await self._http.get("/health")).status < 500

    async def load(self) -> EngineLoad:
        return EngineLoad()
