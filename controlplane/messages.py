"""Between Headrace's protobuf messages and the model's values. Computes nothing, refuses nothing."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from controlplane.digests import session_digest
from controlplane.features import Features, TextCounts
from controlplane.model import (
    Alternative,
    Budget,
    CapacityType,
    Contexts,
    Decision,
    FormatTier,
    NodeLoad,
    NodeSpec,
    Override,
    Pool,
    PoolLoad,
    Pressure,
    QosTier,
    Refusal,
    Sensitivity,
    ServedModel,
    TierPressure,
    WouldDo,
)
from headrace_protos.headrace.v1 import admin_pb2, decision_head_pb2, decision_pb2, fleet_pb2, node_pb2

_CAPACITY_TO_MESSAGE = {
    CapacityType.ON_DEMAND: node_pb2.CAPACITY_TYPE_ON_DEMAND,
    CapacityType.SPOT: node_pb2.CAPACITY_TYPE_SPOT,
}
_CAPACITY_FROM_MESSAGE = {
    node_pb2.CAPACITY_TYPE_UNSPECIFIED: CapacityType.ON_DEMAND,
    node_pb2.CAPACITY_TYPE_ON_DEMAND: CapacityType.ON_DEMAND,
    node_pb2.CAPACITY_TYPE_SPOT: CapacityType.SPOT,
}


def timestamp(seconds: float) -> Timestamp:
    """From Unix seconds."""
    whole = int(seconds // 1)
    return Timestamp(seconds=whole, nanos=min(int((seconds - whole) * 1e9), 999_999_999))


def as_fields(message: Message) -> dict[str, Any]:
    """As JSON shows a message to people and scripts: with the names of its proto, and zero values where they mean
    something."""
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


# --- nodes ---------------------------------------------------------------------------------------------------------


def node_spec(message: node_pb2.NodeSpec) -> NodeSpec:
    return NodeSpec(
        node_id=message.node_id,
        address=message.address,
        models=tuple(
            ServedModel(
                id=m.id,
                format=m.format,
                max_context=m.max_context,
                max_sequences=m.max_sequences,
                served_name=m.served_name or m.id,
                aliases=tuple(m.aliases),
                kv_cache_tokens=m.kv_cache_tokens,
            )
            for m in message.models
        ),
        engine=message.engine,
        engine_version=message.engine_version,
        gpu_model=message.gpu_model,
        gpu_count=message.gpu_count,
        vram_bytes=message.vram_bytes,
        hardware_class=message.hardware_class,
        capacity_type=_CAPACITY_FROM_MESSAGE.get(message.capacity_type, CapacityType.ON_DEMAND),
        health_path=message.health_path,
        labels=dict(message.labels),
        engine_instance=message.engine_instance,
    )


def node_spec_message(spec: NodeSpec) -> node_pb2.NodeSpec:
    return node_pb2.NodeSpec(
        node_id=spec.node_id,
        address=spec.address,
        models=[
            node_pb2.ServedModel(
                id=m.id,
                format=m.format,
                max_context=m.max_context,
                max_sequences=m.max_sequences,
                served_name=m.served_name,
                aliases=m.aliases,
                kv_cache_tokens=m.kv_cache_tokens,
            )
            for m in spec.models
        ],
        engine=spec.engine,
        engine_version=spec.engine_version,
        gpu_model=spec.gpu_model,
        gpu_count=spec.gpu_count,
        vram_bytes=spec.vram_bytes,
        hardware_class=spec.hardware_class,
        capacity_type=_CAPACITY_TO_MESSAGE[spec.capacity_type],
        health_path=spec.health_path,
        labels=spec.labels,
        engine_instance=spec.engine_instance,
    )


def node_load(message: node_pb2.LoadReport, reported_at: float) -> NodeLoad:
    return NodeLoad(
        running=message.running,
        waiting=message.waiting,
        kv_cache_use=message.kv_cache_use if message.HasField("kv_cache_use") else None,
        tokens_per_second=message.tokens_per_second if message.HasField("tokens_per_second") else None,
        ttft_seconds=message.ttft_seconds if message.HasField("ttft_seconds") else None,
        healthy=message.healthy,
        uncounted=message.uncounted,
        streams_usage=message.streams_usage if message.HasField("streams_usage") else None,
        reported_at=reported_at,
    )


def node_load_message(load: NodeLoad) -> node_pb2.LoadReport:
    return node_pb2.LoadReport(
        running=load.running,
        waiting=load.waiting,
        kv_cache_use=load.kv_cache_use,
        tokens_per_second=load.tokens_per_second,
        ttft_seconds=load.ttft_seconds,
        healthy=load.healthy,
        uncounted=load.uncounted,
        streams_usage=load.streams_usage,
    )


# --- pools ---------------------------------------------------------------------------------------------------------


def pool(message: fleet_pb2.Pool) -> Pool:
    return Pool(
        name=message.name,
        model=message.model,
        tier=FormatTier(message.tier),
        context_class=message.context_class,
        capacity_type=_CAPACITY_FROM_MESSAGE.get(message.capacity_type, CapacityType.ON_DEMAND),
        max_context=message.max_context,
        max_sequences=message.max_sequences,
        ready_nodes=message.ready_nodes,
        nodes=message.nodes,
        served_name=message.served_name,
        aliases=tuple(message.aliases),
        formats=tuple(message.formats),
        hardware_classes=tuple(message.hardware_classes),
        load=_pool_load(message.load) if message.HasField("load") else None,
        overridden=tuple(message.overridden),
        gain=message.gain,
        quiescing_nodes=message.quiescing_nodes,
        settles_in=message.settles_in_seconds,
        quiesces_since=message.quiesces_since,
        pressures=tuple(map(tier_pressure, message.pressures)),
        missing_signals=tuple(message.missing_signals),
    )


def tier_pressure(message: decision_pb2.Pressure) -> TierPressure:
    return TierPressure(
        tier=QosTier(message.qos_tier),
        pressure=Pressure[message.state.upper()],
        level=message.level,
        signal=message.signal,
        sla_violation_rate=message.sla_violation_rate if message.HasField("sla_violation_rate") else None,
        kv_cache_use=message.kv_cache_use if message.HasField("kv_cache_use") else None,
        waiting_per_node=message.waiting_per_node if message.HasField("waiting_per_node") else None,
    )


def pressure_message(pressure: TierPressure) -> decision_pb2.Pressure:
    return decision_pb2.Pressure(
        qos_tier=pressure.tier,
        state=pressure.pressure.name.lower(),
        level=pressure.level,
        signal=pressure.signal,
        sla_violation_rate=pressure.sla_violation_rate,
        kv_cache_use=pressure.kv_cache_use,
        waiting_per_node=pressure.waiting_per_node,
    )


def _pool_load(message: fleet_pb2.PoolLoad) -> PoolLoad:
    kv_cache_use = message.kv_cache_use if message.HasField("kv_cache_use") else None
    return PoolLoad(running=message.running, waiting=message.waiting, kv_cache_use=kv_cache_use)


def pool_message(pool: Pool) -> fleet_pb2.Pool:
    return fleet_pb2.Pool(
        name=pool.name,
        model=pool.model,
        tier=pool.tier,
        context_class=pool.context_class,
        capacity_type=_CAPACITY_TO_MESSAGE[pool.capacity_type],
        max_context=pool.max_context,
        max_sequences=pool.max_sequences,
        ready_nodes=pool.ready_nodes,
        nodes=pool.nodes,
        served_name=pool.served_name,
        aliases=pool.aliases,
        formats=pool.formats,
        hardware_classes=pool.hardware_classes,
        load=None
        if pool.load is None
        else fleet_pb2.PoolLoad(
            running=pool.load.running, waiting=pool.load.waiting, kv_cache_use=pool.load.kv_cache_use
        ),
        overridden=pool.overridden,
        gain=pool.gain,
        quiescing_nodes=pool.quiescing_nodes,
        settles_in_seconds=pool.settles_in,
        quiesces_since=pool.quiesces_since,
        pressures=map(pressure_message, pool.pressures),
        missing_signals=pool.missing_signals,
    )


def override_message(pool: str, override: Override, now: float) -> admin_pb2.Override:
    """`now` in Unix seconds."""
    return admin_pb2.Override(
        pool=pool,
        waiting=override.waiting,
        running=override.running,
        kv_cache_use=override.kv_cache_use,
        sla_violation_rate=override.sla_violation_rate,
        expires_at=timestamp(override.expires_at),
        seconds_left=max(override.expires_at - now, 0.0),
    )


# --- decisions -----------------------------------------------------------------------------------------------------


def cap_told(message: decision_pb2.Decision | decision_head_pb2.DecisionHead) -> int | None:
    """The most tokens of one answer that the engine was told: the client's cap, or a lower one set under pressure."""
    caps = [message.output_cap] if message.HasField("output_cap") else []
    if message.output_limit:
        caps.append(message.output_limit)
    return min(caps, default=None)


def decision_message(decision: Decision) -> decision_pb2.Decision:
    return decision_pb2.Decision(
        action=decision.action,
        endpoint=decision.endpoint,
        model=decision.model,
        pool=decision.pool.name if decision.pool else "",
        tier=decision.pool.tier if decision.pool else "",
        reasons=decision.reasons,
        sensitivity=sensitivity_message(decision.sensitivity) if decision.sensitivity else None,
        budget=budget_message(decision.budget) if decision.budget else None,
        alternatives=[alternative_message(a) for a in decision.alternatives],
        would_change=decision.would_change,
        pinned=decision.pinned or "",
        refusal=refusal_message(decision.refusal) if decision.refusal else None,
        stream=decision.stream,
        waited_seconds=decision.waited_seconds,
        waits_for=decision.waits_for,
        tenant=decision.tenant,
        known_by=decision.known_by,
        qos_tier=decision.qos_tier or "",
        session=session_digest(decision.session) if decision.session else "",
        pressure=pressure_message(decision.pressure) if decision.pressure else None,
        pressed_pool=decision.pressed_pool,
        output_limit=decision.output_limit or 0,
        asked_model=decision.asked_model,
        held_seconds=decision.held_seconds,
        would_do=would_do_message(decision.would_do) if decision.would_do else None,
        contexts=contexts_message(decision.contexts) if decision.contexts else None,
        features=features_message(decision.features) if decision.features else None,
        output_cap=decision.output_cap,
        choices=decision.choices,
        context_class=decision.pool.context_class if decision.pool else "",
    )


def would_do_message(would_do: WouldDo) -> decision_pb2.WouldDo:
    return decision_pb2.WouldDo(
        action=would_do.action,
        reasons=would_do.reasons,
        pool=would_do.pool,
        output_limit=would_do.output_limit or 0,
    )


def contexts_message(contexts: Contexts) -> decision_pb2.Contexts:
    return decision_pb2.Contexts(chosen=contexts.chosen, smaller=contexts.smaller, larger=contexts.larger)


def features_message(features: Features) -> decision_pb2.Features:
    return decision_pb2.Features(
        text=features.text,
        messages=features.messages,
        tools=features.tools,
        calls=features.calls,
        images=features.images,
        token_ids=features.token_ids,
        schema_bytes=features.schema_bytes,
        is_cut=features.is_cut,
    )


def features(message: decision_pb2.Features) -> Features | None:
    """None for those of a version that counts other things."""
    if len(message.text) != len(TextCounts._fields):
        return None
    return Features(
        text=TextCounts(*message.text),
        messages=message.messages,
        tools=message.tools,
        calls=message.calls,
        images=message.images,
        token_ids=message.token_ids,
        schema_bytes=message.schema_bytes,
        is_cut=message.is_cut,
    )


def sensitivity_message(sensitivity: Sensitivity) -> decision_pb2.Sensitivity:
    return decision_pb2.Sensitivity(
        verdict=sensitivity.verdict,
        score=sensitivity.score,
        contributions=[
            decision_pb2.Contribution(name=c.name, points=c.points, why=c.why) for c in sensitivity.contributions
        ],
    )


def budget_message(budget: Budget) -> decision_pb2.Budget:
    return decision_pb2.Budget(
        prompt_tokens=budget.prompt_tokens,
        output_tokens=budget.output_tokens,
        category=budget.category,
        ratio=budget.ratio,
        output_from=budget.output_from,
        likely_prompt_tokens=budget.likely_prompt_tokens,
        rests_on=budget.rests_on,
        samples=budget.samples,
    )


def alternative_message(alternative: Alternative) -> decision_pb2.Alternative:
    return decision_pb2.Alternative(
        pool=alternative.pool,
        excluded_by=alternative.excluded_by or "",
        scores=dict(alternative.scores),
        total=alternative.total,
        overridden=alternative.overridden,
    )


def refusal_message(refusal: Refusal) -> decision_pb2.Refusal:
    return decision_pb2.Refusal(
        status=refusal.status,
        type=refusal.type,
        code=refusal.code,
        message=refusal.message,
        param=refusal.param or "",
        retry_after_seconds=refusal.retry_after or 0.0,
    )
