"""The control plane's metrics: closed label sets, and nothing left of pools that are gone."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest

from controlplane.fleet import form_fleet
from controlplane.ledger.composition import Assessment, Composition
from controlplane.ledger.encoding import ended_of
from controlplane.ledger.sla import SlaRate
from controlplane.metrics import ControlPlaneMetrics
from controlplane.model import NodeLoad, NodeSession, Pressure, QosTier, TierPressure
from controlplane.policy.gain import Learned, LearnedGain
from controlplane.policy.settings import Policy
from controlplane.policy.sla import Cause, Judged, Judgement
from headrace_protos.headrace.v1 import decision_pb2
from support.nodes import node

POOL = "llama/full/short/on_demand"
FLEET = form_fleet(
    [NodeSession("s", node("a"), registered_at=0.0)],
    {"a": NodeLoad(running=3, waiting=2, reported_at=0.0)},
    Policy(),
    now=0.0,
)
EMPTY = form_fleet([], {}, Policy(), now=0.0)


def recorded(pool: str = POOL, status: int = 200, verdict: str = "neutral") -> decision_pb2.RecordedDecision:
    return decision_pb2.RecordedDecision(
        decision=decision_pb2.Decision(pool=pool, sensitivity=decision_pb2.Sensitivity(verdict=verdict)),
        outcome=decision_pb2.Outcome(status=status, duration_seconds=0.2, first_byte_seconds=0.1, prompt_tokens=5),
    )


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, labels)


def new_metrics() -> tuple[ControlPlaneMetrics, CollectorRegistry]:
    registry = CollectorRegistry()
    return ControlPlaneMetrics(registry), registry


def test_a_pool_is_shown_with_its_nodes_and_load() -> None:
    metrics, registry = new_metrics()
    metrics.view_published(FLEET, nodes=1)
    assert value(registry, "headrace_nodes") == 1
    assert value(registry, "headrace_pool_nodes", pool=POOL, state="ready") == 1
    assert value(registry, "headrace_pool_nodes", pool=POOL, state="not_ready") == 0
    assert value(registry, "headrace_pool_running", pool=POOL) == 3
    assert value(registry, "headrace_pool_waiting", pool=POOL) == 2


def test_overridden_pools_are_counted() -> None:
    metrics, registry = new_metrics()
    overridden = replace(FLEET, pools=(replace(FLEET.pools[0], overridden=("waiting",)),))
    for fleet, count in ((FLEET, 0), (overridden, 1), (EMPTY, 0)):
        metrics.view_published(fleet, nodes=1)
        assert value(registry, "headrace_overridden_pools") == count


def test_a_request_counts_with_its_outcome() -> None:
    metrics, registry = new_metrics()
    metrics.view_published(FLEET, nodes=1)
    metrics.request_finished(ended_of(recorded()))
    assert value(registry, "headrace_requests_total", pool=POOL, verdict="neutral", status="2xx") == 1
    assert value(registry, "headrace_request_seconds_sum", pool=POOL) == 0.2
    assert value(registry, "headrace_first_byte_seconds_count", pool=POOL) == 1
    assert value(registry, "headrace_tokens_total", pool=POOL, kind="prompt") == 5
    assert value(registry, "headrace_usage_missing_total", pool=POOL) == 1
    answered = recorded()
    answered.outcome.completion_tokens = 7
    metrics.request_finished(ended_of(answered))
    assert value(registry, "headrace_tokens_total", pool=POOL, kind="completion") == 7
    assert value(registry, "headrace_usage_missing_total", pool=POOL) == 1


def test_mistakes_of_the_context_class_count_by_pool_and_direction() -> None:
    metrics, registry = new_metrics()
    metrics.view_published(FLEET, nodes=1)
    for mistake in ("too_small", "too_small", "none", "", "forged"):
        made = recorded()
        made.misroute = mistake
        metrics.request_finished(ended_of(made))
    judged = {
        mistake: value(registry, "headrace_context_judged_total", pool=POOL, mistake=mistake)
        for mistake in ("too_small", "none", "forged")
    }
    assert judged == {"too_small": 2, "none": 1, "forged": None}


def test_what_the_access_log_says_is_no_label_unless_it_is_known() -> None:
    metrics, registry = new_metrics()
    metrics.view_published(FLEET, nodes=1)
    metrics.request_finished(ended_of(recorded(pool="made up", verdict="made up", status=4_000_000)))
    metrics.request_finished(ended_of(recorded(pool="", verdict="", status=0)))
    metrics.request_finished(ended_of(decision_pb2.RecordedDecision(outcome=decision_pb2.Outcome(status=503))))
    assert b"made up" not in generate_latest(registry)
    assert value(registry, "headrace_requests_total", pool="gone", verdict="none", status="none") == 1
    assert value(registry, "headrace_requests_total", pool="none", verdict="none", status="none") == 1
    assert value(registry, "headrace_requests_total", pool="none", verdict="none", status="5xx") == 1
    assert value(registry, "headrace_requests_without_decision_total") == 1


def test_nothing_is_left_of_a_pool_that_is_gone_even_when_its_last_requests_end_later() -> None:
    metrics, registry = new_metrics()
    metrics.view_published(FLEET, nodes=1)
    metrics.request_finished(ended_of(recorded()))
    metrics.view_published(EMPTY, nodes=0)
    assert POOL.encode() not in generate_latest(registry)
    metrics.request_finished(ended_of(recorded()))
    assert POOL.encode() not in generate_latest(registry)
    assert value(registry, "headrace_requests_total", pool="gone", verdict="neutral", status="2xx") == 1
    metrics.view_published(FLEET, nodes=1)
    assert value(registry, "headrace_pool_running", pool=POOL) == 3


def test_what_is_judged_of_requests_counts_by_pool_and_tier() -> None:
    metrics, registry = new_metrics()
    metrics.view_published(FLEET, nodes=1)
    ended = recorded()
    ended.decision.qos_tier = "guaranteed"
    ended.outcome.completion_tokens = 30
    late = Judged(Judgement.VIOLATED, Cause.FIRST_TOKEN)
    for judged in (Judged(Judgement.MET), Judged(Judgement.MET), late, None):
        metrics.request_judged(ended_of(ended), judged)
    labels = {"pool": POOL, "qos_tier": "guaranteed"}
    assert value(registry, "headrace_sla_requests_total", **labels, judgement="met", cause="none") == 2
    assert value(registry, "headrace_sla_requests_total", **labels, judgement="violated", cause="first_token") == 1
    assert value(registry, "headrace_goodput_tokens_total", **labels) == 60


def test_a_violation_rate_that_is_missing_is_not_shown() -> None:
    metrics, registry = new_metrics()
    metrics.view_published(FLEET, nodes=1)
    key, fleet = (POOL, QosTier.STANDARD), ("", QosTier.STANDARD)
    metrics.sla_measured({key: SlaRate(0.25), fleet: SlaRate(0.5), ("gone", QosTier.STANDARD): SlaRate(1.0)})
    assert value(registry, "headrace_sla_violation_rate", pool=POOL, qos_tier="standard") == 0.25
    assert value(registry, "headrace_sla_violation_rate", pool="all", qos_tier="standard") == 0.5
    assert value(registry, "headrace_sla_violation_rate", pool="gone", qos_tier="standard") is None
    metrics.sla_measured({key: SlaRate(None, met=3), fleet: SlaRate(0.0)})
    assert value(registry, "headrace_sla_violation_rate", pool=POOL, qos_tier="standard") is None
    assert value(registry, "headrace_sla_violation_rate", pool="all", qos_tier="standard") == 0.0
    metrics.view_published(EMPTY, nodes=0)
    metrics.sla_measured({fleet: SlaRate(1.0), key: SlaRate(1.0)})
    assert value(registry, "headrace_sla_violation_rate", pool="all", qos_tier="standard") == 1.0
    assert POOL.encode() not in generate_latest(registry)


def test_the_state_of_the_surroundings_is_shown() -> None:
    metrics, registry = new_metrics()
    metrics.etcd_up(True)
    metrics.envoys(2)
    metrics.filter_workers(3)
    metrics.view_failed()
    metrics.registered("ok")
    metrics.heartbeat("not_found")
    metrics.xds_update("cluster", "rejected")
    assert value(registry, "headrace_etcd_up") == 1
    assert value(registry, "headrace_xds_envoys") == 2
    assert value(registry, "headrace_filter_workers") == 3
    assert value(registry, "headrace_fleet_view_faults_total") == 1
    assert value(registry, "headrace_registrations_total", result="ok") == 1
    assert value(registry, "headrace_heartbeats_total", result="not_found") == 1
    assert value(registry, "headrace_xds_updates_total", type="cluster", answer="rejected") == 1


def test_what_the_traffic_consists_of_is_shown() -> None:
    metrics, registry = new_metrics()
    composition = Composition(900, sensitive=6, neutral=3, tolerant=1, needing_full=8, pinned_to_full=2)
    metrics.composition_assessed(Assessment(composition, is_trouble=True, changed=True))
    assert value(registry, "headrace_window_requests") == 10
    shares = [value(registry, "headrace_window_share", verdict=v) for v in ("sensitive", "neutral", "tolerant")]
    assert shares == [0.6, 0.3, 0.1]
    assert value(registry, "headrace_window_needing_full_share") == 0.8
    assert value(registry, "headrace_fleet_composition_trouble") == 1
    metrics.composition_assessed(Assessment(Composition(900), is_trouble=False, changed=True))
    assert value(registry, "headrace_window_share", verdict="sensitive") == 0
    assert value(registry, "headrace_fleet_composition_trouble") == 0


def test_gains_are_shown_by_source_as_long_as_there_are_quantized_nodes() -> None:
    metrics, registry = new_metrics()
    sessions = [NodeSession("s", node("a", format="int4-awq"), registered_at=0.0)]
    metrics.gains_expected(form_fleet(sessions, {}, Policy(), now=0.0), Policy().gain)
    assert value(registry, "headrace_quantized_gain", model="llama", hardware_class="", source="prior") == 1.3
    learned = Learned({("llama", ""): LearnedGain(1.6, 500.0)})
    metrics.gains_expected(form_fleet(sessions, {}, Policy(), now=0.0, learned=learned), Policy().gain)
    assert value(registry, "headrace_quantized_gain", model="llama", hardware_class="", source="learned") == 1.6
    assert value(registry, "headrace_quantized_gain", model="llama", hardware_class="", source="prior") is None
    metrics.gains_expected(FLEET, Policy().gain)
    assert b"headrace_quantized_gain{" not in generate_latest(registry)


def test_pressure_is_shown_by_pool_and_tier() -> None:
    registry = CollectorRegistry()
    metrics = ControlPlaneMetrics(registry)
    pressures = (TierPressure(QosTier.STANDARD, Pressure.CRITICAL, 0.75, "kv_cache_use"),)
    pools = tuple(replace(pool, pressures=pressures, missing_signals=("waiting_per_node",)) for pool in FLEET.pools)
    metrics.view_published(replace(FLEET, pools=pools, pressures=pressures), 1)
    labels = {"pool": POOL, "qos_tier": "standard"}
    assert registry.get_sample_value("headrace_pool_pressure", labels) == 2
    assert registry.get_sample_value("headrace_pool_pressure_level", labels) == 0.75
    assert registry.get_sample_value("headrace_pool_signals_missing", {"pool": POOL}) == 1
    assert registry.get_sample_value("headrace_fleet_pressure", {"qos_tier": "standard"}) == 2
    metrics.view_published(EMPTY, 0)
    assert registry.get_sample_value("headrace_pool_pressure", labels) is None
