"""What `headrace status` shows, line by line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.markup import escape

from headrace.console import console
from headrace.values import VERDICT_STYLES, pressures
from headrace_protos.headrace.v1 import calibration_pb2, fleet_pb2

# Of what they ask for no tokens are estimated, or nobody was to answer.
_TOLD_USAGE = frozenset({"learned", "not_needed"})
_NO_USAGE_EXPECTED = frozenset({"failed", "not_estimated", "unknown_model"})
SILENT_SHOWN = 10


def show_status(status: fleet_pb2.GetStatusResponse) -> None:
    out = console()
    out.print(f"Headrace {status.version}, up {status.uptime_seconds:.0f} s")
    out.print(f"etcd            {escape(status.etcd)}")
    out.print(f"nodes           {status.ready_nodes} ready of {status.nodes}, in {status.pools} pools")
    out.print(f"routing table   {status.routing_table_version or 'none yet'}")
    out.print(f"filter workers  {escape(', '.join(status.filter_workers)) or 'none'}")
    if status.workers:
        out.print(f"sessions        {_session_stores(status.workers)}", soft_wrap=True)
    for envoy in status.envoys:
        rejected = f", [red]{envoy.rejected_updates} updates rejected[/]" if envoy.rejected_updates else ""
        out.print(
            f"envoy           {escape(envoy.node_id)} holds {envoy.acknowledged_version or 'nothing yet'}{rejected}"
        )
    out.print(f"QoS tiers       {_qos_mode(status.qos_mode)}; fleet {pressures(status.fleet_pressures)}")
    for line in _others(status):
        out.print(line, soft_wrap=True)
    for gain in status.gains:
        out.print(f"gain            {_gain(gain)}")
    if status.silent_nodes:
        out.print(f"usage           {_silence(status.silent_nodes)}", soft_wrap=True)
    for bounds in status.context_bounds:
        out.print(f"context bounds  {_bounds(bounds)}", soft_wrap=True)
    if status.HasField("composition"):
        out.print(f"traffic         {_composition(status.composition)}")
    if status.usage:
        out.print(f"usage           {_usage(status.usage)}", soft_wrap=True)
    for rate in status.sla:
        if not rate.pool:
            out.print(f"sla             {_sla(rate)}")
    if not status.conditions:
        out.print("[green]all is well[/]")
    for condition in status.conditions:
        out.print(f"[yellow]{condition.name}[/]: {escape(condition.message)}", soft_wrap=True)


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


def _others(status: fleet_pb2.GetStatusResponse) -> Iterator[str]:
    """The systems beside the fleet that a control plane writes to and reads from, as far as it is told of any."""
    if status.HasField("ledger"):
        yield f"ledger          {_ledger(status.ledger)}"
    if status.HasField("prometheus"):
        yield f"loads           {_prometheus(status.prometheus)}"


def _ledger(ledger: fleet_pb2.LedgerStatus) -> str:
    state = f"[red]away[/], {ledger.waiting} wait" if ledger.trouble else f"{ledger.waiting} wait"
    lost = ", ".join(f"[red]{count} lost: {cause}[/]" for cause, count in sorted(ledger.lost.items()))
    told = ", ".join(filter(None, [f"{ledger.written} written", state, lost, short(ledger.unrecorded)]))
    return f"{escape(ledger.store)}: {told}"


def short(unrecorded: fleet_pb2.Unrecorded) -> str:
    """What the ledger has not, though nobody told of its loss; empty when it has all."""
    recent = unrecorded.decisions - unrecorded.overdue
    return ", ".join(
        part
        for count, part in (
            (unrecorded.overdue, f"[red]{unrecorded.overdue} never recorded[/]"),
            (recent, f"{recent} not yet recorded"),
        )
        if count
    )


def _prometheus(source: fleet_pb2.PrometheusStatus) -> str:
    state = "[red]in trouble[/]" if source.trouble else "up"
    failures = f", {source.failures} queries failed" if source.failures else ""
    return f"of {source.nodes} nodes from {escape(source.url)}: {state}{failures}"


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
    in_force = ", ".join(map(str, bounds.in_force))
    saved = f"{in_force} saves up to {max(bounds.saving_in_force, 0.0):.0%} of the engines" if in_force else "one class"
    text = f"{escape(bounds.model)}: {saved}"
    if list(bounds.suggested) != list(bounds.in_force):
        suggested = ", ".join(map(str, bounds.suggested)) or "one class"
        text += f", [cyan]{suggested} would save up to {bounds.saving:.0%}[/]"
        text += f" ({bounds.saving_left:.0%} of those of today)" if bounds.saving_left else ""
    if bounds.suggested_engines and list(bounds.suggested_engines) != list(bounds.engines):
        now, then = (" + ".join(map(str, engines)) for engines in (bounds.engines, bounds.suggested_engines))
        text += f"; engines by class: {now} now, [cyan]{then} would do[/]"
    return f"{text} ({bounds.requests:.0f} requests)"


def _usage(counts: Iterable[calibration_pb2.UsageCount]) -> str:
    """The share of answered requests that told nothing of tokens, and why, the most frequent reason first."""
    counts = [count for count in counts if count.result not in _NO_USAGE_EXPECTED]
    answered = sum(count.requests for count in counts)
    nothing = [count for count in counts if count.result not in _TOLD_USAGE]
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
