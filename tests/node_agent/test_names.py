"""Tables: formats by names, hardware classes, flags, addresses, waits."""

from __future__ import annotations

import pytest

from controlplane.errors import ConfigurationError, UnavailableError
from controlplane.policy.settings import FormatRules
from node_agent.address import resolve
from node_agent.backoff import LONGEST_SECONDS, Backoff
from node_agent.formats import format_of_name, gguf_format
from node_agent.settings import (
    ModelFlag,
    check_engine_url,
    default_node_id,
    host_and_port,
    parse_label,
    parse_model,
)
from node_agent.vram import Gpu, Gpus, hardware_class, read_gpus, sum_up, visible_gpus


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Q4_1", "gguf-q4"),
        ("Q4_K - Medium", "gguf-q4"),
        ("Q4_K_M", "gguf-q4"),
        ("IQ4_XS - 4.25 bpw", "gguf-q4"),
        ("IQ2_XXS - 2.0625 bpw", "gguf-q2"),
        ("Q8_0", "gguf-q8"),
        ("Q6_K", "gguf-q6"),
        ("Q5_K - Small", "gguf-q5"),
        ("F16", "fp16"),
        ("BF16", "bf16"),
        ("all F32", "fp32"),
        ("MXFP4 MoE", "mxfp4"),
        ("(guessed) Q4_0", "gguf-q4"),
        ("/models/SmolLM2-135M-Instruct.Q4_1.gguf", "gguf-q4"),
        ("/models/Llama-3-8B-f16.gguf", "fp16"),
        ("/models/Qwen2.5-7B.gguf", None),
        ("", None),
    ],
)
def test_gguf_types_tell_the_format(text: str, expected: str | None) -> None:
    assert gguf_format(text) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "int4-awq"),
        ("hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4", "int4-awq"),
        ("TheBloke/Llama-2-7B-GPTQ", "int4-gptq"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "int4-gptq"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "int8"),
        ("RedHatAI/Llama-3.2-1B-Instruct-FP8", "fp8"),
        ("neuralmagic/Meta-Llama-3-8B-Instruct-FP8-dynamic", "fp8"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "int8"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "int4-gptq"),
        ("unsloth/llama-3-8b-bnb-4bit", "int4-bnb"),
        ("nvidia/Llama-3.1-8B-Instruct-NVFP4", "nvfp4"),
        ("bartowski/Llama-3-8B-GGUF/Llama-3-8B-Q4_K_M.gguf", "gguf-q4"),
        ("awq_marlin", "int4-awq"),
        # Nothing said is nothing known: such a model may be served in any precision.
        ("meta-llama/Llama-3.1-8B-Instruct", None),
        ("org/hawq-model", None),
        ("org/model-v8", None),
    ],
)
def test_names_tell_the_format_only_where_they_say_it(name: str, expected: str | None) -> None:
    assert format_of_name(name) == expected


def test_every_format_that_is_found_is_one_that_the_policy_knows() -> None:
    rules = FormatRules()
    known = {*rules.full, *rules.quantized}
    for name in (
        "x-awq",
        "x-gptq",
        "x-gptq-int8",
        "x-bnb",
        "x-nvfp4",
        "x-mxfp4",
        "x-fp8",
        "x-int8",
        "x-bf16",
        "x-fp16",
    ):
        assert format_of_name(name) in known
    for name in ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "F16", "BF16", "F32", "MXFP4"):
        assert gguf_format(name) in known


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "a100-sxm4-mig-1g.5gb"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "rtx-4090-laptop"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA L40S", "l40s"),
        ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2"),
        ("", ""),
    ],
)
def test_hardware_classes_by_the_driver_s_names(name: str, expected: str) -> None:
    assert hardware_class(name) == expected


GPUS = (Gpu("GPU-aa", "NVIDIA L40S", 48), Gpu("GPU-ab", "NVIDIA L40S", 48), Gpu("GPU-b", "NVIDIA L40S", 48))


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, GPUS),
        ("", ()),
        ("1", GPUS[1:2]),
        ("2,0", (GPUS[2], GPUS[0])),
        ("0,7,1", GPUS[:1]),
        ("-1", ()),
        ("GPU-b,GPU-aa", (GPUS[2], GPUS[0])),
    ],
)
def test_only_visible_gpus_count(visible: str | None, expected: tuple[Gpu, ...]) -> None:
    assert visible_gpus(GPUS, visible) == expected


def test_gpus_are_summed_up() -> None:
    assert sum_up(GPUS) == Gpus("NVIDIA L40S", 3, 144)
    assert sum_up(()) == Gpus()


def test_a_machine_without_gpus_has_none() -> None:
    assert read_gpus("") == Gpus()


def test_model_flags() -> None:
    assert parse_model("llama") == ModelFlag("llama", "llama")
    assert parse_model("llama=org/Llama-AWQ") == ModelFlag("llama", "org/Llama-AWQ")
    for text in ("", "=x", "x="):
        with pytest.raises(ValueError, match="is no model"):
            parse_model(text)


def test_label_flags() -> None:
    assert parse_label("rack=7=b") == ("rack", "7=b")
    for text in ("", "rack", "=7"):
        with pytest.raises(ValueError, match="KEY=VALUE"):
            parse_label(text)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "https://[::1]:8000/", "http://engine"])
def test_engine_urls(url: str) -> None:
    assert check_engine_url(url) == url


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("127.0.0.1:8000", "is no URL"),
        ("ftp://x", "is no URL"),
        ("http://", "is no URL"),
        ("http://x:99999", "is no URL"),
        ("http://x:8000/v1", "without a path such as /v1"),
        ("http://me:secret@x", "must not hold a user"),
    ],
)
def test_wrong_engine_urls_are_told_apart(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        check_engine_url(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [("http://e:8000", "e:8000"), ("http://e", "e:80"), ("https://e/", "e:443"), ("http://[::1]:1", "[::1]:1")],
)
def test_the_address_of_a_url(url: str, expected: str) -> None:
    assert host_and_port(url) == expected


def test_a_node_is_named_by_its_machine_and_port() -> None:
    assert default_node_id("gpu box 7.dc", "http://127.0.0.1:8000") == "gpu-box-7.dc-8000"


async def test_addresses_become_ip_and_port() -> None:
    assert await resolve("10.0.0.7:8000") == "10.0.0.7:8000"
    assert await resolve("[fd00::7]:8000") == "[fd00::7]:8000"
    assert await resolve("localhost:8000") == "127.0.0.1:8000"


async def test_an_unknown_host_may_be_known_later() -> None:
    with pytest.raises(UnavailableError, match="no-such-host"):
        await resolve("no-such-host.invalid:8000")


async def test_an_address_that_is_none_is_the_flag_s_fault() -> None:
    with pytest.raises(ConfigurationError, match=r"--advertise 10\.0\.0\.7: "):
        await resolve("10.0.0.7")


def test_waits_double_up_to_a_limit_and_start_again() -> None:
    backoff = Backoff(lambda: 1.0)
    assert [backoff.next() for _ in range(7)] == [0.25, 0.5, 1.0, 2.0, *[LONGEST_SECONDS] * 3]
    backoff.reset()
    assert backoff.next() == 0.25


def test_waits_are_spread_from_nothing_to_all() -> None:
    assert Backoff(lambda: 0.0).next() == 0.0
