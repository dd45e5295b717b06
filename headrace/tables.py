"""What the command line shows of messages, for people; `--json` is for scripts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from controlplane.ledger.mistakes import Misroute
from controlplane.policy.select import SCORES
from headrace.columns import Column, show
from headrace_protos.headrace.v1 import admin_pb2, calibration_pb2, decision_pb2, fleet_pb2, node_pb2

# Of what they ask for no tokens are estimated, or nobody was to answer.
_NO_USAGE_EXPECTED = frozenset({"failed", "not_estimated", "unknown_model"})
VERDICT_STYLES = {"sensitive": "magenta", "neutral": "white", "tolerant": "cyan"}
MISTAKES = (Misroute.TOO_SMALL, Misroute.TOO_LARGE)
SILENT_SHOWN = 10
TIER_STYLES = {"full": "magenta", "quantized": "cyan"}
PRESSURE_STYLES = {"normal": "green", "elevated": "yellow", "critical": "red"}


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
    show(_console(), _NODE_COLUMNS, map(_node, nodes))


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
    show(_console(), _POOL_COLUMNS, map(_pool, pools))


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
        _marked(str(pool.load.running) if has_load else "?", overridden="running" in pool.overridden),
        _marked(str(pool.load.waiting) if has_load else "?", overridden="waiting" in pool.overridden),
        _marked(_share(pool.load) if has_load else "?", overridden="kv_cache_use" in pool.overridden),
        _marked(_pressures(pool.pressures), overridden="sla_violation_rate" in pool.overridden),
        str(pool.free) if pool.HasField("free") else "?",
    )


def show_overrides(overrides: Iterable[admin_pb2.Override]) -> None:
    table = _table("pool", "running", "waiting", "KV cache", "SLA violations", "seconds left")
    for override in overrides:
        table.add_row(
            escape(override.pool),
            str(override.running) if override.HasField("running") else "-",
            str(override.waiting) if override.HasField("waiting") else "-",
            _share(override) if override.HasField("kv_cache_use") else "-",
            f"{override.sla_violation_rate:.0%}" if override.HasField("sla_violation_rate") else "-",
            f"{override.seconds_left:.0f}",
        )
    _print(table)


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
    show(_console(), _DECISION_COLUMNS, map(_decision, decisions))


def _decision(recorded: decision_pb2.RecordedDecision) -> Sequence[str]:
    made, outcome = recorded.decision, recorded.outcome
    return (
        recorded.time.ToDatetime().strftime("%H:%M:%S"),
        escape(made.model or "-"),
        verdict(made),
        budget(made),
        escape(made.pool or "-"),
        _marked(
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
            _marked(reasons, overridden=any(alternative.overridden for alternative in made.alternatives)),
            escape(outcome.node_id or outcome.upstream or "-"),
            _milliseconds(outcome.duration_seconds),
            f"tokens {tokens(outcome)}",
            *filter(None, [mistake(recorded)]),
        )
    )


def show_line(line: str, *, markup: bool) -> None:
    """As one line, however long."""
    _console().print(line, markup=markup, highlight=False, soft_wrap=True)


def show_status(status: fleet_pb2.GetStatusResponse) -> None:
    console = _console()
    console.print(f"Headrace {status.version}, up {status.uptime_seconds:.0f} s")
    console.print(f"etcd            {escape(status.etcd)}")
    console.print(f"nodes           {status.ready_nodes} ready of {status.nodes}, in {status.pools} pools")
    console.print(f"routing table   {status.routing_table_version or 'none yet'}")
    console.print(f"filter workers  {escape(', '.join(status.filter_workers)) or 'none'}")
    if status.workers:
        console.print(f"sessions        {_session_stores(status.workers)}", soft_wrap=True)
    for envoy in status.envoys:
        rejected = f", [red]{envoy.rejected_updates} updates rejected[/]" if envoy.rejected_updates else ""
        console.print(
            f"envoy           {escape(envoy.node_id)} holds {envoy.acknowledged_version or 'nothing yet'}{rejected}"
        )
    console.print(f"QoS tiers       {_qos_mode(status.qos_mode)}; fleet {_pressures(status.fleet_pressures)}")
    if status.HasField("ledger"):
        console.print(f"ledger          {_ledger(status.ledger)}", soft_wrap=True)
    for gain in status.gains:
        console.print(f"gain            {_gain(gain)}")
    if status.silent_nodes:
        console.print(f"usage           {_silence(status.silent_nodes)}", soft_wrap=True)
    for bounds in status.context_bounds:
        console.print(f"context bounds  {_bounds(bounds)}", soft_wrap=True)
    if status.HasField("composition"):
        console.print(f"traffic         {_composition(status.composition)}")
    if status.usage:
        console.print(f"usage           {_usage(status.usage)}", soft_wrap=True)
    for rate in status.sla:
        if not rate.pool:
            console.print(f"sla             {_sla(rate)}")
    if not status.conditions:
        console.print("[green]all is well[/]")
    for condition in status.conditions:
        console.print(f"[yellow]{condition.name}[/]: {escape(condition.message)}", soft_wrap=True)


def show_explanation(decision: decision_pb2.Decision, weights: Mapping[str, float]) -> None:
    """`weights` are those of the pools' marks, by name."""
    console = _console()
    where = f"[bold]{escape(decision.pool)}[/]" if decision.pool else "[bold]nowhere[/]"
    goes = f"waits for {escape(' or '.join(decision.waits_for))}" if decision.waits_for else f"goes to {where}"
    console.print(f"{decision.action}: {escape(decision.endpoint)} of {escape(decision.model or 'no model')} {goes}")
    console.print(f"why: {escape(', '.join(decision.reasons))}")
    if decision.HasField("refusal"):
        console.print(f"[red]{decision.refusal.status} {decision.refusal.code}[/]: {escape(decision.refusal.message)}")
    if decision.HasField("pressure"):
        console.print(f"pressure: {pressure(decision)}")
    if decision.asked_model:
        console.print(f"{escape(decision.model)} stands in for {escape(decision.asked_model)}")
    if decision.output_limit:
        console.print(f"each choice may have {decision.output_limit} tokens")
    if decision.HasField("would_do"):
        would = decision.would_do
        limit = f" with {would.output_limit} tokens" if would.output_limit else ""
        where = f" to {escape(would.pool)}" if would.pool else ""
        console.print(
            f"[bold yellow]DRY RUN[/]: governed, it would be {would.action}{where}{limit}: "
            f"{escape(', '.join(would.reasons))}"
        )
    if decision.pinned:
        console.print(f"the session was pinned to {decision.pinned}")
    if decision.HasField("sensitivity"):
        console.print(f"\nsensitivity: {verdict(decision)}, score {decision.sensitivity.score:g}")
        table = _table("contribution", "points", "because")
        for part in decision.sensitivity.contributions:
            table.add_row(escape(part.name), f"{part.points:+g}", escape(part.why))
        _print(table, console)
    if decision.HasField("budget"):
        console.print(f"\nbudget: {_budget_in_words(decision.budget)}")
    if decision.alternatives:
        console.print("\npools:")
        _show_alternatives(console, decision.alternatives, weights)
    for change in decision.would_change:
        console.print(f"- {escape(change)}")


def _budget_in_words(budget: decision_pb2.Budget) -> str:
    rests_on = escape(budget.rests_on) + (f" from {budget.samples} requests" if budget.samples else "")
    margin = budget.prompt_tokens / budget.likely_prompt_tokens if budget.likely_prompt_tokens else 1.0
    return (
        f"{budget.prompt_tokens} prompt + {budget.output_tokens} output tokens\n"
        f"prompt: {escape(budget.category)}, {budget.likely_prompt_tokens} tokens are likely and {margin:.2f} times as "
        f"many counted, {budget.ratio:.3g} bytes per token ({rests_on})\n"
        f"output: {escape(budget.output_from)}"
    )


def _show_alternatives(
    console: Console, alternatives: Sequence[decision_pb2.Alternative], weights: Mapping[str, float]
) -> None:
    """Each mark times its weight, so that they add up to the total. What gives no pool anything is left out."""
    scores = [n for n, _ in SCORES if any(a.scores.get(n, 0.0) * weights.get(n, 0.0) for a in alternatives)]
    columns = [Column("pool", wraps=True), Column("total")]
    columns += [Column(f"{name}\n0 to {weights[name]:g}") for name in scores]
    rows = []
    for alternative in sorted(alternatives, key=lambda found: -found.total):
        pool = _marked(escape(alternative.pool), overridden=bool(alternative.overridden))
        if alternative.excluded_by:
            rows.append((f"{pool}\n[dim]{escape(alternative.excluded_by)}[/]", "-", *("" for _ in scores)))
        else:
            parts = (f"{alternative.scores[name] * weights[name]:.2f}" for name in scores)
            rows.append((pool, f"{alternative.total:.2f}", *parts))
    show(console, columns, rows)


def verdict(decision: decision_pb2.Decision) -> str:
    name = decision.sensitivity.verdict
    return f"[{VERDICT_STYLES.get(name, 'white')}]{name}[/]" if name else "-"


def budget(decision: decision_pb2.Decision) -> str:
    return f"{decision.budget.prompt_tokens}+{decision.budget.output_tokens}" if decision.HasField("budget") else "-"


def status(outcome: decision_pb2.Outcome) -> str:
    style = "green" if 200 <= outcome.status < 300 else "red"
    flags = f" {','.join(outcome.flags)}" if outcome.flags else ""
    return f"[{style}]{outcome.status or 'client left'}{flags}[/]"


def mistake(recorded: decision_pb2.RecordedDecision) -> str:
    """Of the context class; empty when none is known."""
    return f"[red]{recorded.misroute}[/]" if recorded.misroute in MISTAKES else ""


def tokens(outcome: decision_pb2.Outcome) -> str:
    if not outcome.HasField("prompt_tokens") and not outcome.HasField("completion_tokens"):
        return "-"
    return f"{outcome.prompt_tokens}+{outcome.completion_tokens}"


def _session_stores(workers: Sequence[fleet_pb2.WorkerStatus]) -> str:
    stores: dict[str, list[bool]] = {}
    for worker in workers:
        stores.setdefault(worker.session_store, []).append(not worker.session_store_trouble)
    return "; ".join(
        f"in {escape(place)}: {'up' if all(up) else f'[red]away[/] for {up.count(False)} of {len(up)} workers'}"
        if place
        else "in each worker's memory"
        for place, up in stores.items()
    )


def _qos_mode(mode: str) -> str:
    return {"enabled": "governed", "dry_run": "[bold yellow]DRY RUN[/]"}.get(mode, "not governed")


def _pressures(pressures: Iterable[decision_pb2.Pressure]) -> str:
    """Each tier in its state; those in the same one together."""
    states: dict[str, list[str]] = {}
    for found in pressures:
        states.setdefault(found.state, []).append(found.qos_tier)
    if list(states) == ["normal"]:
        return "[green]normal[/]"
    shown = (f"[{PRESSURE_STYLES.get(state, 'white')}]{state}[/] for {', '.join(t)}" for state, t in states.items())
    return "; ".join(shown) or "?"


def pressure(decision: decision_pb2.Decision) -> str:
    """By what a decision was governed."""
    found = decision.pressure
    by = f" by {found.signal}" if found.signal else ""
    state = f"[{PRESSURE_STYLES.get(found.state, 'white')}]{found.state}[/]"
    return f"{state} for {found.qos_tier} in {escape(decision.pressed_pool)}, level {found.level:.2f}{by}"


def _ledger(ledger: fleet_pb2.LedgerStatus) -> str:
    state = f"[red]away[/], {ledger.waiting} wait" if ledger.trouble else f"{ledger.waiting} wait"
    lost = ", ".join(f"[red]{count} lost: {cause}[/]" for cause, count in sorted(ledger.lost.items()))
    return f"{escape(ledger.store)}: {ledger.written} written, {state}{', ' if lost else ''}{lost}"


def _gain(gain: fleet_pb2.Gain) -> str:
    where = f"{escape(gain.model)} quantized on {escape(gain.hardware_class) or 'unknown hardware'}"
    source = "learned" if gain.learned else "expected"
    known = f"{gain.comparable_seconds:.0f} s at comparable load"
    expected = f", {gain.prior:g} was expected" if gain.learned else ""
    return f"{where}: {gain.gain:g} times full, {source}{expected} ({known})"


def _silence(nodes: Sequence[str]) -> str:
    shown = ", ".join(map(escape, nodes[:SILENT_SHOWN])) + (", ..." if len(nodes) > SILENT_SHOWN else "")
    return (
        f"streams of {shown} teach nothing unless the client asks for usage; start vLLM with "
        "--enable-force-include-usage"
    )


def _bounds(bounds: fleet_pb2.ContextBounds) -> str:
    in_force = ", ".join(map(str, bounds.in_force)) or "none"
    text = f"{escape(bounds.model)}: {in_force} saves up to {max(bounds.saving_in_force, 0.0):.0%} of the engines"
    if list(bounds.suggested) != list(bounds.in_force):
        suggested = ", ".join(map(str, bounds.suggested))
        text += f", [cyan]{suggested} would save up to {bounds.saving:.0%}[/]"
    return f"{text} ({bounds.requests:.0f} requests)"


def _usage(counts: Iterable[calibration_pb2.UsageCount]) -> str:
    """The share of answered requests that told nothing of tokens, and why, the most frequent reason first."""
    counts = [count for count in counts if count.result not in _NO_USAGE_EXPECTED]
    answered = sum(count.requests for count in counts)
    nothing = [count for count in counts if count.result != "learned"]
    share = sum(count.requests for count in nothing) / answered if answered else 0.0
    why = ", ".join(
        f"{count.requests} {count.result.replace('_', ' ')}{' (streamed)' if count.streamed else ''}"
        for count in sorted(nothing, key=lambda count: -count.requests)
    )
    return f"{share:.0%} of {answered} answered requests taught nothing of tokens{': ' if why else ''}{escape(why)}"


def _composition(traffic: fleet_pb2.Composition) -> str:
    shares = ", ".join(
        f"[{VERDICT_STYLES[name]}]{count / traffic.requests:.0%} {name}[/]"
        for name, count in (
            ("sensitive", traffic.sensitive),
            ("neutral", traffic.neutral),
            ("tolerant", traffic.tolerant),
        )
    )
    return (
        f"{traffic.requests} requests in {traffic.window_seconds / 60:g} min: {shares}; "
        f"{traffic.needing_full / traffic.requests:.0%} need the full tier"
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


def _sla(rate: fleet_pb2.SlaRate) -> str:
    counted = rate.met + rate.violated
    share = (
        f"{rate.violation_rate:.1%} of {counted}"
        if rate.HasField("violation_rate")
        else f"{rate.violated} of {counted}"
    )
    causes = ", ".join(f"{count} {cause}" for cause, count in sorted(rate.causes.items()))
    rejected = f", {rate.rejected} rejected" if rate.rejected else ""
    return f"{rate.qos_tier}: {share} violated{rejected}{f' ({causes})' if causes else ''}"


def _marked(text: str, *, overridden: bool) -> str:
    """Says of a load, and of what was decided by it, that an operator has overridden it."""
    return f"{text} [bold red]OVERRIDDEN[/]" if overridden else text


def _share(load: node_pb2.LoadReport | fleet_pb2.PoolLoad | admin_pb2.Override) -> str:
    return f"{load.kv_cache_use:.0%}" if load.HasField("kv_cache_use") else "?"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _console() -> Console:
    """At full width where the output is not a terminal, so that a pipe gets every word."""
    console = Console()
    if not console.is_terminal:
        console.width = 2000
    return console


def _print(table: Table, console: Console | None = None) -> None:
    console = console or _console()
    console.print(table)
    if not table.rows:
        console.print("none")
