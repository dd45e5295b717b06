"""The control plane's Prometheus metrics. Labels come from closed sets or from the fleet, never from a client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controlplane.fleet import Fleet
from controlplane.learning.suggesting import SuggestedBounds
from controlplane.ledger.composition import Assessment
from controlplane.ledger.ended import Ended
from controlplane.ledger.mistakes import Misroute
from controlplane.ledger.sla import FLEET, PoolAndTier, SlaRate
from controlplane.model import FormatTier, Verdict
from controlplane.policy.gain import expected_gain
from controlplane.policy.settings import GainRules
from controlplane.policy.sla import Judged, Judgement
from controlplane.tallies import Spread, Tally
from headrace_protos.headrace.v1 import fleet_pb2

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_VERDICTS = frozenset(Verdict)
_MISROUTES = frozenset(Misroute)


class ControlPlaneMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._nodes = Gauge("headrace_nodes", "Registered nodes.", registry=registry)
        self._pool_nodes = Gauge(
            "headrace_pool_nodes", "Nodes of each pool by state.", ("pool", "state"), registry=registry
        )
        self._pool_running = Gauge("headrace_pool_running", "Sequences running.", ("pool",), registry=registry)
        self._pool_waiting = Gauge("headrace_pool_waiting", "Requests waiting.", ("pool",), registry=registry)
        self._overridden_pools = Gauge(
            "headrace_overridden_pools", "Pools whose load an operator has overridden.", registry=registry
        )
        self._pressure = Gauge(
            "headrace_pool_pressure",
            "How hard each pool is pressed for each QoS tier: 0 normal, 1 elevated, 2 critical.",
            ("pool", "qos_tier"),
            registry=registry,
        )
        self._pressure_level = Gauge(
            "headrace_pool_pressure_level",
            "0 where a tier's pressure begins to be elevated, 1 where it begins to be critical.",
            ("pool", "qos_tier"),
            registry=registry,
        )
        self._signals_missing = Gauge(
            "headrace_pool_signals_missing", "Signals of pressure that no node reports.", ("pool",), registry=registry
        )
        self._fleet_pressure = Gauge(
            "headrace_fleet_pressure",
            "As headrace_pool_pressure, of the whole fleet.",
            ("qos_tier",),
            registry=registry,
        )
        self._gains = Gauge(
            "headrace_quantized_gain",
            "Times that quantized nodes decode faster than full ones, as expected, by where that is from.",
            ("model", "hardware_class", "source"),
            registry=registry,
        )
        self._window_requests = Gauge(
            "headrace_window_requests", "Classified requests in the window of the composition watch.", registry=registry
        )
        self._window_share = Gauge(
            "headrace_window_share", "Share of them by verdict.", ("verdict",), registry=registry
        )
        self._window_needing_full = Gauge(
            "headrace_window_needing_full_share", "Share of them that needs the full tier.", registry=registry
        )
        self._composition_trouble = Gauge(
            "headrace_fleet_composition_trouble",
            "1 while too much of the traffic needs the full tier for the fleet as it is composed, else 0.",
            registry=registry,
        )
        self._registrations = Counter(
            "headrace_registrations", "Registrations by result.", ("result",), registry=registry
        )
        self._heartbeats = Counter("headrace_heartbeats", "Load reports by result.", ("result",), registry=registry)
        self._prometheus = Counter(
            "headrace_prometheus_queries",
            "Queries for loads of nodes that report none, by signal and result: answered or failed.",
            ("signal", "result"),
            registry=registry,
        )
        self._etcd_up = Gauge("headrace_etcd_up", "1 while etcd answers, else 0.", registry=registry)
        self._views = Counter("headrace_fleet_views", "Views of the fleet published.", registry=registry)
        self._view_faults = Counter(
            "headrace_fleet_view_faults", "Views of the fleet that could not be published.", registry=registry
        )
        self._envoys = Gauge("headrace_xds_envoys", "Connected Envoys.", registry=registry)
        self._xds_updates = Counter(
            "headrace_xds_updates", "xDS responses by type and answer.", ("type", "answer"), registry=registry
        )
        self._filter_workers = Gauge(
            "headrace_filter_workers", "Filter workers that watch the routing table.", registry=registry
        )
        self._requests = Tally(
            "headrace_requests",
            "Requests in the access log, by pool, verdict and status class.",
            ("pool", "verdict", "status"),
            registry=registry,
        )
        self._undecided = Counter(
            "headrace_requests_without_decision", "Requests whose decision the access log lacks.", registry=registry
        )
        self._request_seconds = Spread(
            "headrace_request_seconds", "Whole duration.", _SECONDS, ("pool",), registry=registry
        )
        self._first_byte_seconds = Spread(
            "headrace_first_byte_seconds",
            "Time to the first byte from the engine.",
            _SECONDS,
            ("pool",),
            registry=registry,
        )
        self._tokens = Tally(
            "headrace_tokens", "Tokens by the engines' own count.", ("pool", "kind"), registry=registry
        )
        self._usage_missing = Tally(
            "headrace_usage_missing", "Answered requests without usage.", ("pool",), registry=registry
        )
        self._judged = Tally(
            "headrace_sla_requests",
            "Requests by what became of their tier's promise, and why.",
            ("pool", "qos_tier", "judgement", "cause"),
            registry=registry,
        )
        self._goodput = Tally(
            "headrace_goodput_tokens",
            "Output tokens of requests that got what their tier is promised.",
            ("pool", "qos_tier"),
            registry=registry,
        )
        self._violation_rate = Gauge(
            "headrace_sla_violation_rate",
            "Share of the tier's requests in the window that violated its promise; absent while there are too few.",
            ("pool", "qos_tier"),
            registry=registry,
        )
        self._misroutes = Tally(
            "headrace_context_judged",
            "Requests that several context classes might have served, by the mistake made: none, too_small, too_large "
            "or unknown.",
            ("pool", "mistake"),
            registry=registry,
        )
        self._bound_savings = Gauge(
            "headrace_context_bounds_saving",
            "Share of the engines that the bounds between context classes save at most, in force and suggested.",
            ("model", "bounds"),
            registry=registry,
        )
        self._usage = Tally(
            "headrace_usage",
            "Answered requests by what their usage taught of tokens, streamed or not.",
            ("result", "streamed"),
            registry=registry,
        )
        self._ledger_up = Gauge("headrace_ledger_up", "1 while the ledger can be written, else 0.", registry=registry)
        self._ledger_waiting = Gauge(
            "headrace_ledger_waiting", "Decisions that wait to be written to the ledger.", registry=registry
        )
        self._ledger_written = Counter("headrace_ledger_written", "Decisions written to the ledger.", registry=registry)
        self._ledger_lost = Counter(
            "headrace_ledger_lost", "Decisions that never reached the ledger, by cause.", ("cause",), registry=registry
        )
        self._ledger_short = Gauge(
            "headrace_ledger_unrecorded",
            "Decisions of the last day that filters made and the ledger has not, though no loss was told: recent, of "
            "requests that may be under way, or overdue, which are lost.",
            ("age",),
            registry=registry,
        )
        self._ledger_failures = Counter(
            "headrace_ledger_write_failures", "Tries to write to the ledger that failed.", registry=registry
        )
        self._ledger_seconds = Histogram(
            "headrace_ledger_write_seconds", "How long a batch took.", registry=registry, buckets=_SECONDS
        )
        # Whose first label is the pool's name.
        self._gauges_by_pool = (
            self._pool_nodes,
            self._pool_running,
            self._pool_waiting,
            self._pressure,
            self._pressure_level,
            self._signals_missing,
        )
        self._tallies_by_pool = (
            self._requests,
            self._request_seconds,
            self._first_byte_seconds,
            self._tokens,
            self._usage_missing,
            self._judged,
            self._goodput,
            self._misroutes,
        )
        self._fleet_pools: set[str] = set()
        self._shown_pools: set[str] = set()
        self._shown_bounds: set[str] = set()
        self._shown_gains: set[tuple[str, str, str]] = set()
        self._shown_rates: set[tuple[str, str]] = set()

    def view_published(self, fleet: Fleet, nodes: int) -> None:
        self._views.inc()
        self._nodes.set(nodes)
        self._overridden_pools.set(sum(bool(pool.overridden) for pool in fleet.pools))
        for pool in fleet.pools:
            self._pool_nodes.labels(pool.name, "ready").set(pool.ready_nodes)
            self._pool_nodes.labels(pool.name, "not_ready").set(pool.nodes - pool.ready_nodes)
            self._pool_running.labels(pool.name).set(pool.load.running if pool.load else 0)
            self._pool_waiting.labels(pool.name).set(pool.load.waiting if pool.load else 0)
            self._signals_missing.labels(pool.name).set(len(pool.missing_signals))
            for found in pool.pressures:
                self._pressure.labels(pool.name, found.tier).set(found.pressure)
                self._pressure_level.labels(pool.name, found.tier).set(found.level)
        for found in fleet.pressures:
            self._fleet_pressure.labels(found.tier).set(found.pressure)
        self._fleet_pools = {pool.name for pool in fleet.pools}
        gone = self._shown_pools - self._fleet_pools
        for name in gone:
            for metric in self._gauges_by_pool:
                metric.remove_by_labels({"pool": name})
        if gone:
            for tally in self._tallies_by_pool:
                tally.forget(lambda labels: labels[0] in gone)
        self._shown_pools = self._fleet_pools

    def gains_expected(self, fleet: Fleet, rules: GainRules) -> None:
        shown: set[tuple[str, str, str]] = set()
        for member in fleet.members:
            if member.tier is FormatTier.QUANTIZED:
                key = (member.model.id, member.session.spec.hardware_class)
                known = fleet.learned.gains.get(key)
                labels = (*key, "prior" if known is None or known.value is None else "learned")
                self._gains.labels(*labels).set(expected_gain(*key, fleet.learned, rules))
                shown.add(labels)
        for gone in self._shown_gains - shown:
            self._gains.remove(*gone)
        self._shown_gains = shown

    def bounds_suggested(self, suggested: Iterable[SuggestedBounds]) -> None:
        shown = set()
        for each in suggested:
            self._bound_savings.labels(each.model, "in_force").set(each.saving_in_force)
            self._bound_savings.labels(each.model, "suggested").set(each.saving)
            shown.add(each.model)
        for gone in self._shown_bounds - shown:
            self._bound_savings.remove_by_labels({"model": gone})
        self._shown_bounds = shown

    def composition_assessed(self, assessment: Assessment) -> None:
        composition = assessment.composition
        self._window_requests.set(composition.requests)
        for verdict, count in (
            (Verdict.SENSITIVE, composition.sensitive),
            (Verdict.NEUTRAL, composition.neutral),
            (Verdict.TOLERANT, composition.tolerant),
        ):
            self._window_share.labels(verdict).set(composition.share(count))
        self._window_needing_full.set(composition.needing_full_share)
        self._composition_trouble.set(int(assessment.is_trouble))

    def view_failed(self) -> None:
        self._view_faults.inc()

    def registered(self, result: str) -> None:
        self._registrations.labels(result).inc()

    def heartbeat(self, result: str) -> None:
        self._heartbeats.labels(result).inc()

    def prometheus_asked(self, signal: str, answered: bool) -> None:
        self._prometheus.labels(signal, "answered" if answered else "failed").inc()

    def etcd_up(self, up: bool) -> None:
        self._etcd_up.set(int(up))

    def envoys(self, count: int) -> None:
        self._envoys.set(count)

    def xds_update(self, kind: str, answer: str) -> None:
        self._xds_updates.labels(kind, answer).inc()

    def filter_workers(self, count: int) -> None:
        self._filter_workers.set(count)

    def taught(self, result: str, streamed: bool) -> None:
        self._usage.count((result, "true" if streamed else "false"))

    def ledger_up(self, up: bool) -> None:
        self._ledger_up.set(int(up))

    def ledger_waiting(self, decisions: int) -> None:
        self._ledger_waiting.set(decisions)

    def ledger_written(self, rows: int, seconds: float) -> None:
        self._ledger_written.inc(rows)
        self._ledger_seconds.observe(seconds)

    def ledger_lost(self, cause: str, decisions: int) -> None:
        self._ledger_lost.labels(cause).inc(decisions)

    def ledger_short(self, unrecorded: fleet_pb2.Unrecorded) -> None:
        self._ledger_short.labels("recent").set(unrecorded.decisions - unrecorded.overdue)
        self._ledger_short.labels("overdue").set(unrecorded.overdue)

    def ledger_failed(self) -> None:
        self._ledger_failures.inc()

    def request_finished(self, ended: Ended) -> None:
        """What the access log says is no label before it is known: anybody who reaches the xDS port can send one."""
        outcome, decision = ended.outcome, ended.decision
        if ended.encoded is None:
            self._undecided.inc()
        pool, verdict, status = self._pool_label(decision.pool), decision.verdict, outcome.status
        self._requests.count((pool, verdict if verdict in _VERDICTS else "none", _status_class(status)))
        of_pool = (pool,)
        self._request_seconds.observe(outcome.duration_seconds, of_pool)
        if outcome.first_byte_seconds is not None:
            self._first_byte_seconds.observe(outcome.first_byte_seconds, of_pool)
        if outcome.prompt_tokens is not None:
            self._tokens.count((pool, "prompt"), outcome.prompt_tokens)
        if outcome.completion_tokens is not None:
            self._tokens.count((pool, "completion"), outcome.completion_tokens)
        elif status == 200 and decision.pool:
            self._usage_missing.count(of_pool)
        if ended.misroute in _MISROUTES:
            self._misroutes.count((pool, ended.misroute))

    def request_judged(self, ended: Ended, judged: Judged | None) -> None:
        """None is a request whose tier is not known."""
        if judged is None:
            return
        pool, tier = self._pool_label(ended.decision.pool), ended.decision.qos_tier
        self._judged.count((pool, tier, judged.judgement, judged.cause or "none"))
        if judged.judgement is Judgement.MET:
            self._goodput.count((pool, tier), ended.outcome.completion_tokens or 0)

    def sla_measured(self, rates: Mapping[PoolAndTier, SlaRate]) -> None:
        """A rate that is missing is not shown: it is not 0."""
        shown: set[tuple[str, str]] = set()
        for (pool, tier), rate in rates.items():
            if rate.rate is not None and (pool == FLEET or pool in self._fleet_pools):
                labels = (pool or "all", str(tier))
                self._violation_rate.labels(*labels).set(rate.rate)
                shown.add(labels)
        for gone in self._shown_rates - shown:
            self._violation_rate.remove(*gone)
        self._shown_rates = shown

    def _pool_label(self, name: str) -> str:
        """`gone` is one that has left the fleet since its request began, or one that never was."""
        if not name:
            return "none"
        return name if name in self._fleet_pools else "gone"


def _status_class(status: int) -> str:
    """`none` where the client left before there was one."""
    return f"{status // 100}xx" if 100 <= status <= 599 else "none"
