"""The agent's Prometheus metrics, and what they are told. Every label comes from a closed set."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, Protocol, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge

from controlplane.model import NodeLoad

RegistrationResult = Literal["ok", "refused", "unavailable"]
HeartbeatResult = Literal["ok", "session_lost", "refused", "unavailable"]


class Observer(Protocol):
    """Told what happens to the node. `refused` is what a person has to mend, `unavailable` may pass by itself."""

    def registration(self, result: RegistrationResult) -> None: ...

    def registered(self, registered: bool) -> None:
        """Whether the node has a session now."""

    def heartbeat(self, result: HeartbeatResult) -> None:
        """The answer to one load report, or the end of the stream that it went by."""

    def reading(self, load: NodeLoad) -> None:
        """One look at the engine."""


class AgentMetrics:
    """`clock` gives Unix seconds."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._registered = Gauge(
            "headrace_node_registered", "1 while the node has a session, else 0.", registry=registry
        )
        self._registrations = Counter(
            "headrace_node_registrations", "Registrations tried, by result.", ("result",), registry=registry
        )
        self._heartbeats = Counter(
            "headrace_node_heartbeats", "Heartbeats by what became of them.", ("result",), registry=registry
        )
        self._acknowledged = Gauge(
            "headrace_node_heartbeat_acknowledged_timestamp_seconds",
            "When the last heartbeat was acknowledged; 0 before the first.",
            registry=registry,
        )
        self._healthy = Gauge(
            "headrace_node_engine_healthy", "1 while the engine answers that it can serve, else 0.", registry=registry
        )
        self._running = Gauge("headrace_node_running", "Sequences running in the engine.", registry=registry)
        self._waiting = Gauge("headrace_node_waiting", "Requests waiting in the engine.", registry=registry)
        self._kv_cache_use = Gauge(
            "headrace_node_kv_cache_use", "Share of the KV cache in use; NaN when unknown.", registry=registry
        )
        self._kv_cache_use.set(math.nan)
        # At 0 from the start, or the first of a kind would be no increase.
        for result in get_args(RegistrationResult):
            self._registrations.labels(result)
        for result in get_args(HeartbeatResult):
            self._heartbeats.labels(result)

    def registration(self, result: RegistrationResult) -> None:
        self._registrations.labels(result).inc()

    def registered(self, registered: bool) -> None:
        self._registered.set(int(registered))

    def heartbeat(self, result: HeartbeatResult) -> None:
        self._heartbeats.labels(result).inc()
        if result == "ok":
            self._acknowledged.set(self._clock())

    def reading(self, load: NodeLoad) -> None:
        self._healthy.set(int(load.healthy))
        self._running.set(load.running)
        self._waiting.set(load.waiting)
        self._kv_cache_use.set(math.nan if load.kv_cache_use is None else load.kv_cache_use)
