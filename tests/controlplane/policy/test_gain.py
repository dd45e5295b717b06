"""What quantized formats are expected to gain, and what that does to choices and weights. Facts row: hardware."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.fleet import form_fleet
from controlplane.gateway import pool_clusters
from controlplane.messages import pool, pool_message
from controlplane.model import Decision, FormatTier, NodeSession, NodeSpec, Pin, Pool, Reason, ServedModel
from controlplane.policy.decide import decide
from controlplane.policy.explain import explain
from controlplane.policy.gain import Learned, LearnedGain, Speeds, expected_gain, prior_gain, speed_of
from controlplane.policy.settings import GainRules, HardwareGain, Policy
from support.asks import BUSY, IDLE, OVERLOADED, make_chat, make_pool, make_table

RULES = GainRules()
A100, RTX = "a100-sxm4", "rtx-4090"
TOLERANT = make_chat("Write a short story", temperature=1)
NEUTRAL = make_chat("Go on", temperature=0.5)
QUANTIZED, FULL = FormatTier.QUANTIZED, FormatTier.FULL


def target(decision: Decision) -> str:
    assert decision.pool is not None, decision
    return f"{decision.pool.tier.value}/{decision.pool.context_class}"


# --- expectations --------------------------------------------------------------------------------------------------


def test_facts_hardware_the_priors_lie_in_the_published_ranges() -> None:
    assert 1.7 <= prior_gain(A100, RULES) <= 1.9
    assert 1.3 <= prior_gain(RTX, RULES) <= 1.5
    assert (prior_gain(A100, RULES), prior_gain(RTX, RULES)) == (1.8, 1.4)
    assert prior_gain("h100", RULES) == prior_gain("", RULES) == prior_gain("rtx-4090-laptop", RULES) == 1.3
    assert prior_gain("RTX-4090", RULES) == 1.4


def test_every_expectation_is_configuration() -> None:
    rules = GainRules(priors=(HardwareGain("H100", 1.6),), default=1.0)
    assert (prior_gain("h100", rules), prior_gain(A100, rules)) == (1.6, 1.0)


def test_what_is_learned_replaces_the_prior_of_its_model_and_class_only() -> None:
    learned = Learned({("llama", A100): LearnedGain(1.2, 500.0), ("llama", RTX): LearnedGain(None, 10.0)})
    assert expected_gain("llama", A100, learned, RULES) == 1.2
    assert expected_gain("llama", RTX, learned, RULES) == 1.4
    assert expected_gain("qwen", A100, learned, RULES) == 1.8


def test_speeds_are_as_learned_else_classes_differ_by_what_quantized_formats_gain() -> None:
    learned = Learned(
        speeds={("llama", QUANTIZED): Speeds(A100, {RTX: 0.4}), ("llama", FULL): Speeds(A100, {RTX: 0.5})}
    )
    assert speed_of("llama", QUANTIZED, RTX, learned, RULES) == 0.4
    assert speed_of("llama", QUANTIZED, A100, learned, RULES) == 1.0
    assert speed_of("llama", QUANTIZED, "h100", learned, RULES) == pytest.approx(1.3 / 1.8)
    assert speed_of("llama", FULL, RTX, learned, RULES) == 0.5
    assert speed_of("llama", FULL, "h100", learned, RULES) == 1.0
    assert speed_of("llama", QUANTIZED, RTX, Learned(), RULES) == 1.4


# --- choosing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gain", "to", "reason"),
    [
        (1.8, "quantized/short", Reason.TOLERANT_PREFERS_QUANTIZED),
        (1.4, "quantized/short", Reason.TOLERANT_PREFERS_QUANTIZED),
        (1.1, "quantized/short", Reason.TOLERANT_PREFERS_QUANTIZED),
        (1.09, "full/short", Reason.TOLERANT_GAINS_TOO_LITTLE),
        (1.0, "full/short", Reason.TOLERANT_GAINS_TOO_LITTLE),
        (0.7, "full/short", Reason.TOLERANT_GAINS_TOO_LITTLE),
    ],
)
def test_facts_hardware_a_tolerant_request_leaves_the_full_tier_only_where_there_is_a_gain(
    gain: float, to: str, reason: Reason
) -> None:
    decision = decide(TOLERANT, make_table(make_pool("full"), make_pool("quantized", gain=gain)), None)
    assert (target(decision), decision.reasons) == (to, (reason,))


def test_without_a_gain_a_tolerant_request_still_spills_and_takes_what_there_is() -> None:
    pools = make_pool("full", load=OVERLOADED), make_pool("quantized", gain=1.0, load=IDLE)
    spilled = decide(TOLERANT, make_table(*pools), None)
    assert target(spilled) == "quantized/short"
    assert spilled.reasons == (Reason.TOLERANT_GAINS_TOO_LITTLE, Reason.SPILLED_UNDER_LOAD)
    busy = decide(TOLERANT, make_table(make_pool("full", load=BUSY), make_pool("quantized", gain=1.0)), None)
    assert target(busy) == "full/short"
    only = decide(TOLERANT, make_table(make_pool("full", ready=0), make_pool("quantized", gain=1.0)), None)
    assert (target(only), only.reasons) == ("quantized/short", (Reason.TOLERANT_PREFERS_QUANTIZED,))


def test_of_quantized_pools_the_one_that_gains_is_meant_even_with_a_longer_context() -> None:
    pools = make_pool("full"), make_pool("quantized", gain=1.0), make_pool("quantized", "long", gain=1.8)
    decision = decide(TOLERANT, make_table(*pools), None)
    assert (target(decision), decision.reasons) == ("quantized/long", (Reason.TOLERANT_PREFERS_QUANTIZED,))


def test_of_quantized_pools_alike_the_one_with_more_gain_is_chosen_and_a_fuller_one_is_not() -> None:
    slow, fast = make_pool("quantized", gain=1.4), make_pool("quantized", served_name="z-awq", gain=1.8)
    decision = decide(TOLERANT, make_table(slow, fast), None)
    assert decision.pool == fast
    marks = {a.pool: dict(a.scores)["gain"] for a in decision.alternatives}
    assert marks == {slow.name: pytest.approx(0.4), fast.name: pytest.approx(0.8)}
    assert decide(TOLERANT, make_table(slow, replace(fast, load=OVERLOADED)), None).pool == slow
    assert decide(TOLERANT, make_table(slow, fast), Pin(QUANTIZED)).pool == fast  # of a session's later requests too


def test_the_gain_counts_for_nobody_who_does_not_prefer_quantized_pools() -> None:
    pools = make_pool("full"), make_pool("quantized", gain=4.0)
    decision = decide(NEUTRAL, make_table(*pools), None)
    assert target(decision) == "full/short"
    assert {dict(a.scores)["gain"] for a in decision.alternatives} == {0.0}


def test_a_pinned_session_stays_in_its_tier_whatever_it_gains() -> None:
    decision = decide(TOLERANT, make_table(make_pool("full"), make_pool("quantized", gain=0.9)), Pin(QUANTIZED))
    assert (target(decision), decision.reasons) == ("quantized/short", (Reason.SESSION_PINNED,))


def test_explaining_says_what_gain_would_change_it_and_which_is_expected() -> None:
    def sentence(gain: float) -> str:
        table = make_table(make_pool("full"), make_pool("quantized", gain=gain))
        return " | ".join(explain(TOLERANT, table, None).would_change)

    assert (
        "a gain of 1.1 by quantized formats would send it to llama/quantized/short/on_demand; "
        "expected are 1.02 in llama/quantized/short/on_demand" in sentence(1.02)
    )
    assert "a gain below 1.1 by quantized formats would send it to llama/full/short/on_demand" in sentence(1.8)


# --- the fleet -----------------------------------------------------------------------------------------------------


def node(name: str, hardware_class: str, sequences: int = 16, format_: str = "int4-awq") -> NodeSession:
    number = int.from_bytes(name.encode()) % 200
    models = (ServedModel("llama", format_, 8192, sequences),)
    spec = NodeSpec(name, f"10.0.0.{number}:8000", models, hardware_class=hardware_class)
    return NodeSession(name, spec, registered_at=0.0)


def form(*sessions: NodeSession, learned: Learned | None = None) -> tuple[Pool, list[int]]:
    """The only pool, and its endpoints' weights by node id."""
    fleet = form_fleet(sessions, {}, Policy(), 0.0, learned=learned or Learned())
    (only,) = fleet.pools
    (cluster,) = pool_clusters(fleet)
    return only, [endpoint.weight for endpoint in cluster.endpoints]


def test_a_pool_gains_what_its_ready_nodes_gain_each_by_its_sequences() -> None:
    assert form(node("a", A100), node("b", RTX))[0].gain == 1.6
    assert form(node("a", A100, 48), node("b", RTX, 16))[0].gain == 1.7
    assert form(node("a", A100), replace(node("b", RTX), draining=True))[0].gain == 1.8
    assert form(node("a", A100, format_="fp16"))[0].gain == 1.0


def test_facts_hardware_endpoints_weigh_by_sequences_and_by_what_their_hardware_gains() -> None:
    assert form(node("a", A100), node("b", A100))[1] == [1000, 1000]
    assert form(node("a", A100, 64), node("b", A100, 16))[1] == [1000, 250]
    assert form(node("a", A100), node("b", RTX))[1] == [1000, 778]
    assert form(node("a", A100, format_="fp16"), node("b", RTX, format_="fp16"))[1] == [1000, 1000]


def test_endpoints_weigh_by_the_speeds_that_were_learned() -> None:
    learned = Learned(speeds={("llama", QUANTIZED): Speeds(A100, {RTX: 0.45})})
    assert form(node("a", A100), node("b", RTX), learned=learned)[1] == [1000, 450]
    assert form(node("a", A100), node("b", RTX, 32), learned=learned)[1] == [1000, 900]


def test_a_tiny_endpoint_keeps_a_weight() -> None:
    assert form(node("a", A100, 100_000), node("b", A100, 1))[1] == [1000, 1]


def test_what_is_learned_reaches_filters_with_the_pool() -> None:
    learned = Learned({("llama", A100): LearnedGain(1.03, 500.0)})
    quantized, _ = form(node("a", A100), learned=learned)
    received = pool(pool_message(quantized))
    assert received.gain == 1.03
    assert target(decide(TOLERANT, make_table(make_pool("full"), received), None)) == "full/short"
