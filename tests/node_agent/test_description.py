"""What is registered: the engine's words, the flags over them, and everything that is missing at once."""

from __future__ import annotations

import pytest

from controlplane.errors import ConfigurationError
from controlplane.model import CapacityType, NodeSpec, ServedModel
from node_agent.description import describe_node
from node_agent.engine import Found, FoundModel
from node_agent.settings import AgentSettings, ModelFlag
from node_agent.vram import Gpus

SETTINGS = AgentSettings("http://127.0.0.1:8000", (), "node-1")
WHOLE = FoundModel("llama", ("llama-3",), "int4-awq", 8192, 64, 100_000)
ADDRESS = "10.0.0.7:8000"


def settings(**flags: object) -> AgentSettings:
    return AgentSettings("http://127.0.0.1:8000", (), "node-1", **flags)  # type: ignore[arg-type]


def described(settings: AgentSettings, *models: FoundModel) -> NodeSpec:
    return describe_node(settings, Found("vllm", "0.32.0", models), Gpus(), ADDRESS)


def faults(settings: AgentSettings, *models: FoundModel) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        described(settings, *models)
    return caught.value.faults


def test_what_the_engine_tells_needs_no_flags() -> None:
    gpus = Gpus("NVIDIA L40S", 2, 96)
    spec = describe_node(SETTINGS, Found("vllm", "0.32.0", (WHOLE,)), gpus, ADDRESS)
    assert spec == NodeSpec(
        node_id="node-1",
        address=ADDRESS,
        models=(ServedModel("llama", "int4-awq", 8192, 64, "llama", ("llama-3",), 100_000),),
        engine="vllm",
        engine_version="0.32.0",
        gpu_model="NVIDIA L40S",
        gpu_count=2,
        vram_bytes=96,
        hardware_class="l40s",
        health_path="/health",
    )


def test_flags_win() -> None:
    flags = settings(
        format="bf16",
        max_context=100,
        max_sequences=2,
        kv_cache_tokens=300,
        hardware_class="own",
        capacity_type=CapacityType.SPOT,
        labels={"rack": "7"},
    )
    spec = described(flags, WHOLE)
    assert spec.models == (ServedModel("llama", "bf16", 100, 2, "llama", ("llama-3",), 300),)
    assert (spec.hardware_class, spec.capacity_type, spec.labels) == ("own", CapacityType.SPOT, {"rack": "7"})


def test_the_fleet_s_name_may_differ_from_the_engine_s() -> None:
    [model] = described(settings(models=(ModelFlag("llama-3.1-8b", "llama-3"),)), WHOLE).models
    assert (model.id, model.served_name, model.aliases) == ("llama-3.1-8b", "llama-3", ("llama",))


def test_only_the_models_that_are_asked_for_are_registered() -> None:
    other = FoundModel("other", (), "bf16", 1, 1)
    assert [m.id for m in described(settings(models=(ModelFlag("llama", "llama"),)), WHOLE, other).models] == ["llama"]


def test_an_engine_that_lists_nothing_is_described_by_flags() -> None:
    flags = settings(models=(ModelFlag("m", "m"),), format="fp16", max_context=1, max_sequences=1)
    assert [m.id for m in described(flags).models] == ["m"]


def test_everything_that_is_missing_is_told_at_once() -> None:
    said = faults(SETTINGS, FoundModel("a"), FoundModel("b", format="fp16", max_context=8))
    assert [(s.split()[1], s.partition("give ")[2].split()[0].strip(",")) for s in said] == [
        ("a:", "--format"),
        ("a:", "--max-context"),
        ("a:", "--max-sequences"),
        ("b:", "--max-sequences"),
    ]


def test_a_model_that_the_engine_does_not_know_is_told_with_what_it_knows() -> None:
    assert faults(settings(models=(ModelFlag("llama-3.1-8b", "llama-3.1-8b"),)), WHOLE) == (
        "--model llama-3.1-8b: the engine knows no 'llama-3.1-8b', it serves llama, llama-3; "
        "write --model llama-3.1-8b=llama",
    )


def test_an_engine_without_models_is_told() -> None:
    assert faults(SETTINGS) == ("the engine lists no models; give --model ID for each that it serves",)
