"""What is read from the answers of vLLM, SGLang and other engines; names are those of their own sources."""

from __future__ import annotations

import json
from collections.abc import Mapping

import httpx
import pytest

from node_agent.detection import detect_engine
from node_agent.engine import EngineLoad, EngineUnavailableError, FoundModel
from node_agent.http import MAX_ANSWER_BYTES, EngineHttp
from node_agent.llamacpp import LlamacppEngine
from node_agent.openai_compatible import OpenAiCompatibleEngine
from node_agent.sglang import SglangEngine
from node_agent.vllm import VllmEngine

Answers = Mapping[str, object]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def http_of(answers: Answers) -> EngineHttp:
    """An engine that answers JSON or text by path; a number is a status, anything unknown 404."""

    def answer(request: httpx.Request) -> httpx.Response:
        match answers.get(request.url.path, 404):
            case int(status):
                return httpx.Response(status)
            case str(text):
                return httpx.Response(200, text=text)
            case value:
                return httpx.Response(200, content=json.dumps(value))

    return EngineHttp("http://engine", transport=httpx.MockTransport(answer))


def listing(*entries: Mapping[str, object], owner: str = "vllm") -> Mapping[str, object]:
    return {"object": "list", "data": [{"object": "model", "owned_by": owner, **entry} for entry in entries]}


# --- detection -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "adapter"),
    [
        ("vllm", VllmEngine),
        ("sglang", SglangEngine),
        ("llamacpp", LlamacppEngine),
        ("library", OpenAiCompatibleEngine),  # Ollama
        (None, OpenAiCompatibleEngine),
    ],
)
async def test_the_owner_of_its_models_tells_the_engine(owner: str, adapter: type) -> None:
    http = http_of({"/health": "", "/v1/models": listing({"id": "m"}, owner=owner)})
    assert isinstance(await detect_engine(http, Clock()), adapter)


async def test_an_engine_without_a_list_or_health_check_is_taken_as_it_is() -> None:
    assert isinstance(await detect_engine(http_of({}), Clock()), OpenAiCompatibleEngine)


async def test_an_engine_that_loads_its_model_is_not_judged_yet() -> None:
    assert await detect_engine(http_of({"/health": 503, "/v1/models": 503}), Clock()) is None


# --- vLLM ----------------------------------------------------------------------------------------------------------

VLLM_METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 1.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.7
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0",model_name="m"} {tokens}
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="m"} 0.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} {count}
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} {sum}
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="573"} 1.0
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="1",num_gpu_blocks="573"} 1.0
"""


def vllm_metrics(tokens: float, count: float, total: float) -> str:
    text = VLLM_METRICS.replace("{tokens}", str(tokens)).replace("{count}", str(count))
    return text.replace("{sum}", str(total))


async def test_vllm_names_of_one_model_are_aliases_and_adapters_are_models() -> None:
    http = http_of(
        {
            "/version": {"version": "0.32.0"},
            "/v1/models": listing(
                {"id": "llama", "root": "org/Llama-3.1-8B-Instruct-AWQ-INT4", "parent": None, "max_model_len": 8192},
                {"id": "llama-3", "root": "org/Llama-3.1-8B-Instruct-AWQ-INT4", "parent": None, "max_model_len": 8192},
                {"id": "sql", "root": "/adapters/sql", "parent": "llama"},
            ),
            "/metrics": vllm_metrics(0, 0, 0),
        }
    )
    found = await VllmEngine(http, Clock()).describe()
    kv_cache_tokens = 2 * 573 * 16
    assert (found.engine, found.version) == ("vllm", "0.32.0")
    assert found.models == (
        FoundModel("llama", ("llama-3",), "int4-awq", 8192, None, kv_cache_tokens),
        FoundModel("sql", (), "int4-awq", 8192, None, kv_cache_tokens),
    )


@pytest.mark.parametrize(
    ("labels", "tokens"),
    [
        ('block_size="16",num_gpu_blocks="100"', 1600),
        ('block_size="16",kv_cache_size_tokens="1000",num_gpu_blocks="100"', 1000),  # hybrid models
        ('block_size="16",num_gpu_blocks="None"', None),
        ('block_size="16"', None),
    ],
)
async def test_vllm_kv_cache_size_is_read_from_its_configuration(labels: str, tokens: int | None) -> None:
    http = http_of({"/v1/models": listing({"id": "m"}), "/metrics": f"vllm:cache_config_info{{{labels}}} 1.0\n"})
    assert (await VllmEngine(http, Clock()).describe()).models[0].kv_cache_tokens == tokens


async def test_vllm_load_is_summed_over_its_engines_and_rates_are_between_looks() -> None:
    clock, answers = Clock(), {"/metrics": vllm_metrics(1000, 10, 2.0)}
    engine = VllmEngine(http_of(answers), clock)
    assert await engine.load() == EngineLoad(running=7, waiting=1, kv_cache_use=0.6)
    clock.now += 2.0
    answers["/metrics"] = vllm_metrics(1500, 14, 3.0)
    assert await engine.load() == EngineLoad(7, 1, 0.6, tokens_per_second=250.0, ttft_seconds=0.25)
    clock.now += 1.0
    assert await engine.load() == EngineLoad(7, 1, 0.6, tokens_per_second=0.0, ttft_seconds=None)


async def test_vllm_that_was_restarted_has_no_rate_for_one_look() -> None:
    clock, answers = Clock(), {"/metrics": vllm_metrics(1000, 10, 2.0)}
    engine = VllmEngine(http_of(answers), clock)
    await engine.load()
    clock.now += 1.0
    answers["/metrics"] = vllm_metrics(5, 1, 0.5)
    assert (await engine.load()).tokens_per_second is None
    clock.now += 1.0
    answers["/metrics"] = vllm_metrics(15, 1, 0.5)
    assert (await engine.load()).tokens_per_second == 10.0


async def test_older_vllm_calls_its_kv_cache_use_otherwise() -> None:
    engine = VllmEngine(http_of({"/metrics": 'vllm:gpu_cache_usage_perc{model_name="m"} 0.25\n'}), Clock())
    assert await engine.load() == EngineLoad(kv_cache_use=0.25)


# --- SGLang --------------------------------------------------------------------------------------------------------

SGLANG_METRICS = """\
sglang:num_running_reqs{dp_rank="0",tp_rank="0"} 3.0
sglang:num_running_reqs{dp_rank="0",tp_rank="1"} 3.0
sglang:num_running_reqs{dp_rank="1",tp_rank="0"} 2.0
sglang:num_queue_reqs{dp_rank="0",tp_rank="0"} 4.0
sglang:num_queue_reqs{dp_rank="0",tp_rank="1"} 1.0
sglang:token_usage{dp_rank="0",tp_rank="0"} 0.4
sglang:token_usage{dp_rank="0",tp_rank="1"} 0.4
sglang:token_usage{dp_rank="1",tp_rank="0"} 0.2
"""


async def test_sglang_load_counts_each_data_parallel_engine_once() -> None:
    load = await SglangEngine(http_of({"/metrics": SGLANG_METRICS}), Clock()).load()
    assert (load.running, load.waiting) == (5, 4)
    assert load.kv_cache_use == pytest.approx(0.3)


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
async def test_sglang_tells_all_there_is_to_know(path: str) -> None:
    http = http_of(
        {
            "/v1/models": listing({"id": "qwen", "root": "qwen/qwen2.5", "max_model_len": 32768}, owner="sglang"),
            path: {
                "model_path": "qwen/qwen2.5",
                "quantization": "fp8",
                "dtype": "auto",
                "max_total_num_tokens": 20480,
                "max_running_requests": None,
                "internal_states": [{"effective_max_running_requests_per_dp": 128}] * 2,
                "version": "0.5.18",
            },
        }
    )
    found = await SglangEngine(http, Clock()).describe()
    assert found.version == "0.5.18"
    assert found.models == (FoundModel("qwen", (), "fp8", 32768, 256, 20480),)


@pytest.mark.parametrize(
    ("info", "quantization"),
    [
        ({"quantization": None, "dtype": "bfloat16", "model_path": "a/b"}, "bf16"),
        ({"quantization": None, "dtype": "auto", "model_path": "a/b"}, None),
        ({"quantization": None, "dtype": "bfloat16", "model_path": "a/b-AWQ"}, "int4-awq"),
        ({"quantization": "gptq_marlin", "dtype": "bfloat16", "model_path": "a/b"}, "int4-gptq"),
    ],
)
async def test_sglang_precision_counts_only_without_quantization(
    info: Mapping[str, object], quantization: str | None
) -> None:
    http = http_of({"/v1/models": listing({"id": "m"}, owner="sglang"), "/server_info": info})
    assert (await SglangEngine(http, Clock()).describe()).models[0].format == quantization


# --- llama.cpp -----------------------------------------------------------------------------------------------------


async def test_llamacpp_without_metrics_is_counted_by_its_slots() -> None:
    slots = [{"id": 0, "is_processing": True}, {"id": 1, "is_processing": False}]
    load = await LlamacppEngine(http_of({"/metrics": 501, "/slots": slots}), Clock()).load()
    assert load == EngineLoad(running=1)


async def test_llamacpp_without_metrics_and_slots_has_an_unknown_load() -> None:
    assert await LlamacppEngine(http_of({"/metrics": 501, "/slots": 501}), Clock()).load() == EngineLoad()


async def test_llamacpp_without_an_ftype_is_known_by_its_file() -> None:
    http = http_of(
        {
            "/props": {"model_path": "/models/Llama-3-8B-Q8_0.gguf", "total_slots": 1},
            "/v1/models": listing({"id": "llama", "aliases": ["llama", "l3"]}, owner="llamacpp"),
        }
    )
    [model] = (await LlamacppEngine(http, Clock()).describe()).models
    assert model == FoundModel("llama", ("l3",), "gguf-q8", None, 1)


# --- others --------------------------------------------------------------------------------------------------------


async def test_another_engine_is_checked_as_it_allows() -> None:
    assert (await OpenAiCompatibleEngine(http_of({"/health": ""})).describe()).health_path == "/health"
    assert (await OpenAiCompatibleEngine(http_of({})).describe()).health_path == ""
    assert await OpenAiCompatibleEngine(http_of({})).healthy()
    assert not await OpenAiCompatibleEngine(http_of({"/health": 500})).healthy()


# --- answers that are none -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "garbage", ["", "{", "[]", "null", '{"data": 3}', '{"data": [3, {"id": 4}, {}]}', "\x00\xff" * 9]
)
@pytest.mark.parametrize("adapter", [VllmEngine, SglangEngine, LlamacppEngine])
async def test_garbage_tells_nothing_and_breaks_nothing(
    adapter: type[VllmEngine | SglangEngine | LlamacppEngine], garbage: str
) -> None:
    paths = ("/health", "/v1/models", "/version", "/metrics", "/props", "/slots", "/server_info")
    engine = adapter(http_of(dict.fromkeys(paths, garbage)), Clock())
    assert (await engine.describe()).models == ()
    assert (await engine.load()).waiting is None


@pytest.mark.parametrize("adapter", [VllmEngine, SglangEngine, LlamacppEngine])
async def test_an_engine_in_trouble_does_not_describe_itself(
    adapter: type[VllmEngine | SglangEngine | LlamacppEngine],
) -> None:
    engine = adapter(http_of({"/v1/models": 500, "/metrics": 500, "/props": 503}), Clock())
    with pytest.raises(EngineUnavailableError):
        await engine.describe()


async def test_an_endless_answer_is_cut_off() -> None:
    http = http_of({"/metrics": "x" * (MAX_ANSWER_BYTES + 1)})
    with pytest.raises(EngineUnavailableError, match="16 MiB"):
        await http.get("/metrics")


# --- whether it is the same engine ---------------------------------------------------------------------------------

STARTED = "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.70000000025e+09\n"


@pytest.mark.parametrize(("metrics", "instance"), [(STARTED, "started 1700000000.250"), ("", ""), (404, "")])
async def test_vllm_is_told_from_its_former_runs_by_when_it_started(metrics: object, instance: str) -> None:
    http = http_of({"/v1/models": listing({"id": "m"}), "/version": {}, "/metrics": metrics})
    assert (await VllmEngine(http, Clock()).describe()).instance == instance


@pytest.mark.parametrize(
    ("metrics", "info", "instance"),
    [
        (STARTED, {"weight_version": "7"}, "started 1700000000.250 weights 7"),
        (STARTED, {}, "started 1700000000.250 weights "),
        (404, {"weight_version": "7"}, ""),
    ],
)
async def test_sglang_is_another_one_with_other_weights_too(
    metrics: object, info: Mapping[str, object], instance: str
) -> None:
    answers = {"/v1/models": listing({"id": "m"}), "/server_info": info, "/metrics": metrics}
    assert (await SglangEngine(http_of(answers), Clock()).describe()).instance == instance


async def test_engines_that_prove_nothing_have_no_instance() -> None:
    http = http_of({"/v1/models": listing({"id": "m"}), "/props": {}})
    assert (await LlamacppEngine(http, Clock()).describe()).instance == ""
    assert (await OpenAiCompatibleEngine(http).describe()).instance == ""
