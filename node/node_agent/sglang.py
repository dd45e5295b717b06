"""SGLang, asked by its own endpoints; its load needs the engine's `--enable-metrics`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from node_agent.engine import EngineLoad, Found
from node_agent.exposition import PROCESS_START, Rates, Samples, process_start, read_samples
from node_agent.formats import format_of_name
from node_agent.http import EngineHttp
from node_agent.model_list import list_models, models_by_root, whole

OWNER = "sglang"

_RUNNING = "sglang:num_running_reqs"
_WAITING = "sglang:num_queue_reqs"
_KV_USE = "sglang:token_usage"
_TOKENS = "sglang:generation_tokens_total"
_TTFT_SUM = "sglang:time_to_first_token_seconds_sum"
_TTFT_COUNT = "sglang:time_to_first_token_seconds_count"
_NAMES = (_RUNNING, _WAITING, _KV_USE, _TOKENS, _TTFT_SUM, _TTFT_COUNT)
# Every data-parallel engine has its own queue and cache; its tensor-parallel ranks all report them.
_RANK = "dp_rank"
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}


class SglangEngine:
    def __init__(self, http: EngineHttp, clock: Callable[[], float]) -> None:
        self._http = http
        self._rates = Rates(clock)

    async def describe(self) -> Found:
        models = models_by_root(await list_models(self._http))
        answer = await self._http.ask("/server_info")
        if not answer.ok:  # its name before 0.5.4
            answer = await self._http.ask("/get_server_info")
        info = answer.json()
        samples = read_samples((await self._http.ask("/metrics")).text, (PROCESS_START,))
        return Found(
            engine="sglang",
            version=str(info.get("version", "")),
            models=tuple(
                replace(
                    model,
                    format=_format(info) or model.format,
                    max_sequences=_max_sequences(info),
                    kv_cache_tokens=whole(info.get("max_total_num_tokens")),
                )
                for model in models
            ),
            instance=_instance(info, samples),
        )

    async def healthy(self) -> bool:
        return (await self._http.get("/health")).ok

    async def load(self) -> EngineLoad:
        samples = read_samples((await self._http.get("/metrics")).text, _NAMES)
        uses = samples.per_rank(_KV_USE, _RANK)
        return EngineLoad(
            running=_count(samples, _RUNNING),
            waiting=_count(samples, _WAITING),
            kv_cache_use=sum(uses) / len(uses) if uses else None,
            tokens_per_second=self._rates.per_second("tokens", samples.total(_TOKENS)),
            ttft_seconds=self._rates.mean("ttft", samples.total(_TTFT_SUM), samples.total(_TTFT_COUNT)),
        )


def _instance(info: Mapping[str, Any], samples: Samples) -> str:
    """Its weights can be updated while it runs, and have a version then."""
    started = process_start(samples)
    return f"{started} weights {info.get('weight_version', '')}" if started else ""


def _count(samples: Samples, name: str) -> int | None:
    values = samples.per_rank(name, _RANK)
    return int(sum(values)) if values else None


def _max_sequences(info: Mapping[str, Any]) -> int | None:
    states = info.get("internal_states")
    per_rank = [
        whole(state.get("effective_max_running_requests_per_dp"))
        for state in (states if isinstance(states, list) else [])
        if isinstance(state, dict)
    ]
    if per_rank and all(per_rank):
        return sum(number for number in per_rank if number)
    return whole(info.get("max_running_requests"))


def _format(info: Mapping[str, Any]) -> str | None:
    """By the quantization it was started with; `dtype` tells the weights' precision only when there is none."""
    if quantization := info.get("quantization"):
        return format_of_name(str(quantization))
    named = format_of_name(str(info.get("model_path") or ""))
    return named or _DTYPES.get(str(info.get("dtype")))
