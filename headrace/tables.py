"""Tables of nodes, pools, overrides and decisions, for people; `--json` is for scripts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.markup import escape

from headrace.columns import Column, show
from headrace.console import console, plain_table, print_table
from headrace.values import TIER_STYLES, budget, marked, mistake, pressures, status, tokens, verdict
from headrace_protos.headrace.v1 import admin_pb2, decision_pb2, fleet_pb2, node_pb2

_NODE_COLUMNS = (
    Column("node", wraps=True),
    Column("address", 3),
    Column("state"),
    Column("serves", 1, wraps=True),
    Column("running", 2),
    Column("waiting", 2),
    Column("KV cache", 3),
    Column("engine", 4),
    Column("hardware", 5),
    Column("pools", 6, wraps=True),
)


def show_nodes(nodes: Iterable[fleet_pb2.Node]) -> None:
    show(console(), _NODE_COLUMNS, map(_node, nodes))


def _node(node: fleet_pb2.Node) -> Sequence[str]:
    spec = node.spec
    serves = "\n".join(f"{m.id} {m.format} {m.max_context} x {m.max_sequences}" for m in spec.models)
    has_load = node.HasField("load")
    return (
        escape(spec.node_id),
        escape(spec.address),
        _state(node),
        escape(serves),
        str(node.load.running) if has_load else "?",
        str(node.load.waiting) if has_load else "?",
        _share(node.load) if has_load else "?",
        escape(f"{spec.engine} {spec.engine_version}".strip()),
        escape(spec.hardware_class or spec.gpu_model or "-"),
        escape("\n".join(node.pools)),
    )


# The names of pools hold their model, tier and context class.
_POOL_COLUMNS = (
    Column("pool", wraps=True),
    Column("model", 9),
    Column("tier", 8),
    Column("formats", 4),
    Column("gain", 6),
    Column("context", 5),
    Column("nodes"),
    Column("sequences", 7),
    Column("running", 2),
    Column("waiting", 2),
    Column("KV cache", 3),
    Column("pressure", 3, wraps=True),
    Column("room for", 1),
)


def show_pools(pools: Iterable[fleet_pb2.Pool]) -> None:
    show(console(), _POOL_COLUMNS, map(_pool, pools))


def _pool(pool: fleet_pb2.Pool) -> Sequence[str]:
    has_load = pool.HasField("load")
    return (
        escape(pool.name),
        escape(pool.model),
        f"[{TIER_STYLES.get(pool.tier, 'white')}]{pool.tier}[/]",
        escape(", ".join(pool.formats)),
        f"{pool.gain:g}",
        escape(f"{pool.context_class} ({pool.max_context})"),
        _ready(pool),
        str(pool.max_sequences),
        marked(str(pool.load.running) if has_load else "?", overridden="running" in pool.overridden),
        marked(str(pool.load.waiting) if has_load else "?", overridden="waiting" in pool.overridden),
        marked(_share(pool.load) if has_load else "?", overridden="kv_cache_use" in pool.overridden),
        marked(pressures(pool.pressures), overridden="sla_violation_rate" in pool.overridden),
        str(pool.free) if pool.HasField("free") else "?",
    )


def show_overrides(overrides: Iterable[admin_pb2.Override]) -> None:
    table = plain_table("pool", "running", "waiting", "KV cache", "SLA violations", "seconds left")
    for override in overrides:
        table.add_row(
            escape(override.pool),
            str(override.running) if override.HasField("running") else "-",
            str(override.waiting) if override.HasField("waiting") else "-",
            _share(override) if override.HasField("kv_cache_use") else "-",
            f"{override.sla_violation_rate:.0%}" if override.HasField("sla_violation_rate") else "-",
            f"{override.seconds_left:.0f}",
        )
    print_table(table)


_DECISION_COLUMNS = (
    Column("time"),
    Column("model", 9),
    Column("verdict", 1),
    Column("budget", 6),
    Column("pool", wraps=True),
    Column("why", wraps=True),
    Column("status", wraps=True),
    Column("mistake", 5),
    Column("node", 4),
    Column("waited", 7),
    Column("first byte", 8),
    Column("whole", 2),
    Column("tokens", 3),
)


def show_decisions(decisions: Iterable[decision_pb2.RecordedDecision]) -> None:
    show(console(), _DECISION_COLUMNS, map(_decision, decisions))


def _decision(recorded: decision_pb2.RecordedDecision) -> Sequence[str]:
    made, outcome = recorded.decision, recorded.outcome
    return (
        recorded.time.ToDatetime().strftime("%H:%M:%S"),
        escape(made.model or "-"),
        verdict(made),
        budget(made),
        escape(made.pool or "-"),
        marked(
            escape(", ".join(made.reasons)) or "the filter was not asked",
            overridden=any(alternative.overridden for alternative in made.alternatives),
        ),
        status(outcome),
        mistake(recorded) or "-",
        escape(outcome.node_id or outcome.upstream or "-"),
        _milliseconds(made.waited_seconds) if made.waited_seconds else "-",
        _milliseconds(outcome.first_byte_seconds) if outcome.HasField("first_byte_seconds") else "-",
        _milliseconds(outcome.duration_seconds),
        tokens(outcome),
    )


def decision(recorded: decision_pb2.RecordedDecision) -> str:
    """One line, with markup, for those that are shown as they come."""
    made, outcome = recorded.decision, recorded.outcome
    reasons = escape(", ".join(made.reasons)) or "the filter was not asked"
    return "  ".join(
        (
            recorded.time.ToDatetime().strftime("%H:%M:%S"),
            status(outcome),
            escape(made.model or "-"),
            verdict(made),
            escape(made.pool or "-"),
            marked(reasons, overridden=any(alternative.overridden for alternative in made.alternatives)),
            escape(outcome.node_id or outcome.upstream or "-"),
            _milliseconds(outcome.duration_seconds),
            f"tokens {tokens(outcome)}",
            *filter(None, [mistake(recorded)]),
        )
    )


def _state(node: fleet_pb2.Node) -> str:
    if node.draining:
        return "[yellow]draining[/]"
    if not node.ready:
        return "[red]unhealthy[/]"
    if node.quiescing_seconds:
        return f"[cyan]quiescing[/] {math.ceil(node.quiescing_seconds)} s"
    return "[green]ready[/]"


def _ready(pool: fleet_pb2.Pool) -> str:
    quiescing = f", {pool.quiescing_nodes} [cyan]quiescing[/]" if pool.quiescing_nodes else ""
    return f"{pool.ready_nodes}/{pool.nodes}{quiescing}"


def _share(load: node_pb2.LoadReport | fleet_pb2.PoolLoad | admin_pb2.Override) -> str:
    return f"{load.kv_cache_use:.0%}" if load.HasField("kv_cache_use") else "?"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"
