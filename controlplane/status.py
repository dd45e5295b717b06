"""Sums up a control plane for `headrace status`: counts, connections, and the conditions an operator should look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controlplane.estimation.lessons import TAUGHT_NOTHING, TOLD_USAGE, Lesson
from controlplane.learning.suggesting import SuggestedBounds
from controlplane.ledger.composition import Assessment, Composition
from controlplane.ledger.remedies import remedies
from controlplane.ledger.sla import PoolAndTier, SlaRate
from controlplane.messages import pressure_message
from controlplane.model import FormatTier, Pressure, QosTier
from controlplane.policy.gain import expected_gain, prior_gain
from controlplane.policy.qos import Mode
from controlplane.view import View
from headrace_protos.headrace.v1 import calibration_pb2, fleet_pb2

LOSS_SHOWN_SECONDS = 3600.0
# Times that a pool's largest context may be its smallest before something is said.
UNLIKE_CONTEXTS = 1.5
# A larger share of at least so many answered requests that teach nothing of tokens is worth a look.
USAGE_SHARE = 0.5
USAGE_REQUESTS = 100


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What `summarise` needs besides the view. Troubles and faults are None when all is well.

    `snapshot_version` is of what Envoys should hold, empty before the first; `now` is in Unix seconds.
    `assessment` is the last one of what the traffic consists of; `ledger` is None where none is configured. `sla` tells
    whether QoS tiers get what they are promised. `usage` counts the answered requests since the process began by what
    they taught of tokens.
    `workers` are the reports of filter workers. `bounds` are where context classes part, and where they had better.
    """

    version: str
    uptime_seconds: float
    etcd_trouble: str | None
    policy_fault: str | None
    view_fault: str | None
    snapshot_version: str
    envoys: tuple[fleet_pb2.EnvoyStatus, ...]
    filter_workers: tuple[str, ...]
    now: float
    workers: tuple[fleet_pb2.WorkerStatus, ...] = ()
    assessment: Assessment | None = None
    ledger: fleet_pb2.LedgerStatus | None = None
    unrecorded: fleet_pb2.Unrecorded | None = None
    sla: Mapping[PoolAndTier, SlaRate] = field(default_factory=dict)
    bounds: tuple[SuggestedBounds, ...] = ()
    usage: tuple[calibration_pb2.UsageCount, ...] = ()
    prometheus: fleet_pb2.PrometheusStatus | None = None


def summarise(view: View | None, around: Surroundings) -> fleet_pb2.GetStatusResponse:
    nodes = len(view.sessions) if view else 0
    ready = len({m.session.session_id for m in view.fleet.members if m.ready}) if view else 0
    return fleet_pb2.GetStatusResponse(
        version=around.version,
        uptime_seconds=around.uptime_seconds,
        etcd=around.etcd_trouble or "connected",
        ready_nodes=ready,
        nodes=nodes,
        pools=len(view.fleet.pools) if view else 0,
        routing_table_version=view.table.version if view else "",
        envoys=around.envoys,
        filter_workers=around.filter_workers,
        workers=around.workers,
        conditions=list(_conditions(view, around)),
        gains=list(_gains(view)) if view else (),
        composition=_composition_message(around.assessment.composition) if around.assessment else None,
        ledger=_ledger(around),
        sla=list(_sla(around.sla)),
        qos_mode=view.table.policy.qos.mode if view else "",
        fleet_pressures=map(pressure_message, view.fleet.pressures) if view else (),
        silent_nodes=sorted(_silent(view)) if view else (),
        context_bounds=[_bounds_message(bounds) for bounds in around.bounds],
        usage=around.usage,
        prometheus=around.prometheus,
    )


def _ledger(around: Surroundings) -> fleet_pb2.LedgerStatus | None:
    if around.ledger is not None and around.unrecorded is not None:
        around.ledger.unrecorded.CopyFrom(around.unrecorded)
    return around.ledger


def _silent(view: View) -> Iterable[str]:
    """Nodes that teach nothing of a stream, unless its client asked for usage."""
    return (node_id for node_id, load in view.loads.items() if node_id in view.sessions and load.streams_usage is False)


def _bounds_message(bounds: SuggestedBounds) -> fleet_pb2.ContextBounds:
    return fleet_pb2.ContextBounds(
        model=bounds.model,
        in_force=bounds.in_force,
        suggested=bounds.suggested,
        saving=bounds.saving,
        saving_in_force=bounds.saving_in_force,
        requests=bounds.requests,
        engines=bounds.engines,
        suggested_engines=bounds.suggested_engines,
        saving_left=bounds.saving_left,
    )


def _gains(view: View) -> Iterable[fleet_pb2.Gain]:
    """Of each model and hardware class that has quantized nodes."""
    rules, learned = view.table.policy.gain, view.fleet.learned
    for model, hardware_class in sorted(
        {(m.model.id, m.session.spec.hardware_class) for m in view.fleet.members if m.tier is FormatTier.QUANTIZED}
    ):
        known = learned.gains.get((model, hardware_class))
        yield fleet_pb2.Gain(
            model=model,
            hardware_class=hardware_class,
            gain=expected_gain(model, hardware_class, learned, rules),
            learned=known is not None and known.value is not None,
            prior=prior_gain(hardware_class, rules),
            comparable_seconds=known.seconds if known else 0.0,
        )


def _sla(rates: Mapping[PoolAndTier, SlaRate]) -> Iterable[fleet_pb2.SlaRate]:
    """The fleet first, then its pools by name; in each the best tier first."""
    tiers = list(QosTier)
    for (pool, tier), rate in sorted(rates.items(), key=lambda item: (item[0][0], tiers.index(item[0][1]))):
        yield fleet_pb2.SlaRate(
            pool=pool,
            qos_tier=tier,
            violation_rate=rate.rate,
            met=rate.met,
            violated=rate.violated,
            rejected=rate.rejected,
            not_counted=rate.not_counted,
            causes=dict(rate.causes),
        )


def _composition_message(composition: Composition) -> fleet_pb2.Composition | None:
    if not composition.requests:
        return None
    return fleet_pb2.Composition(
        window_seconds=composition.window_seconds,
        requests=composition.requests,
        sensitive=composition.sensitive,
        neutral=composition.neutral,
        tolerant=composition.tolerant,
        needing_full=composition.needing_full,
        pinned_to_full=composition.pinned_to_full,
    )


def _conditions(view: View | None, around: Surroundings) -> Iterable[fleet_pb2.Condition]:
    if around.etcd_trouble:
        yield fleet_pb2.Condition(
            name="etcd_unreachable",
            message=f"{around.etcd_trouble}; traffic goes on with the last state, but no node can join or leave",
        )
    for envoy in around.envoys:
        # Later updates may have been taken, which mends what an earlier one left behind.
        if envoy.rejected_updates and envoy.acknowledged_version != around.snapshot_version:
            yield fleet_pb2.Condition(
                name="xds_update_rejected",
                message=f"Envoy {envoy.node_id} refused {envoy.rejected_updates} updates and keeps what it had; "
                f"the last: {envoy.last_rejection}",
            )
    if around.view_fault:
        yield fleet_pb2.Condition(
            name="fleet_not_published",
            message=f"the fleet's last changes are not in force, traffic goes on as before them: {around.view_fault}",
        )
    if around.policy_fault:
        yield fleet_pb2.Condition(
            name="policy_unreadable",
            message=f"the policy set by an operator is not in force: {around.policy_fault}",
        )
    if view is not None:
        yield from _fleet_conditions(view, around)
    if around.ledger is not None:
        yield from _ledger_conditions(around.ledger, around.now)
    if around.unrecorded is not None:
        yield from _unrecorded_conditions(around.unrecorded, around.now)
    yield from _usage_conditions(around.usage)
    if around.prometheus is not None and around.prometheus.trouble:
        yield fleet_pb2.Condition(
            name="prometheus_unusable",
            message=f"loads that {around.prometheus.url} does not tell are missing, which counts as no pressure: "
            f"{around.prometheus.trouble}",
        )
    if not around.envoys:
        yield fleet_pb2.Condition(
            name="no_envoy", message="no Envoy is connected over xDS; start `headrace envoy` or check its bootstrap"
        )
    if away := [worker for worker in around.workers if worker.session_store_trouble]:
        yield fleet_pb2.Condition(
            name="session_store_unreachable",
            message=f"{len(away)} of {len(around.workers)} filter workers cannot reach the session store: "
            f"{away[0].session_store_trouble}. Each goes on by its own memory, so that two may lead one session to "
            "different format tiers",
        )
    if not around.filter_workers:
        yield fleet_pb2.Condition(
            name="no_filter", message="no filter watches the routing table; start `headrace ext-proc`"
        )


def _usage_conditions(usage: tuple[calibration_pb2.UsageCount, ...]) -> Iterable[fleet_pb2.Condition]:
    nothing = sum(count.requests for count in usage if count.result in TAUGHT_NOTHING)
    answered = nothing + sum(count.requests for count in usage if count.result in TOLD_USAGE)
    if answered >= USAGE_REQUESTS and nothing > USAGE_SHARE * answered:
        streamed = sum(count.requests for count in usage if count.result == Lesson.NO_USAGE and count.streamed)
        yield fleet_pb2.Condition(
            name="usage_missing",
            message=f"{nothing / answered:.0%} of {answered} answered requests told no usage that tokens can be "
            f"learned from, {streamed} of them streams without any; have engines send it unasked (vLLM: "
            "--enable-force-include-usage), or clients ask for it by stream_options.include_usage",
        )


def _ledger_conditions(ledger: fleet_pb2.LedgerStatus, now: float) -> Iterable[fleet_pb2.Condition]:
    if ledger.trouble:
        yield fleet_pb2.Condition(
            name="ledger_unreachable",
            message=f"{ledger.store} cannot be written, {ledger.waiting} decisions wait for it: {ledger.trouble}",
        )
    if ledger.HasField("last_loss") and now - ledger.last_loss.ToMicroseconds() / 1e6 < LOSS_SHOWN_SECONDS:
        causes = ", ".join(f"{count} {cause}" for cause, count in sorted(ledger.lost.items()))
        yield fleet_pb2.Condition(
            name="ledger_incomplete",
            message=f"decisions that never reached the ledger since this control plane began: {causes}; the last at "
            f"{ledger.last_loss.ToJsonString()}. With queue_full, the database is away or too slow",
        )


def _unrecorded_conditions(unrecorded: fleet_pb2.Unrecorded, now: float) -> Iterable[fleet_pb2.Condition]:
    if unrecorded.overdue and now - unrecorded.last_overdue.ToMicroseconds() / 1e6 < LOSS_SHOWN_SECONDS:
        yield fleet_pb2.Condition(
            name="decisions_unrecorded",
            message=f"{unrecorded.overdue} decisions of the last day never reached a control plane, or died with one, "
            f"the last before {unrecorded.last_overdue.ToJsonString()}: requests were served, the ledger and the "
            "learned figures lack them",
        )


def _qos_conditions(view: View) -> Iterable[fleet_pb2.Condition]:
    mode = view.table.policy.qos.mode
    if mode is Mode.DISABLED:
        return
    if mode is Mode.DRY_RUN:
        yield fleet_pb2.Condition(
            name="qos_dry_run",
            message="QoS tiers are not governed: decisions only say what would be done. Set policy.qos.mode to enabled",
        )
    for pool in view.fleet.pools:
        if pool.ready_nodes and pool.missing_signals:
            yield fleet_pb2.Condition(
                name="signals_missing",
                message=f"{pool.name}: no node reports {' and '.join(pool.missing_signals)} lately, which counts as no "
                "pressure; `headrace nodes` shows the last reports",
            )
        for found in pool.pressures:
            if found.pressure is not Pressure.NORMAL:
                state = found.pressure.name.lower()
                measure = view.table.policy.qos.of(found.tier).measure(found.pressure)
                yield fleet_pb2.Condition(
                    name=f"pressure_{state}",
                    message=f"{pool.name}: {state} for {found.tier} at level {found.level:g}"
                    f"{f' by {found.signal}' if found.signal else ''}; its requests there: {measure}",
                )


def _lost_full_tiers(view: View) -> Iterable[fleet_pb2.Condition]:
    """Of models that only quantized nodes serve now."""
    if not view.table.policy.selection.sensitive_may_use_quantized:
        return
    ready: dict[str, set[FormatTier]] = {}
    for pool in view.fleet.pools:
        if pool.ready_nodes:
            ready.setdefault(pool.model, set()).add(pool.tier)
    for model, tiers in sorted(ready.items()):
        if FormatTier.FULL not in tiers:
            yield fleet_pb2.Condition(
                name="sensitive_on_quantized",
                message=f"{model}: no node of the full tier is ready, so that sensitive requests go to the quantized "
                "one; start a full node, or have them refused with policy.selection.sensitive_may_use_quantized: false",
            )


def _fleet_conditions(view: View, around: Surroundings) -> Iterable[fleet_pb2.Condition]:
    for pool_name, override in view.fleet.overrides.items():
        signals = ", ".join(f"{name} {getattr(override, name):g}" for name in override.signals)
        yield fleet_pb2.Condition(
            name="override_active",
            message=f"{pool_name}: requests are led by {signals} and not by what is measured, for "
            f"{max(override.expires_at - around.now, 0.0):.0f} s more; `headrace override clear` ends it now",
        )
    if not view.sessions:
        yield fleet_pb2.Condition(
            name="no_nodes", message="no node is registered; start `headrace node` beside each engine"
        )
    yield from _lost_full_tiers(view)
    for pool in view.fleet.pools:
        if not pool.ready_nodes:
            yield fleet_pb2.Condition(
                name="pool_without_ready_node",
                message=f"{pool.name}: none of its {pool.nodes} nodes gets traffic; `headrace nodes` says why",
            )
        largest = max(m.model.max_context for m in view.fleet.members_of(pool.name))
        if largest >= UNLIKE_CONTEXTS * pool.max_context:
            yield fleet_pb2.Condition(
                name="context_class_too_wide",
                message=f"{pool.name}: its nodes hold {pool.max_context} to {largest} tokens, and none gets what the "
                f"smallest cannot hold; add {{name: ..., max_context: {pool.max_context}}} to policy.context_classes",
            )
    yield from _qos_conditions(view)
    if around.assessment is not None and around.assessment.is_trouble:
        yield fleet_pb2.Condition(
            name="fleet_composition",
            message=remedies(around.assessment.composition, view.fleet, view.table.policy),
        )
