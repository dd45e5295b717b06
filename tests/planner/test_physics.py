from __future__ import annotations

import json

import pytest

from controlplane.errors import ConfigurationError
from planner.hardware.catalogue import GPUS, MODELS
from planner.hardware.measured import as_measured, read_nodes
from planner.hardware.physics import BITS, default_token_budget, engine, weight_bytes
from planner.hardware.published import PROFILES, published_sequences

LLAMA = MODELS["Llama-3-70B"]


def test_every_entry_names_its_source() -> None:
    assert all(gpu.source for gpu in GPUS.values())
    assert all(model.source for model in MODELS.values())


def test_weights_and_kv_cache_are_what_the_papers_say() -> None:
    assert weight_bytes(LLAMA, 16) == pytest.approx(141e9, rel=0.01)
    assert LLAMA.kv_bytes_per_token(1) == 327_680
    # 21.5 GB for each sequence of 64K, 2.68 GB for each of 8K.
    assert LLAMA.kv_bytes_per_token(1) * 65_536 == pytest.approx(21.5e9, rel=0.01)
    assert LLAMA.kv_bytes_per_token(1) * 8192 == pytest.approx(2.68e9, rel=0.01)


def test_sixteen_sequences_of_64k_need_eight_gpus_and_not_the_two_that_a_paper_names() -> None:
    with pytest.raises(ConfigurationError, match="leave no memory for a KV cache"):
        engine("Llama-3-70B", "A100", 1)
    assert engine("Llama-3-70B", "A100", 2).limited(65_536, 256).worst_case_sequences == 0
    assert engine("Llama-3-70B", "A100", 8).limited(65_536, 256).worst_case_sequences >= 16
    assert engine("Llama-3-70B", "A100", 8).limited(8192, 256).worst_case_sequences >= 128


def test_the_mi300x_case_counts_one_kv_head_on_each_gpu() -> None:
    # Of 133.4 GB on each of eight GPUs, in 8 bits: 676 sequences of 8K and 169 of 32K (arXiv 2604.09613).
    each_token = MODELS["Qwen3-235B-A22B"].kv_bytes_per_token(8, bytes_each=1)

    assert each_token == 24_064
    assert int(133.4e9 / each_token / 8192) == 676
    assert int(133.4e9 / each_token / 32_768) == 169


def test_eight_a100_read_70b_in_eleven_milliseconds_and_compute_a_token_in_a_tenth_of_one() -> None:
    made = engine("Llama-3-70B", "A100", 8)

    assert made.fixed_seconds == pytest.approx(0.011, rel=0.05)
    assert made.per_sequence_seconds == pytest.approx(0.00021, rel=0.05)
    assert made.seconds_per_token == pytest.approx(113e-6, rel=0.01)


def test_fewer_bits_leave_more_room_and_read_faster() -> None:
    full, eight, four = (engine("Llama-3-70B", "H100", 4, each) for each in BITS)

    assert full.kv_blocks < eight.kv_blocks < four.kv_blocks
    assert eight.fixed_seconds < full.fixed_seconds
    assert eight.seconds_per_token == full.seconds_per_token / 2
    # Kernels keep 4 bits from what the bytes alone would give.
    assert four.fixed_seconds == pytest.approx(full.fixed_seconds / 1.3, rel=0.02)


def test_four_bits_on_a100_gain_what_is_measured_there() -> None:
    full, four = (engine("Llama-3-8B", "A100", 1, each) for each in ("fp16", "int4"))

    assert full.iteration_seconds(1, 500) / four.iteration_seconds(1, 500) == pytest.approx(1.8, abs=0.1)


def test_an_unknown_name_is_told_what_names_there_are() -> None:
    with pytest.raises(ConfigurationError, match="GPU 'V100' is not in the catalogue; there are: A10G"):
        engine("Llama-3-70B", "V100", 8)


@pytest.mark.parametrize(("context", "sequences"), [(65_536, 16), (8192, 128), (2048, 512), (512, 2048)])
def test_the_authors_run_sequences_by_the_context(context: int, sequences: int) -> None:
    assert published_sequences(PROFILES["A100-80GB"], context) == sequences


def nodes(*loads: dict[str, object]) -> str:
    served = {"id": "llama", "format": "fp16", "max_context": 16_384, "max_sequences": 64, "kv_cache_tokens": "160000"}
    return json.dumps({"nodes": [{"spec": {"models": [served], "gpu_count": 8}, "load": load} for load in loads]})


def test_a_node_that_was_seen_corrects_what_was_computed() -> None:
    made = engine("Llama-3-70B", "A100", 8)
    seen = read_nodes(nodes({"running": 10, "tokens_per_second": 250.0}), "n.json", "llama")
    measured = as_measured(made, seen, mean_tokens=1000)

    assert (measured.kv_tokens, measured.max_sequences, measured.max_context) == (160_000, 64, 16_384)
    assert measured.iteration_seconds(10, 1000) == pytest.approx(0.040)


def test_two_loads_tell_both_parts_of_an_iteration() -> None:
    seen = read_nodes(
        nodes({"running": 10, "tokens_per_second": 500.0}, {"running": 40, "tokens_per_second": 800.0}),
        "n.json",
        "llama",
    )
    measured = as_measured(engine("Llama-3-70B", "A100", 8), seen, mean_tokens=1000)

    assert measured.fixed_seconds == pytest.approx(0.010)
    assert measured.iteration_seconds(40, 1000) == pytest.approx(0.050)


def test_nodes_of_another_format_change_nothing() -> None:
    made = engine("Llama-3-70B", "A100", 8, "int4")

    assert as_measured(made, read_nodes(nodes({}), "n.json", "llama"), 1000) is made


def test_a_model_that_no_node_serves_is_told() -> None:
    with pytest.raises(ConfigurationError, match="no node serves 'qwen'; there are: llama"):
        read_nodes(nodes({}), "n.json", "qwen")
    with pytest.raises(ConfigurationError, match="is not what `headrace nodes --json` prints"):
        read_nodes("[]", "n.json", "qwen")


def test_names_are_of_any_case_and_told_as_the_catalogue_has_them() -> None:
    assert engine("llama-3-70b", "h100", 8, "FP8") == engine("Llama-3-70B", "H100", 8, "fp8")


@pytest.mark.parametrize("gpus", [0, -8])
def test_an_instance_has_a_gpu(gpus: int) -> None:
    with pytest.raises(ConfigurationError, match="at least 1 GPU"):
        engine("Llama-3-8B", "H100", gpus)


def test_vllm_computes_more_at_once_on_large_gpus_but_a100() -> None:
    assert {name: default_token_budget(name) for name in ("A100", "A10G", "L40S", "H100", "MI300X")} == {
        "A100": 2048,
        "A10G": 2048,
        "L40S": 2048,
        "H100": 8192,
        "MI300X": 8192,
    }


def test_a_rack_of_gpus_holds_what_its_maker_says() -> None:
    """NVIDIA's data sheets: 13.4 TB of HBM3E in 72 GPUs of a GB200 NVL72, 20 TB in those of a GB300 NVL72."""
    assert 72 * GPUS["GB200"].memory / 2**30 == pytest.approx(13_400, rel=0.01)
    assert 72 * GPUS["GB300"].memory / 2**30 == pytest.approx(20_000, rel=0.01)


@pytest.mark.parametrize("nodes", ["[4]", '[{"spec": 4}]', '[{"spec": {"models": [{"id": "m"}]}}]', "4", "null"])
def test_what_is_no_list_of_nodes_is_told(nodes: str) -> None:
    with pytest.raises(ConfigurationError, match="is not what `headrace nodes --json` prints"):
        read_nodes(f'{{"nodes": {nodes}}}', "nodes.json", "m")
