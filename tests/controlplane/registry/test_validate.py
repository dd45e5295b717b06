"""What a node may say of itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controlplane.errors import RegistrationError
from controlplane.model import NodeLoad, NodeSpec, ServedModel
from controlplane.registry.validate import check_load, checked
from support.nodes import FORMATS, load, node


def with_model(**changes: Any) -> NodeSpec:
    spec = node()
    return replace(spec, models=(replace(spec.models[0], **changes),))


def model(model_id: str, **changes: Any) -> ServedModel:
    return ServedModel(**{"id": model_id, "format": "fp16", "max_context": 1, "max_sequences": 1} | changes)


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("10.0.0.7:8000", "10.0.0.7:8000"),
        ("127.0.0.1:080", "127.0.0.1:80"),
        ("[FD00:0::7]:8000", "[fd00::7]:8000"),
        ("[::ffff:10.0.0.7]:1", "10.0.0.7:1"),
    ],
)
def test_an_address_gets_its_canonical_spelling(written: str, canonical: str) -> None:
    assert checked(node(address=written), FORMATS).address == canonical


@pytest.mark.parametrize(
    "spec",
    [
        node(),
        with_model(id="Qwen/Qwen2.5-7B_it:v1+x", aliases=("qwen", "the model")),
        with_model(served_name="/models/llama awq"),
        with_model(aliases=("llama",)),  # says again what the id says: no harm
        with_model(max_context=2**31 - 1, kv_cache_tokens=10**12),
        replace(node(), health_path="", labels={f"k{n}": "v" for n in range(32)}),
        replace(node(), models=(model("a", served_name="one"), model("b", served_name="two"))),
    ],
)
def test_a_sound_description_is_taken_as_it_is(spec: NodeSpec) -> None:
    assert checked(spec, FORMATS) == spec


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        (node(""), "node_id: it is missing"),
        (node("a/b"), "node_id: 'a/b' has other characters than letters, digits and . _ -"),
        (node("a\n"), "node_id: 'a\\n' has other characters"),
        (node("n" * 201), "is longer than 200 characters"),
        (node(address="engine.internal:8000"), "'engine.internal' is not an IP address; give the engine's IP"),
        (node(address="10.0.0.256:8000"), "'10.0.0.256' is not an IP address"),
        (node(address="10.0.0.7"), "address: '10.0.0.7' is not IP:port, such as 10.0.0.7:8000"),
        (node(address="http://10.0.0.7:8000"), "is not IP:port"),
        (node(address="fd00::7:8000"), "is not IP:port"),
        (node(address=""), "address: '' is not IP:port"),
        (node(address="10.0.0.7:0"), "port 0 is not from 1 to 65535"),
        (node(address="10.0.0.7:65536"), "port 65536 is not from 1 to 65535"),
        (node(address="0.0.0.0:8000"), "0.0.0.0 means every address of a machine"),
        (node(address="[::]:8000"), ":: means every address of a machine"),
        (node(address="224.0.0.1:8000"), "224.0.0.1 is no address of one machine"),
        (node(address="[fe80::1%eth0]:8000"), "give one without %"),
        (replace(node(), models=()), "models: a node serves at least one model"),
        (replace(node(), models=(model("a"),) * 2), "models: 'a' is listed 2 times"),
        (replace(node(), models=(model("a"),) * 201), "models: 201 are more than 200"),
        (replace(node(), models=(model("a"), model("b", aliases=("a",)))), "models: 'a' names 2 models"),
        (replace(node(), models=(model("a", served_name="x"), model("b", served_name="x"))), "'x' names 2 models"),
        (with_model(id=""), "models[0].id: it is missing"),
        (with_model(id="llama@awq"), "models[0].id: 'llama@awq' has other characters"),
        (with_model(id="a=b"), "models[0].id: 'a=b' has other characters"),
        (with_model(id="m" * 201), "models[0].id: 'mmm"),
        (with_model(aliases=("x", "x")), "models[0].aliases: 'x' is listed 2 times"),
        (with_model(aliases=("",)), "models[0].aliases: one is empty"),
        (with_model(aliases=("a\x00",)), "models[0].aliases: 'a\\x00' has characters that cannot be printed"),
        (with_model(aliases=tuple(map(str, range(51)))), "models[0].aliases: 51 are more than 50"),
        (with_model(served_name="s" * 201), "models[0].served_name: 'sss"),
        (with_model(format="int3"), "models[0].format: 'int3' is not known; use one of fp16, int4-awq"),
        (with_model(max_context=0), "models[0].max_context: 0 is not from 1 to 2147483647"),
        (with_model(max_sequences=2**31), "models[0].max_sequences: 2147483648 is not from 1"),
        (with_model(kv_cache_tokens=-1), "models[0].kv_cache_tokens: -1 is negative"),
        (replace(node(), gpu_count=-1), "gpu_count: -1 is negative"),
        (replace(node(), vram_bytes=-1), "vram_bytes: -1 is negative"),
        (replace(node(), engine="e" * 201), "engine: 'eee"),
        (replace(node(), hardware_class="a\nb"), "hardware_class: 'a\\nb' has characters"),
        (replace(node(), health_path="health"), "health_path: 'health' is no path"),
        (replace(node(), health_path="/a b"), "health_path: '/a b' is no path"),
        (replace(node(), labels={str(n): "" for n in range(33)}), "labels: 33 are more than 32"),
        (replace(node(), labels={"": "v"}), "labels: one has no name"),
        (replace(node(), labels={"k": "v" * 201}), "labels['k']: 'vvv"),
    ],
)
def test_a_fault_is_named_with_its_place_and_what_to_do(spec: NodeSpec, fault: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        checked(spec, FORMATS)
    (only,) = caught.value.faults
    assert fault in only
    assert len(only) < 300


def test_every_fault_is_told_at_once() -> None:
    spec = NodeSpec(node_id="", address="here", models=(model("", format="x", max_context=0),), gpu_count=-1)
    with pytest.raises(RegistrationError) as caught:
        checked(spec, FORMATS)
    assert [fault.split(":")[0] for fault in caught.value.faults] == [
        "node_id",
        "address",
        "models[0].id",
        "models[0].format",
        "models[0].max_context",
        "gpu_count",
    ]


@pytest.mark.parametrize(
    ("report", "fault"),
    [
        (replace(load(), running=-1), "load.running: -1 is not from 0 to 100000"),
        (replace(load(), waiting=-1), "load.waiting: -1 is not from 0 to 100000"),
        (replace(load(), kv_cache_use=1.01), "load.kv_cache_use: 1.01 is no share from 0 to 1"),
        (replace(load(), kv_cache_use=float("nan")), "load.kv_cache_use: nan"),
        (replace(load(), tokens_per_second=float("inf")), "load.tokens_per_second: inf"),
        (replace(load(), ttft_seconds=-0.1), "load.ttft_seconds: -0.1"),
    ],
)
def test_an_impossible_load_is_refused(report: NodeLoad, fault: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        check_load(report)
    (only,) = caught.value.faults
    assert only.startswith(fault)


def test_an_unknown_load_is_fine() -> None:
    check_load(NodeLoad(running=0, waiting=0))


def test_an_address_of_headrace_itself_is_refused_for_it_would_make_a_circle() -> None:
    with pytest.raises(RegistrationError) as raised:
        checked(node(address="127.0.0.1:10000"), FORMATS, ours=("127.0.0.1:10000",))
    assert raised.value.faults == (
        "address: 127.0.0.1:10000 is Headrace's own; a request would be led back to it again and again",
    )


@pytest.mark.parametrize("format_", ["gguf-q4_" + "x" * 1000, "gguf-q4_\x1b[31m"])
def test_a_format_is_a_short_printable_name(format_: str) -> None:
    with pytest.raises(RegistrationError, match=r"models\[0\].format"):
        checked(with_model(format=format_), FORMATS)
