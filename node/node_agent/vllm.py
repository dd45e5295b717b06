"""vLLM, asked by its own endpoints and metrics.

It does not tell how many sequences it runs at once (`--max-num-seqs`) nor the precision of unquantized weights, so
those come from flags.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from node_agent.engine import EngineLoad, Found
from node_agent.exposition import PROCESS_START, Rates, Samples, process_start, read_samples
from node_agent.http import EngineHttp
from node_agent.model_list import list_models, models_by_root, whole

OWNER = "vllm"

_RUNNING = "vllm:num_requests_running"
_WAITING = "vllm:num_requests_waiting"
_KV_USE = "vllm:kv_cache_usage_perc"
_KV_USE_BEFORE_0_10 = "vllm:gpu_cache_usage_perc"
_TOKENS = "vllm:generation_tokens_total"
_TTFT_SUM = "vllm:time_to_first_token_seconds_sum"
_TTFT_COUNT = "vllm:time_to_first_token_seconds_count"
_CACHE = "vllm:cache_config_info"
_LOAD_NAMES = (_RUNNING, _WAITING, _KV_USE, _KV_USE_BEFORE_0_10, _TOKENS, _TTFT_SUM, _TTFT_COUNT)


class VllmEngine:
    def __init__(self, http: EngineHttp, clock: Callable[[], float]) -> None:
        self._http = http
        self._rates = Rates(clock)

    async def describe(self) -> Found:
        models = models_by_root(await list_models(self._http))
        version = (await self._http.ask("/version")).json().get("version", "")
        samples = read_samples((await self._http.ask("/metrics")).text, (_CACHE, PROCESS_START))
        kv_cache_tokens = _kv_cache_tokens(samples)
        return Found(
            engine="vllm",
            version=str(version),
            models=tuple(replace(model, kv_cache_tokens=kv_cache_tokens) for model in models),
            instance=process_start(samples),
        )

    async def healthy(self) -> bool:
        return (await self._http.get("/health")).ok

    async def load(self) -> EngineLoad:
        samples = read_samples((await self._http.get("/metrics")).text, _LOAD_NAMES)
        running, waiting = samples.total(_RUNNING), samples.total(_WAITING)
        return EngineLoad(
            running=None if running is None else int(running),
            waiting=None if waiting is None else int(waiting),
            kv_cache_use=samples.mean(_KV_USE, _KV_USE_BEFORE_0_10),
            tokens_per_second=self._rates.per_second("tokens", samples.total(_TOKENS)),
            ttft_seconds=self._rates.mean("ttft", samples.total(_TTFT_SUM), samples.total(_TTFT_COUNT)),
        )


def _kv_cache_tokens(samples: Samples) -> int | None:
    """Summed over data-parallel engines. The size in tokens, which newer versions tell, is right for all models."""
    total = 0
    for labels in samples.labels(_CACHE):
        tokens = whole(labels.get("kv_cache_size_tokens"))
        if tokens is None:
            blocks, size = whole(labels.get("num_gpu_blocks")), whole(labels.get("block_size"))
            tokens = blocks * size if blocks and size else None
        if tokens is None:
            return None
        total += tokens
    return total or None
