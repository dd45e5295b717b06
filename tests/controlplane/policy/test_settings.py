"""The policy's defaults are sound, and its contradictions are found."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from controlplane.model import FormatTier
from controlplane.policy.body import Body
from controlplane.policy.contexts import context_class_of
from controlplane.policy.faults import faults
from controlplane.policy.formats import fidelity_of, tier_of
from controlplane.policy.settings import (
    SESSION_FIELD_ROOTS,
    CompositionRules,
    ContextClass,
    FormatRules,
    GainRules,
    HardwareGain,
    LoadLimits,
    Policy,
    SelectionRules,
    SensitivityRules,
    SessionRules,
)


def test_the_default_policy_has_no_faults_and_survives_json() -> None:
    adapter = TypeAdapter(Policy)
    assert faults(Policy()) == ()
    assert adapter.validate_json(adapter.dump_json(Policy())) == Policy()


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (Policy(sensitivity=SensitivityRules(sensitive_at=-100)), "sensitivity.tolerant_at"),
        (Policy(sensitivity=SensitivityRules(near_greedy_temperature=0.8)), "near_greedy_temperature"),
        (Policy(formats=FormatRules(full=("fp8",), quantized=("FP8",))), "fp8 is in both tiers"),
        (Policy(context_classes=(ContextClass("short", 8192),)), "the last class must be unbounded"),
        (Policy(context_classes=(ContextClass("a"), ContextClass("b"))), "only the last class"),
        (Policy(context_classes=(ContextClass("a", 8), ContextClass("b", 8), ContextClass("c"))), "must grow"),
        (Policy(context_classes=(ContextClass("a", 8), ContextClass("a"))), "names must differ"),
        (Policy(selection=SelectionRules(load=LoadLimits(room_waiting_per_node=9))), "room_waiting_per_node"),
        (Policy(selection=SelectionRules(load=LoadLimits(room_kv_cache_use=0.99))), "room_kv_cache_use"),
        (Policy(gain=GainRules(priors=(HardwareGain("t4", 1.5), HardwareGain("T4", 1.4)))), "gain.priors"),
        (Policy(gain=GainRules(least=4.5)), "gain.least"),
        (Policy(gain=GainRules(enough_seconds=90, half_life_seconds=60)), "gain.enough_seconds"),
        (Policy(composition=CompositionRules(clear_below=0.8)), "composition.clear_below"),
        (Policy(sessions=SessionRules(headers=("X-Request-Id",))), "names a request"),
        (Policy(sessions=SessionRules(body_fields=("elsewhere.id",))), "is not looked at"),
    ],
)
def test_contradictions_are_found_and_named(policy: Policy, says: str) -> None:
    found = faults(policy)
    assert len(found) == 1
    assert says in found[0]


def test_the_parser_looks_at_every_root_that_may_hold_a_session() -> None:
    assert set(Body.__struct_fields__) >= SESSION_FIELD_ROOTS


@pytest.mark.parametrize(
    ("name", "tier"),
    [
        ("bf16", FormatTier.FULL),
        ("FP16", FormatTier.FULL),
        ("gguf-f16", FormatTier.FULL),
        ("fp8", FormatTier.QUANTIZED),
        ("int8", FormatTier.QUANTIZED),
        ("int4-awq", FormatTier.QUANTIZED),
        ("gguf-q4_k_m", FormatTier.QUANTIZED),
        ("something-new", FormatTier.QUANTIZED),
        ("fp160", FormatTier.QUANTIZED),
    ],
)
def test_formats_have_the_tier_that_lists_them(name: str, tier: FormatTier) -> None:
    assert tier_of(name, FormatRules()) is tier


def test_where_fp8_belongs_is_configuration() -> None:
    rules = FormatRules(full=("bf16", "fp8"), quantized=("int4",), unknown=FormatTier.FULL)
    assert tier_of("fp8-e4m3", rules) is FormatTier.FULL
    assert tier_of("unheard-of", rules) is FormatTier.FULL


def test_formats_are_ordered_by_fidelity_within_their_tier() -> None:
    rules = FormatRules()
    order = ["fp8", "int8", "gguf-q8_0", "int4-awq", "int4-gptq", "gguf-q4_k_m", "gguf-q2_k", "unheard-of"]
    fidelities = [fidelity_of(name, rules) for name in order]
    assert fidelities == sorted(fidelities, reverse=True)
    assert len(set(fidelities)) == len(order)


def test_context_classes_may_be_more_than_two() -> None:
    classes = (ContextClass("short", 4096), ContextClass("middle", 16384), ContextClass("long"))
    named = [context_class_of(size, classes) for size in (1, 4096, 4097, 16384, 16385, 10**9)]
    assert named == ["short", "short", "middle", "middle", "long", "long"]
