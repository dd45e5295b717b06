"""The report on a terminal: who is affected, from where to where, and what is not known."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from controlplane.model import Action
from planner.replay.replaying import Standing
from planner.replay.report import notes
from planner.replay.summary import NOWHERE, Group, Summary

MOST_TENANTS = 20
MOST_MOVES = 20


def show(console: Console, summary: Summary) -> None:
    overall = summary.overall
    share = overall.standings[Standing.CERTAIN] / overall.requests if overall.requests else 0.0
    console.print(
        f"[bold]{overall.changed} of {overall.requests} requests would change[/], {overall.changed_for_certain} of "
        f"them for certain; the answer is certain for {share:.1%}",
        highlight=False,
    )
    _show_groups(console, summary)
    _show_actions(console, overall)
    _show_pools(console, overall)
    console.print()
    for note in notes(summary):
        console.print(f"[dim]{escape(note)}[/]", highlight=False)


def _show_groups(console: Console, summary: Summary) -> None:
    table = _table(
        "QoS tier, tenant", "requests", "certain", "change", "rejected", "degraded", "moved", "tokens saved by caps",
        "tokens rejected", "tokens admitted", "SLA violated", "of now rejected", "of now degraded",
    )  # fmt: skip
    table.add_row("[bold]all[/]", *_cells(summary.overall))
    for group in summary.tiers:
        table.add_row(f"[cyan]{escape(group.name)}[/]", *_cells(group))
    for group in summary.tenants[:MOST_TENANTS]:
        table.add_row(f"  {escape(group.name)}", *_cells(group))
    console.print(table)
    if (more := len(summary.tenants) - MOST_TENANTS) > 0:
        console.print(f"[dim]and {more} more tenants, with less that changes; --json has all[/]", highlight=False)


def _cells(group: Group) -> list[str]:
    return [
        str(group.requests),
        str(group.standings[Standing.CERTAIN]),
        str(group.changed),
        _from_to(group, Action.REJECT),
        _from_to(group, Action.DEGRADE),
        str(sum(count for (was, now), count in group.pools.items() if was != now and NOWHERE not in {was, now})),
        f"{group.tokens_saved:,}",
        f"{group.tokens_rejected:,}",
        f"{group.tokens_admitted:,}",
        f"{group.violated} of {group.judged}",
        f"{group.violated_rejected} violated, {group.met_rejected} met",
        str(group.violated_degraded),
    ]


def _from_to(group: Group, action: Action) -> str:
    """How many were, and how many would be."""
    was = sum(count for (before, _), count in group.actions.items() if before is action)
    now = sum(count for (_, after), count in group.actions.items() if after is action)
    return f"{was}" if was == now else f"{was} -> {now}"


def _show_actions(console: Console, overall: Group) -> None:
    columns = sorted({now for _, now in overall.actions})
    table = _table("action, from \\ to", *map(str, columns))
    for was in sorted({before for before, _ in overall.actions}):
        counts = [overall.actions[was, now] for now in columns]
        table.add_row(str(was), *(str(count) if count else "-" for count in counts))
    console.print("", table)


def _show_pools(console: Console, overall: Group) -> None:
    moves = [(pair, count) for pair, count in overall.pools.items() if pair[0] != pair[1]]
    if not moves:
        return
    table = _table("pool, from", "to", "requests")
    for (was, now), count in sorted(moves, key=lambda move: (-move[1], move[0]))[:MOST_MOVES]:
        table.add_row(escape(was), escape(now), str(count))
    console.print("", table)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
