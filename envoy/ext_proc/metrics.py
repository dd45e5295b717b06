"""The filter's Prometheus metrics. Every label comes from a closed set or from the fleet, never from a client."""

from __future__ import annotations

from collections.abc import Collection

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controlplane.model import Decision, Pool
from controlplane.tallies import Spread, Tally

_SECONDS = (0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 1.0)
_TOKENS = (64, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
_DECISION_LABELS = ("action", "endpoint", "verdict", "pool", "reason")
_POOL = _DECISION_LABELS.index("pool")


class FilterMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._decisions = Tally(
            "headrace_decisions",
            "Decisions by action, verdict, pool and first reason.",
            _DECISION_LABELS,
            registry=registry,
        )
        self._by_tier = Tally(
            "headrace_qos_actions",
            "Decisions by QoS tier and action; in a dry run also by what would have been done, else `none`.",
            ("qos_tier", "action", "would_do"),
            registry=registry,
        )
        self._decision_seconds = Spread(
            "headrace_decision_seconds",
            "Time from the whole request to its answer, within the filter.",
            _SECONDS,
            registry=registry,
        )
        self._budget_tokens = Spread(
            "headrace_budget_tokens", "Estimated tokens of prompt and output together.", _TOKENS, registry=registry
        )
        self._tables = Counter("headrace_routing_tables_received", "Routing tables received.", registry=registry)
        self._table_pools = Gauge("headrace_routing_table_pools", "Pools in the routing table.", registry=registry)
        self._table_ready = Gauge(
            "headrace_routing_table_ready_nodes",
            "Nodes that the routing table lets get traffic, once for each of their pools.",
            registry=registry,
        )
        self._table_time = Gauge(
            "headrace_routing_table_received_timestamp_seconds", "When the last table arrived.", registry=registry
        )
        self._connected = Gauge(
            "headrace_feed_connected", "1 while a control plane sends routing tables, else 0.", registry=registry
        )
        self._unusable = Counter(
            "headrace_routing_tables_unusable",
            "Routing tables that this version cannot read; the last one stayed in force.",
            registry=registry,
        )
        self._store_failures = Counter(
            "headrace_session_store_failures",
            "Operations that the shared session store did not do; the worker's own memory stood in for it.",
            ("operation",),
            registry=registry,
        )
        self._store_up = Gauge(
            "headrace_session_store_up",
            "1 while the shared session store answers, or none is configured, else 0.",
            registry=registry,
        )
        self._store_up.set(1)
        self._sessions = Gauge(
            "headrace_session_pins", "Sessions whose pinned format tier this worker remembers.", registry=registry
        )
        self._waiting = Gauge("headrace_waiting_requests", "Requests that wait for room.", registry=registry)
        self._wait_seconds = Histogram(
            "headrace_wait_seconds",
            "How long requests waited for room that found none at first, by what became of them.",
            ("outcome",),
            registry=registry,
            buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 20, 30, 45, 60, 120),
        )
        self._rates_checked = Counter(
            "headrace_rate_checks",
            "Requests of tenants with a rate: admitted, refused, or unchecked and admitted since the store was away.",
            ("outcome",),
            registry=registry,
        )
        self._rates_corrected = Counter(
            "headrace_rate_corrections",
            "Charges put right by what requests really used: done, or lost since the store was away.",
            ("outcome",),
            registry=registry,
        )

    def decided(self, decision: Decision, seconds: float) -> None:
        action, pool, sensitivity, would_do = decision.action, decision.pool, decision.sensitivity, decision.would_do
        self._decisions.count(
            (
                action,
                decision.endpoint,
                sensitivity.verdict if sensitivity is not None else "none",
                pool.name if pool is not None else "none",
                decision.reasons[0] if decision.reasons else "none",
            )
        )
        self._by_tier.count((decision.qos_tier or "none", action, would_do.action if would_do is not None else "none"))
        self._decision_seconds.observe(seconds)
        if decision.budget is not None:
            self._budget_tokens.observe(decision.budget.total)

    def table_received(self, pools: Collection[Pool], at: float) -> None:
        """`at` in Unix seconds."""
        shown = {pool.name for pool in pools} | {"none"}
        self._decisions.forget(lambda values: values[_POOL] not in shown)
        self._tables.inc()
        self._table_pools.set(len(pools))
        self._table_ready.set(sum(pool.ready_nodes for pool in pools))
        self._table_time.set(at)

    def feed_connected(self, connected: bool) -> None:
        self._connected.set(int(connected))

    def table_unusable(self) -> None:
        self._unusable.inc()

    def session_store_failed(self, operation: str) -> None:
        self._store_failures.labels(operation).inc()

    def session_store_up(self, up: bool) -> None:
        self._store_up.set(int(up))

    def waiting(self, count: int) -> None:
        self._waiting.set(count)

    def wait_ended(self, outcome: str, seconds: float) -> None:
        self._wait_seconds.labels(outcome).observe(seconds)

    def count_sessions(self, count: int) -> None:
        self._sessions.set(count)

    def rate_checked(self, outcome: str) -> None:
        self._rates_checked.labels(outcome).inc()

    def rate_corrected(self, outcome: str) -> None:
        self._rates_corrected.labels(outcome).inc()
