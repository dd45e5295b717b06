"""llama.cpp's server, asked by its own endpoints.

`/slots` and `/metrics` are there only where the server was started with them; without both the load is unknown. The
server tells no use of its KV cache, and no time to the first token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from node_agent.engine import EngineLoad, Found, FoundModel
from node_agent.exposition import Rates, read_samples
from node_agent.formats import gguf_format
from node_agent.http import EngineHttp
from node_agent.model_list import list_models, whole

OWNER = "llamacpp"

_RUNNING = "llamacpp:requests_processing"
_WAITING = "llamacpp:requests_deferred"
_TOKENS = "llamacpp:tokens_predicted_total"
_NAMES = (_RUNNING, _WAITING, _TOKENS)


class LlamacppEngine:
    def __init__(self, http: EngineHttp, clock: Callable[[], float]) -> None:
        self._http = http
        self._rates = Rates(clock)

    async def describe(self) -> Found:
        props = (await self._http.ask("/props")).json()
        settings = props.get("default_generation_settings")
        # The context of one slot: the server divides its context among the slots, unless they share one cache.
        context = whole(settings.get("n_ctx")) if isinstance(settings, dict) else None
        return Found(
            engine="llama.cpp",
            version=str(props.get("build_info", "")),
            models=tuple(
                _model(entry, props, context, whole(props.get("total_slots")))
                for entry in await list_models(self._http)
            ),
        )

    async def healthy(self) -> bool:
        return (await self._http.get("/health")).ok

    async def load(self) -> EngineLoad:
        answer = await self._http.get("/metrics")
        if not answer.ok:
            return EngineLoad(running=await self._busy_slots())
        samples = read_samples(answer.text, _NAMES)
        running, waiting = samples.total(_RUNNING), samples.total(_WAITING)
        return EngineLoad(
            running=None if running is None else int(running),
            waiting=None if waiting is None else int(waiting),
            tokens_per_second=self._rates.per_second("tokens", samples.total(_TOKENS)),
        )

    async def _busy_slots(self) -> int | None:
        slots = (await self._http.get("/slots")).json_list()
        return sum(bool(slot.get("is_processing")) for slot in slots) if slots else None


def _model(entry: Mapping[str, Any], props: Mapping[str, Any], context: int | None, slots: int | None) -> FoundModel:
    meta = entry.get("meta") or {}
    name = entry["id"]
    aliases = entry.get("aliases") or ()
    return FoundModel(
        served_name=name,
        aliases=tuple(sorted(alias for alias in aliases if isinstance(alias, str) and alias != name)),
        format=_format(meta.get("ftype"), props.get("model_ftype"), props.get("model_path"), name),
        max_context=context,
        max_sequences=slots,
    )


def _format(*texts: object) -> str | None:
    return next((found for text in texts if isinstance(text, str) and (found := gguf_format(text))), None)
