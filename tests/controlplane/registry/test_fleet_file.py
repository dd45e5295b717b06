"""A fleet from a file, or every fault of it with its line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.errors import ConfigurationError
from controlplane.fleet import form_fleet
from controlplane.model import CapacityType, NodeLoad, ServedModel
from controlplane.policy.settings import Policy
from controlplane.registry.fleet_file import LoadEntry, NodeEntry, load_fleet

FLEET = """
- node_id: full-1
  address: 10.0.0.1:8000
  models:
    - {id: llama, format: bf16, max_context: 8192, max_sequences: 64}
  gpu_model: NVIDIA A100-SXM4-80GB
  load: {running: 3, waiting: 1, kv_cache_use: 0.5}
- node_id: small-1
  address: '[FD00::0007]:8000'
  models:
    - id: llama
      format: gguf-q4_k_m
      max_context: 32768
      max_sequences: 8
      served_name: llama-q4
      aliases: [l]
  capacity_type: spot
  labels: {rack: no}
  draining: true
"""


def faults_of(text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load_fleet(text, "f.yaml", 0.0)
    return list(caught.value.faults)


def test_a_fleet_file_gives_sessions_and_loads() -> None:
    fleet = load_fleet(FLEET, "f.yaml", 100.0)
    full, small = fleet.sessions
    assert (full.spec.node_id, full.registered_at, full.draining) == ("full-1", 100.0, False)
    assert small.spec.address == "[fd00::7]:8000"
    assert small.spec.models == (ServedModel("llama", "gguf-q4_k_m", 32768, 8, served_name="llama-q4", aliases=("l",)),)
    assert small.spec.capacity_type is CapacityType.SPOT
    assert small.spec.labels == {"rack": "no"}
    assert small.draining
    assert fleet.loads == {"full-1": NodeLoad(running=3, waiting=1, kv_cache_use=0.5, reported_at=100.0)}


def test_a_fleet_file_forms_the_pools_that_its_nodes_would() -> None:
    fleet = load_fleet(FLEET, "f.yaml", 100.0)
    pools = form_fleet(fleet.sessions, fleet.loads, Policy(), 100.0).pools
    assert [(pool.name, pool.ready_nodes) for pool in pools] == [
        ("llama/full/short/on_demand", 1),
        ("llama/quantized/long/spot=llama-q4", 0),
    ]


NODE = "- node_id: a\n  address: 10.0.0.1:1\n  models: [{id: m, format: bf16, max_context: 1, max_sequences: 1}]\n"


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("", ["1: must be a list of nodes; begin each with `- node_id:`"]),
        ("[]", ["1: must be a list of nodes; begin each with `- node_id:`"]),
        ("\nnodes: []", ["2: must be a list of nodes; begin each with `- node_id:`"]),
        ("- 5", ["1: [0]: must be a section with settings of its own, not 5"]),
        (
            "- node_id: a\n",
            ["1: [0].address: is missing and has no default", "1: [0].models: is missing and has no default"],
        ),
        (
            "- node_id: a\n  address: b:1\n  models:\n  - id: m\n    formt: x\n",
            [
                "4: [0].models[0].format: is missing and has no default",
                "4: [0].models[0].max_context: is missing and has no default",
                "4: [0].models[0].max_sequences: is missing and has no default",
                "5: [0].models[0].formt: is no setting; did you mean format?",
            ],
        ),
        (
            NODE.replace("10.0.0.1", "localhost").replace("id: m,", "id: m m,") + "  health_path: health\n",
            [
                "2: [0].address: 'localhost' is not an IP address; give the engine's IP as Envoy reaches it, "
                "since Envoy looks up no names for the endpoints that it is sent",
                "3: [0].models[0].id: 'm m' has other characters than letters, digits and . _ : / + -",
                "4: [0].health_path: 'health' is no path, such as /health; leave it empty to check the connection only",
            ],
        ),
        (
            NODE + "  load:\n    running: -1\n    kv_cache_use: 40%\n",
            [
                "5: [0].load.running: -1 is not from 0 to 100000",
                "6: [0].load.kv_cache_use: must be a number, not '40%'",
            ],
        ),
        (
            NODE + "  capacity_type: Spot\n",
            ["4: [0].capacity_type: must be one of on_demand, spot, not 'Spot'; did you mean spot?"],
        ),
        (
            NODE + NODE,
            [
                "4: [1].node_id: 'a' is that of [0] too; give each node its own",
                "5: [1].address: '10.0.0.1:1' is that of [0] too; give each node its own",
            ],
        ),
        (
            NODE.replace("node_id: a", "node_id: 1") + NODE,
            [
                "1: [0].node_id: must be text, not 1; put it in quotes if it is meant as text",
            ],
        ),
        (
            NODE + "  labels: {'': x}\n  aliases: [b]\n",
            [
                "4: [0].labels: one has no name",
                "5: [0].aliases: is no setting; known here: node_id, address, models, engine, engine_version, "
                "gpu_model, gpu_count, vram_bytes, hardware_class, capacity_type, health_path, labels, "
                "engine_instance, draining, load",
            ],
        ),
    ],
)
def test_every_fault_of_a_fleet_file_is_named_with_its_line(text: str, faults: list[str]) -> None:
    assert faults_of(text) == [f"f.yaml:{fault}" for fault in faults]


values = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("10.0.0.1:8000") | st.lists(st.text())
)
names = [*NodeEntry.__dataclass_fields__, *ServedModel.__dataclass_fields__, *LoadEntry.__dataclass_fields__]
entries = st.dictionaries(st.sampled_from(names), values | st.dictionaries(st.sampled_from(names), values, max_size=4))
good = st.just(
    {
        "node_id": "a",
        "address": "10.0.0.1:1",
        "models": [{"id": "m", "format": "f", "max_context": 1, "max_sequences": 1}],
    }
)


@given(st.lists(st.builds(lambda one, other: {**one, **other}, good, entries), max_size=3))
@settings(max_examples=150, deadline=None)
def test_any_list_of_nodes_gives_a_fleet_or_faults(fleet: list[Any]) -> None:
    faults: tuple[str, ...] = ()
    try:
        load_fleet(json.dumps(fleet), "f.yaml", 0.0)
    except ConfigurationError as error:
        faults = error.faults
    assert all(fault.startswith("f.yaml:1: ") for fault in faults)


def test_the_fleet_of_the_documents_is_one() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "operations.md").read_text()
    documented = re.search(r"```yaml\n(- node_id: .*?)```", text, re.DOTALL)
    assert documented is not None
    fleet = load_fleet(documented[1], "operations.md", 1.0)
    assert [session.spec.node_id for session in fleet.sessions] == ["full-1", "small-1"]
    assert fleet.loads["small-1"].running == 12
