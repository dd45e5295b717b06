"""What load reports tell of gains and speeds, and when it is enough. Facts row: hardware."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from controlplane.learning.throughput import ThroughputLearner
from controlplane.model import FormatTier, NodeLoad, NodeSession, NodeSpec, ServedModel
from controlplane.policy.gain import Learned, LearnedGain
from controlplane.policy.settings import GainRules, Policy

A100, RTX = "a100-sxm4", "rtx-4090"
RULES = GainRules(enough_seconds=30, half_life_seconds=600)
POLICY = Policy(gain=RULES)
# Tokens per second of one sequence when it runs alone; each further one slows all of them.
FULL_RATE, SLOWER_BY = 60.0, 0.01


def node(name: str, format_: str, hardware_class: str = A100, **changes: object) -> NodeSession:
    spec = NodeSpec(
        name,
        "10.0.0.1:8000",
        (ServedModel("llama", format_, 8192, 64),),
        engine="vllm",
        gpu_count=1,
        hardware_class=hardware_class,
    )
    return NodeSession(f"session-{name}", replace(spec, **changes), registered_at=0.0)  # type: ignore[arg-type]


def rate(running: int, gain: float = 1.0) -> float:
    """Tokens per second of an engine."""
    return running * gain * FULL_RATE / (1 + SLOWER_BY * running)


class Reports:
    """Nodes that report each second; `running` and `gain` by node id."""

    def __init__(self, *sessions: NodeSession, policy: Policy = POLICY) -> None:
        self.learner = ThroughputLearner()
        self.sessions: Iterable[NodeSession] = sessions
        self.policy = policy
        self.now = 1000.0
        self.learned = Learned()

    def go(self, seconds: int, running: Mapping[str, int], gain: Mapping[str, float]) -> Learned:
        for _ in range(seconds):
            self.now += 1.0
            loads = {
                name: NodeLoad(count, 0, tokens_per_second=rate(count, gain.get(name, 1.0)), reported_at=self.now)
                for name, count in running.items()
            }
            for _again in range(3):  # a report is seen several times, and counts once
                self.learned = self.learner.observe(self.sessions, loads, self.policy, self.now)
        return self.learned

    @property
    def gain(self) -> LearnedGain | None:
        return self.learned.gains.get(("llama", A100))


def pair() -> Reports:
    return Reports(node("full", "fp16"), node("quantized", "int4-awq"))


def test_the_gain_is_how_much_faster_quantized_nodes_decode_at_the_same_load() -> None:
    reports = pair()
    reports.go(40, {"full": 8, "quantized": 8}, {"quantized": 1.62})
    assert reports.gain is not None
    assert reports.gain.value == 1.62
    assert reports.gain.seconds == pytest.approx(39, rel=0.05)


def test_loads_that_differ_are_compared_within_their_bands_only() -> None:
    """One at 2 sequences decodes each of them faster than one at 40; that is no gain."""
    reports = pair()
    reports.go(60, {"full": 40, "quantized": 2}, {"quantized": 1.5})
    assert reports.gain == LearnedGain(None, 0.0)
    reports.go(40, {"full": 40, "quantized": 40}, {"quantized": 1.5})
    reports.go(40, {"full": 2, "quantized": 40}, {"quantized": 1.5})
    assert reports.gain is not None
    assert reports.gain.value == 1.5


def test_until_both_sides_have_told_enough_nothing_is_learned() -> None:
    reports = pair()
    reports.go(200, {"full": 8}, {})
    assert reports.gain is None
    reports.go(30, {"full": 8, "quantized": 8}, {"quantized": 1.6})
    assert reports.gain is not None
    assert reports.gain.value is None
    reports.go(5, {"full": 8, "quantized": 8}, {"quantized": 1.6})
    assert reports.gain.value == 1.6


def test_what_was_learned_is_forgotten_by_half_in_a_half_life_and_then_given_up() -> None:
    reports = pair()
    reports.go(60, {"full": 8, "quantized": 8}, {"quantized": 1.6})
    assert reports.gain is not None
    known = reports.gain.seconds
    reports.go(600, {}, {})
    assert reports.gain.value == 1.6  # half of what is enough keeps it
    assert reports.gain.seconds == pytest.approx(known / 2, rel=0.01)
    reports.go(600, {}, {})
    assert reports.gain.value is None
    reports.go(20_000, {}, {})
    assert reports.learned == Learned({}, {})


def test_a_changed_gain_replaces_the_old_one_within_some_half_lives() -> None:
    reports = pair()
    reports.go(1200, {"full": 8, "quantized": 8}, {"quantized": 1.8})
    reports.go(2400, {"full": 8, "quantized": 8}, {"quantized": 1.2})
    assert reports.gain is not None
    assert reports.gain.value == pytest.approx(1.2, rel=0.06)


@pytest.mark.parametrize(("real", "learned"), [(9.0, 4.0), (0.1, 0.5)])
def test_a_learned_gain_is_bounded(real: float, learned: float) -> None:
    reports = pair()
    reports.go(60, {"full": 8, "quantized": 8}, {"quantized": real})
    assert reports.gain is not None
    assert reports.gain.value == learned


def test_a_gain_that_hardly_moves_stays_as_it_is() -> None:
    """Each change is a new routing table for all filters, and may be new weights for all Envoys."""
    reports = pair()
    reports.go(60, {"full": 8, "quantized": 8}, {"quantized": 1.6})
    seen = set()
    for second in range(300):
        reports.go(1, {"full": 8, "quantized": 8}, {"quantized": 1.6 + (0.3 if second % 2 else -0.3)})
        assert reports.gain is not None
        seen.add(reports.gain.value)
    assert seen == {1.6}


@pytest.mark.parametrize(
    "sessions",
    [
        (node("full", "fp16", ""), node("quantized", "int4-awq", "")),
        (node("full", "fp16", RTX), node("quantized", "int4-awq", A100)),
        (node("full", "fp16", gpu_count=4), node("quantized", "int4-awq")),
        (node("full", "fp16", engine="sglang"), node("quantized", "int4-awq")),
        (
            node("full", "fp16"),
            node(
                "quantized",
                "int4-awq",
                models=(ServedModel("llama", "int4-awq", 8192, 64), ServedModel("qwen", "int4-awq", 8192, 64)),
            ),
        ),
        (node("full", "fp16"), node("quantized", "int4-awq", models=(ServedModel("qwen", "int4-awq", 8192, 64),))),
    ],
    ids=["unknown hardware", "other hardware", "more GPUs", "another engine", "two models", "another model"],
)
def test_only_likes_are_compared(sessions: tuple[NodeSession, NodeSession]) -> None:
    reports = Reports(*sessions)
    reports.go(100, {"full": 8, "quantized": 8}, {"quantized": 1.6})
    assert all(gain.value is None for gain in reports.learned.gains.values())


def test_samples_of_a_changing_load_a_gap_an_idle_or_an_unwell_engine_do_not_count() -> None:
    def load(running: int, at: float, tokens: float | None = 100.0, *, healthy: bool = True) -> NodeLoad:
        return NodeLoad(running, 0, tokens_per_second=tokens, healthy=healthy, reported_at=at)

    for first, second in (
        (load(2, 1.0), load(40, 2.0)),
        (load(8, 1.0), load(8, 60.0)),
        (load(8, 2.0), load(8, 1.0)),
        (load(0, 1.0), load(0, 2.0)),
        (load(8, 1.0), load(8, 2.0, None)),
        (load(8, 1.0), load(8, 2.0, healthy=False)),
    ):
        learner = ThroughputLearner()
        sessions = [node("full", "fp16"), node("quantized", "int4-awq")]
        for report in (first, second):
            learned = learner.observe(sessions, {"full": report, "quantized": report}, POLICY, report.reported_at)
        assert learned == Learned({}, {})


def test_a_node_that_registers_anew_begins_anew() -> None:
    """What it reported before belongs to its former session, whose format may have been another."""
    reports = pair()
    reports.go(60, {"full": 8, "quantized": 8}, {"quantized": 1.6})
    again = replace(node("quantized", "fp16"), session_id="another")
    reports.sessions = (node("full", "fp16"), again)
    reports.go(300, {"full": 8, "quantized": 8}, {})
    assert reports.gain is not None
    assert reports.gain.value == 1.6
    assert reports.gain.seconds < 59


def test_speeds_of_hardware_classes_are_compared_within_a_tier() -> None:
    reports = Reports(node("a", "int4-awq"), node("b", "int4-awq", RTX))
    reports.go(60, {"a": 8, "b": 8}, {"a": 2.0, "b": 1.0})
    speeds = reports.learned.speeds["llama", FormatTier.QUANTIZED]
    assert (speeds.reference, dict(speeds.relative)) == (A100, {RTX: 0.5})
    reports.go(60, {"b": 8}, {"b": 1.0})  # more is known of the other one now
    assert reports.learned.speeds["llama", FormatTier.QUANTIZED].reference == A100


def test_noise_and_uneven_loads_hide_no_gain() -> None:
    """Full nodes run fuller than quantized ones, as they do when most of the traffic needs them."""
    dice = random.Random(7)
    reports = pair()
    running = {"full": 20, "quantized": 10}
    naive = {"full": [0.0, 0.0], "quantized": [0.0, 0.0]}
    for _ in range(1200):
        for name, (low, high) in (("full", (8, 40)), ("quantized", (2, 30))):
            running[name] = min(max(running[name] + dice.choice((-2, -1, 0, 0, 1, 2)), low), high)
        noise = {name: dice.lognormvariate(0.0, 0.3) for name in running}
        reports.go(1, running, {"full": noise["full"], "quantized": 1.8 * noise["quantized"]})
        for name, sums in naive.items():
            sums[0] += rate(running[name]) * noise[name] * (1.8 if name == "quantized" else 1.0)
            sums[1] += running[name]
    assert reports.gain is not None
    assert reports.gain.value == pytest.approx(1.8, rel=0.05)
    without_bands = naive["quantized"][0] / naive["quantized"][1] / (naive["full"][0] / naive["full"][1])
    assert without_bands > 1.95  # what the bands are for
