"""The two remedies for too much traffic that needs full nodes, with numbers. Facts row: limit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.fleet import form_fleet
from controlplane.ledger.composition import Composition
from controlplane.ledger.remedies import full_nodes_needed, less_eager_threshold, remedies
from controlplane.model import NodeLoad, NodeSession
from controlplane.policy.settings import Policy, SensitivityRules
from support.nodes import node

POLICY = Policy()
# 82 of 100 need full; of the sensitive ones ten lie just above the threshold and five a step higher.
COMPOSITION = Composition(
    window_seconds=900,
    sensitive=62,
    neutral=30,
    tolerant=8,
    needing_full=82,
    pinned_to_full=20,
    free_scores=((100, 10), (110, 5), (130, 47)),
)


def session(name: str, format_: str, hardware_class: str = "a100-sxm4") -> NodeSession:
    spec = replace(node(name, f"10.0.0.{int(name[1:])}:8000", format_), hardware_class=hardware_class)
    return NodeSession(name, spec, registered_at=0.0)


SESSIONS = [session(f"n{number}", "fp16" if number < 4 else "int4-awq") for number in range(8)]
LOADS = {
    f"n{number}": NodeLoad(running=16 if number < 4 else 2, waiting=3 if number < 4 else 0, reported_at=0.0)
    for number in range(8)
}
FLEET = form_fleet(SESSIONS, LOADS, POLICY, 0.0)


def test_facts_limit_both_remedies_are_said_with_their_numbers() -> None:
    said = remedies(COMPOSITION, FLEET, POLICY)
    assert said == (
        "82% of the 100 classified requests of the last 15 min need the full tier (62% are sensitive, 20% belong to "
        "sessions pinned to it), with 70% as the limit: a matter of the fleet's composition, not of scheduling. "
        "Either judge less eagerly: with sensitivity.sensitive_at 120 instead of 100 it would be 67%. "
        "Or have more full nodes: of 8 ready nodes there are 4 full (64 of 64 sequences running, 12 waiting), "
        "4 quantized (8 of 64 sequences running, 0 waiting); for this traffic about 8 of 8 would have to be full"
    )


def test_the_threshold_is_the_smallest_one_above_the_present_that_would_do() -> None:
    assert less_eager_threshold(COMPOSITION, POLICY) == (120.0, pytest.approx(0.67))
    raised = replace(POLICY, sensitivity=SensitivityRules(sensitive_at=120))
    assert less_eager_threshold(COMPOSITION, raised) == (140.0, pytest.approx(0.20))


def test_where_no_threshold_would_do_that_is_said() -> None:
    pinned = replace(COMPOSITION, needing_full=90, free_scores=((100, 10),))
    assert less_eager_threshold(pinned, POLICY) is None
    assert "no other sensitivity.sensitive_at than 100 would do alone" in remedies(pinned, FLEET, POLICY)


@pytest.mark.parametrize(
    ("share", "nodes", "gain", "needed"),
    [(0.5, 8, 1.0, 4), (0.75, 8, 1.0, 6), (0.5, 8, 1.8, 6), (0.8, 8, 1.8, 8), (1.0, 8, 1.8, 8), (0.0, 8, 1.8, 0)],
)
def test_full_nodes_are_as_many_as_their_part_of_the_throughput_takes(
    share: float, nodes: int, gain: float, needed: int
) -> None:
    assert full_nodes_needed(share, nodes, gain) == needed
    throughput = needed + gain * (nodes - needed)
    assert needed / throughput >= share or needed == nodes


def test_a_fleet_without_loads_or_nodes_is_described_too() -> None:
    assert "4 full (load unknown)" in remedies(COMPOSITION, form_fleet(SESSIONS, {}, POLICY, 0.0), POLICY)
    assert "of 0 ready nodes" in remedies(COMPOSITION, form_fleet([], {}, POLICY, 0.0), POLICY)
